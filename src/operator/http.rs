//! The operator's HTTP server: liveness, readiness and metrics.

mod limits;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::limits::Limits;
use crate::runtime::context::Context;
use crate::runtime::leader::Term;
use crate::runtime::metrics::{classic, wants_open_metrics};
use crate::time::Boottime;

/// How long the main loop can be without a heartbeat before it is treated as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(15);
/// How long all clients get the same text of metrics, because each text needs a walk over all locks.
const SAME_TEXT: Duration = Duration::from_secs(1);
/// The format for clients that do not accept OpenMetrics.
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The format that Prometheus accepts.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Time between two heartbeats of the main loop.
pub const HEARTBEAT: Duration = Duration::from_secs(1);

/// The health that the endpoints report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Health {
    /// The caches were filled once, and the default quorum voted once.
    pub synced: bool,
    /// The last heartbeat of the main loop, or the start of the process.
    pub heartbeat: Boottime,
}

/// Serves `/healthz`, `/readyz` and `/metrics` until dropped.
pub async fn serve(
    address: SocketAddr,
    context: Context,
    health: watch::Receiver<Health>,
    leadership: watch::Receiver<Option<Term>>,
) -> std::io::Result<()> {
    let listener = listen(address).await?;
    let (ready, clock, text) = (health.clone(), context.clock.clone(), Text::default());
    let scrape = move |asked: HeaderMap| {
        // A borrow during the whole scrape would delay the next change of the leadership.
        let leads = leadership.borrow().is_some();
        let text = recent(&text, context.clock.boottime(), || context.metrics_text(leads));
        match wants_open_metrics(asked.get(ACCEPT).and_then(|accept| accept.to_str().ok())) {
            true => ([(CONTENT_TYPE, OPEN_METRICS)], text),
            false => ([(CONTENT_TYPE, CLASSIC)], classic(&text)),
        }
    };
    let app = Router::new()
        .route("/healthz", get(move || std::future::ready(healthz(*health.borrow(), clock.boottime()))))
        .route("/readyz", get(move || std::future::ready(readyz(*ready.borrow()))))
        .route("/metrics", get(move |asked: HeaderMap| std::future::ready(scrape(asked))));
    limits::serve(listener, app, Limits::default()).await;
    Ok(())
}

/// Listens on an address.
///
/// `[::]` means both families, or only IPv4 if the machine has no IPv6.
async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(_) if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    }
}

/// The last text of metrics and its time.
type Text = Arc<Mutex<Option<(Boottime, String)>>>;

fn recent(text: &Text, now: Boottime, write: impl FnOnce() -> String) -> String {
    let mut text = text.lock();
    match &*text {
        Some((since, text)) if now.since(*since) < SAME_TEXT => text.clone(),
        _ => text.insert((now, write())).1.clone(),
    }
}

/// Fails only if a restart helps.
///
/// Empty caches are no reason to fail. The next process would use the same API server, and this one perhaps renews locks.
fn healthz(health: Health, now: Boottime) -> (StatusCode, &'static str) {
    answer_of(now.since(health.heartbeat) <= STUCK_AFTER, "the main loop is stuck\n")
}

fn readyz(health: Health) -> (StatusCode, &'static str) {
    answer_of(
        health.synced,
        "not ready: the caches are not filled (is the API server reachable? redlock_watch_errors_total names kinds), or the default quorum has never had a majority of admitted members\n",
    )
}

/// The answer of an endpoint: 200, or 503 with this text.
fn answer_of(is_ok: bool, failure: &'static str) -> (StatusCode, &'static str) {
    if is_ok { (StatusCode::OK, "ok\n") } else { (StatusCode::SERVICE_UNAVAILABLE, failure) }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[test]
    fn a_main_loop_that_stopped_turning_is_not_healthy() {
        let at = |seconds| Boottime::new(Duration::from_secs(seconds));
        let health = Health { synced: true, heartbeat: at(10) };
        assert_eq!(healthz(health, at(12)).0, StatusCode::OK);
        assert_eq!(healthz(health, at(26)).0, StatusCode::SERVICE_UNAVAILABLE);
        let unfilled = Health { synced: false, heartbeat: at(10) };
        assert_eq!(healthz(unfilled, at(12)).0, StatusCode::OK, "a restart would not fill the caches");
    }

    #[tokio::test]
    async fn the_ipv6_wildcard_takes_both_families() {
        let listener = listen((Ipv6Addr::UNSPECIFIED, 0).into()).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let has_ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.is_ok();
        let hosts = [Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), has_ipv6.then_some(IpAddr::V6(Ipv6Addr::LOCALHOST))];
        for host in hosts.into_iter().flatten() {
            let connected = TcpStream::connect((host, port)).await;
            assert!(connected.is_ok(), "{host}: {connected:?}");
        }
    }

    #[test]
    fn metrics_are_collected_at_most_once_a_second() {
        let (text, at) = (Text::default(), |millis| Boottime::new(Duration::from_millis(millis)));
        assert_eq!(recent(&text, at(0), || "a".into()), "a");
        assert_eq!(recent(&text, at(999), || "b".into()), "a");
        assert_eq!(recent(&text, at(1_000), || "c".into()), "c");
    }

    #[test]
    fn it_is_ready_once_the_caches_are_filled_and_a_quorum_voted() {
        let (code, text) = readyz(Health::default());
        assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE);
        assert!(text.contains("caches") && text.contains("default quorum") && !text.contains("locks"), "{text}");
        assert_eq!(readyz(Health { synced: true, ..Health::default() }).0, StatusCode::OK);
    }
}
