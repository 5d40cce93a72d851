//! Whose quorum it is: the leader writes its installation into the status before it does anything for a quorum, and leaves those of
//! others alone.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::PostParams;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt};
use parking_lot::Mutex;

use super::Error;
use crate::api::{INSTALLATION_ANNOTATION, RedisQuorum};
use crate::quorum::model::installation::{LeaseSight, Look, Service, decide};
use crate::runtime::context::Context;
use crate::runtime::requests::request;
use crate::time::Boottime;

/// Between two looks at the Lease of another installation.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// After a longer time without a look the count begins again.
/// A replica that could not read the Lease (an API server that was away, a frozen process) does not know that it was
/// not renewed, and the Lease's leader could not renew it, either.
const BLIND: Duration = Duration::from_secs(40);

/// How the Leases of other installations were last seen.
#[derive(Default)]
pub(super) struct Others(HashMap<String, Seen>);

struct Seen {
    lease: Option<LeaseSpec>,
    since: Boottime,
    last: Boottime,
}

impl Others {
    /// Takes a look at the Lease of an installation; `None`: it is not there.
    fn see(&mut self, installation: &str, lease: Option<LeaseSpec>, now: Boottime) -> LeaseSight {
        let known = self.0.entry(installation.to_owned());
        let known = known.or_insert_with(|| Seen { lease: lease.clone(), since: now, last: now });
        if known.lease != lease || now.since(known.last) > BLIND {
            (known.lease, known.since) = (lease, now);
        }
        known.last = now;
        known.sight()
    }

    /// The last look, if that was a moment ago: a quorum of others may change as often as it likes.
    fn fresh(&self, installation: &str, now: Boottime) -> Option<LeaseSight> {
        self.0.get(installation).filter(|seen| now.since(seen.last) < LOOK_AGAIN / 2).map(Seen::sight)
    }
}

impl Seen {
    fn sight(&self) -> LeaseSight {
        let so_long = self.last.since(self.since);
        if self.lease.is_some() { LeaseSight::Unchanged(so_long) } else { LeaseSight::Absent(so_long) }
    }
}

/// `None`: this installation looks after the quorum. Otherwise when to ask again.
pub(super) async fn leave_to_others(
    context: &Context,
    others: &Mutex<Others>,
    quorum: &RedisQuorum,
) -> Result<Option<Action>, Error> {
    let settings = &context.replica.settings;
    let (me, in_scope) =
        (settings.installation.as_str(), settings.quorums.contains(&quorum.namespace().unwrap_or_default()));
    let recorded = quorum.status.as_ref().and_then(|status| status.installation.as_deref());
    let annotated = quorum.annotations().get(INSTALLATION_ANNOTATION).map(String::as_str);
    let lease = match recorded.filter(|recorded| in_scope && *recorded != me) {
        Some(other) => look_at(context, others, other).await,
        None => LeaseSight::Unknown,
    };
    let name = ObjectRef::from_obj(quorum);
    let installation = match decide(&Look { me, in_scope, recorded, annotated, lease }) {
        Service::Serve => return Ok(None),
        Service::Leave => return Ok(Some(Action::requeue(LOOK_AGAIN))),
        Service::Take => {
            tracing::info!(quorum = %name, before = recorded, ?lease, "this installation looks after the quorum from now on");
            Some(me.to_owned())
        }
        Service::Release => {
            tracing::info!(quorum = %name, "its namespace is left to other installations: the quorum is theirs to take");
            None
        }
    };
    // With the version on which it was decided: of two installations one is first. Its watch brings the quorum here again.
    let mut next = quorum.clone();
    next.status.get_or_insert_default().installation = installation;
    let api: Api<RedisQuorum> = Api::namespaced(context.client.clone(), &quorum.namespace().unwrap_or_default());
    request(api.replace_status(&quorum.name_any(), &PostParams::default(), &next)).await?;
    Ok(Some(Action::requeue(LOOK_AGAIN)))
}

async fn look_at(context: &Context, others: &Mutex<Others>, installation: &str) -> LeaseSight {
    let Some((namespace, name)) = installation.split_once('/') else { return LeaseSight::Unknown };
    let now = context.clock.boottime();
    if let Some(sight) = others.lock().fresh(installation, now) {
        return sight;
    }
    let leases: Api<Lease> = Api::namespaced(context.client.clone(), namespace);
    match request(leases.get_opt(name)).await {
        Ok(lease) => others.lock().see(installation, lease.map(|lease| lease.spec.unwrap_or_default()), now),
        Err(error) if error.refusal(&[403]).is_some() => LeaseSight::Forbidden,
        Err(_no_answer) => LeaseSight::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_counts_from_its_last_change_and_from_when_it_was_missed() {
        let at = |seconds| Boottime::new(Duration::from_secs(seconds));
        let lease = |holder: &str| Some(LeaseSpec { holder_identity: Some(holder.into()), ..LeaseSpec::default() });
        let mut others = Others::default();
        assert_eq!(others.see("a/b", lease("x"), at(0)), LeaseSight::Unchanged(Duration::ZERO));
        assert_eq!(others.see("a/b", lease("x"), at(20)), LeaseSight::Unchanged(Duration::from_secs(20)));
        assert_eq!(others.see("a/b", lease("x"), at(50)), LeaseSight::Unchanged(Duration::from_secs(50)));
        assert_eq!(others.fresh("a/b", at(52)), Some(LeaseSight::Unchanged(Duration::from_secs(50))));
        assert_eq!((others.fresh("a/b", at(56)), others.fresh("c/d", at(52))), (None, None));
        assert_eq!(others.see("a/b", lease("y"), at(60)), LeaseSight::Unchanged(Duration::ZERO));
        assert_eq!(others.see("a/b", None, at(70)), LeaseSight::Absent(Duration::ZERO));
        assert_eq!(others.see("a/b", None, at(100)), LeaseSight::Absent(Duration::from_secs(30)));
        assert_eq!(others.see("a/b", lease("y"), at(110)), LeaseSight::Unchanged(Duration::ZERO), "it is there again");
    }

    #[test]
    fn time_in_which_the_lease_could_not_be_read_does_not_count() {
        let at = |seconds| Boottime::new(Duration::from_secs(seconds));
        let mut others = Others::default();
        for (now, so_long) in [(0, 0), (30, 30), (630, 0), (640, 10)] {
            let sight = others.see("a/b", Some(LeaseSpec::default()), at(now));
            assert_eq!(sight, LeaseSight::Unchanged(Duration::from_secs(so_long)), "at {now} s");
        }
        assert_eq!(others.see("c/d", None, at(0)), LeaseSight::Absent(Duration::ZERO));
        assert_eq!(others.see("c/d", None, at(61)), LeaseSight::Absent(Duration::ZERO));
    }
}
