//! The client of the API server, which ends a request on a dead connection.

use anyhow::Context as _;
use kube::{Client, Config};

use crate::api::requests::without_secrets;
use crate::api::watches::limited;

/// A client with the service account of the pod, or with KUBECONFIG.
///
/// # Errors
/// If there is neither, or the configuration is not valid.
pub(super) async fn client() -> anyhow::Result<Client> {
    let config = Config::infer().await.context("failed to find the API server: in a pod, or with KUBECONFIG?")?;
    Ok(Client::try_from(limited(config)).map_err(without_secrets)?)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::Api;
    use kube::api::ListParams;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use crate::api::watches::SILENCE_TIMEOUT;

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
}
