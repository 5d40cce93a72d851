//! The client of the API server, which ends a request on a dead connection.

use std::time::Duration;

use anyhow::Context as _;
use kube::{Client, Config};

/// Maximum silence of the API server within one request.
///
/// The API server ends each watch of the caches earlier (`WATCH_SECONDS`), so a longer silence means that the connection is dead.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(40);

/// A client with the service account of the pod, or with KUBECONFIG.
///
/// # Errors
/// If there is neither, or the configuration is not valid.
pub(super) async fn client() -> anyhow::Result<Client> {
    let config = Config::infer().await.context("failed to find the API server: in a pod, or with KUBECONFIG?")?;
    Ok(Client::try_from(limited(config))?)
}

fn limited(mut config: Config) -> Config {
    (config.read_timeout, config.write_timeout) = (Some(SILENCE_TIMEOUT), Some(SILENCE_TIMEOUT));
    // The time in which a pooled connection was idle is not part of the silence.
    config.reset_reader_on_write = true;
    config
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::Api;
    use kube::api::ListParams;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use crate::runtime::cache::WATCH_SECONDS;

    #[tokio::test(start_paused = true)]
    async fn a_request_to_a_silent_api_server_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let client = Client::try_from(limited(Config::new(url.parse().unwrap()))).unwrap();
        let silent = tokio::spawn(async move {
            let _connection = listener.accept().await.unwrap();
            std::future::pending::<()>().await;
        });
        let listed = timeout(SILENCE_TIMEOUT * 2, Api::<Pod>::all(client).list(&ListParams::default())).await;
        assert!(listed.expect("the request has no end").is_err());
        silent.abort();
    }

    #[test]
    fn a_quiet_watch_ends_before_the_connection_counts_as_dead() {
        assert!(Duration::from_secs(WATCH_SECONDS.into()) < SILENCE_TIMEOUT);
    }
}
