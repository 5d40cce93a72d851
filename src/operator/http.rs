//! The operator's own HTTP face: is it alive, is it ready?

use std::{net::SocketAddr, time::Duration};

use axum::{Router, http::StatusCode, routing::get};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::time::{Boottime, Clock, SystemClock};

/// A main loop that has not turned for this long is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(15);
/// How often the main loop turns.
pub const HEARTBEAT: Duration = Duration::from_secs(1);

/// What the endpoints report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Health {
    /// The caches have been filled once.
    pub synced: bool,
    /// The last turn of the main loop.
    pub heartbeat: Option<Boottime>,
}

/// Serves `/healthz` and `/readyz` until `stop`.
pub async fn serve(
    address: SocketAddr,
    health: watch::Receiver<Health>,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    let alive = health.clone();
    let app = Router::new()
        .route("/healthz", get(move || std::future::ready(healthz(*alive.borrow(), SystemClock.boottime()))))
        .route("/readyz", get(move || std::future::ready(readyz(*health.borrow()))));
    axum::serve(listener, app).with_graceful_shutdown(stop.cancelled_owned()).await
}

fn healthz(health: Health, now: Boottime) -> (StatusCode, &'static str) {
    match health.heartbeat {
        Some(last) if now.since(last) > STUCK_AFTER => (StatusCode::SERVICE_UNAVAILABLE, "the main loop is stuck\n"),
        _ => (StatusCode::OK, "ok\n"),
    }
}

fn readyz(health: Health) -> (StatusCode, &'static str) {
    if health.synced {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the caches are not filled yet: is the API server reachable?\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_main_loop_that_stopped_turning_is_not_healthy() {
        let at = |seconds| Boottime::new(Duration::from_secs(seconds));
        let health = Health { synced: true, heartbeat: Some(at(10)) };
        assert_eq!(healthz(health, at(12)).0, StatusCode::OK);
        assert_eq!(healthz(health, at(26)).0, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn it_is_ready_once_the_caches_are_filled() {
        assert_eq!(readyz(Health::default()).0, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(readyz(Health { synced: true, heartbeat: None }).0, StatusCode::OK);
    }
}
