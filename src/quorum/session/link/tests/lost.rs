//! Secrets that were lost, and others in their target.

use super::*;
use crate::time::UnixMillis;

#[tokio::test]
async fn a_process_that_refuses_the_password_is_told_from_one_that_is_away() {
    let (plan, users) = plan();
    let (lost, anew) = (Auth::random(), Auth::anew(UnixMillis(1)));
    let mut member = Member::new(&plan, &lost);
    let (link, _end) = linked(&member, &plan, &users, &lost).await;
    assert!(!link.view().is_refused_by(Some("pod-1")));

    let target = |auth: &Auth, pod: &str| {
        link.place_at(Some((pod.into(), member.address())), None, Some(auth), plan.lists.epoch, &users);
    };
    target(&anew, "pod-1");
    let view = until(&link, |view| view.is_refused_by(Some("pod-1"))).await;
    assert!(!view.processes.answers() && !view.is_refused_by(Some("pod-2")) && !view.is_refused_by(None));
    // Known again: the Secret was restored in time.
    target(&lost, "pod-1");
    until(&link, |view| view.processes.answers() && !view.is_refused_by(Some("pod-1"))).await;
    // What another pod's process said is not said of this one.
    target(&anew, "pod-2");
    until(&link, |view| view.is_refused_by(Some("pod-2"))).await;
    member.kill().await;
    until(&link, |view| view.failure.is_some() && !view.is_refused_by(Some("pod-2"))).await;
}
