//! The identity of this process.

use std::fs;

use k8s_openapi::api::authentication::v1::{SelfSubjectReview, UserInfo};
use kube::api::PostParams;
use kube::{Api, Client};

/// `<user>@<host>/<process ID>`, which is unique on one machine.
pub(crate) fn of_process() -> String {
    let user = std::env::var("USER").ok().filter(|user| !user.is_empty()).unwrap_or_else(|| "redlock".to_owned());
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "localhost" } else { host.trim() };
    format!("{user}@{host}/{}", std::process::id())
}

/// The key under which the API server adds the UID of a token's pod to the user.
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";

/// The user of this process at the API server.
pub(crate) async fn whoami(client: &Client) -> Result<UserInfo, kube::Error> {
    let reviews = Api::<SelfSubjectReview>::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    Ok(answer.status.and_then(|status| status.user_info).unwrap_or_default())
}

/// Whether the requests of this user have a token that is bound to the pod with this UID.
pub(crate) fn is_of_pod(user: &UserInfo, uid: &str) -> bool {
    let uids = user.extra.as_ref().and_then(|extra| extra.get(POD_UID));
    uids.is_some_and(|uids| uids.iter().any(|one| one == uid))
}
