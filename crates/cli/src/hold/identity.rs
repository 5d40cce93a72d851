//! The identity of this process.

use std::fs;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use kube::{Api, Client};

/// `<user>@<host>/<process ID>`, which is unique on one machine.
pub(crate) fn of_process() -> String {
    let user = std::env::var("USER").ok().filter(|user| !user.is_empty()).unwrap_or_else(|| "redlock".to_owned());
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "localhost" } else { host.trim() };
    format!("{user}@{host}/{}", std::process::id())
}

/// The user name of this process at the API server.
pub(crate) async fn whoami(client: &Client) -> Result<Option<String>, kube::Error> {
    let reviews = Api::<SelfSubjectReview>::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    Ok(answer.status.and_then(|status| status.user_info?.username))
}
