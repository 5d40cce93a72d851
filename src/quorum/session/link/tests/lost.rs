//! Secrets that were lost, and others in their target.

use super::*;
use crate::time::UnixMillis;

#[tokio::test]
async fn a_refused_password_differs_from_a_silent_process() {
    let (plan, users) = plan();
    let (lost, replacement) = (Auth::random(), Auth::replacement(UnixMillis(1)));
    let mut member = Member::new(&plan, &lost);
    let link = linked(&member, &plan, &users, &lost).await;
    assert!(!link.state().is_refused_by(Some("pod-1")));

    let target = |auth: &Auth, pod: &str| place(&link, pod, &member, (&plan, &users, auth));
    target(&replacement, "pod-1");
    let state = until(&link, |state| state.is_refused_by(Some("pod-1"))).await;
    assert!(!state.processes.answers() && !state.is_refused_by(Some("pod-2")) && !state.is_refused_by(None));
    // The secrets are known again, because the Secret was restored in time.
    target(&lost, "pod-1");
    until(&link, |state| state.processes.answers() && !state.is_refused_by(Some("pod-1"))).await;
    // An answer from the process of another pod is no answer from this pod.
    target(&replacement, "pod-2");
    until(&link, |state| state.is_refused_by(Some("pod-2"))).await;
    member.kill().await;
    until(&link, |state| state.failure.is_some() && !state.is_refused_by(Some("pod-2"))).await;
}
