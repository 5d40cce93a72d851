//! Annotates one hold, as `redlock step-down`, `redlock break` and `redlock top` do.

use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::objects::LockObject;
use crate::cluster::{Cluster, Problem};
use crate::hold::whoami;
use crate::output::{Answer, Paint, Tone};
use crate::show::status::LockArgs;

/// Maximum number of attempts to write an annotation.
///
/// An attempt fails if the operator has written the status in between, because the version of the object changed.
const ATTEMPTS: usize = 10;
/// Field manager of the annotations.
const FIELD_MANAGER: &str = "redlock";

/// The output after a hold was annotated.
pub(super) struct AnnotatedHold {
    pub(super) lock: LockObject,
    pub(super) act: &'static str,
    pub(super) then: String,
}

impl Answer for AnnotatedHold {
    fn value(&self) -> Value {
        json!({"lock": self.lock.lock(), "name": self.lock.name_any(), "asked": self.act,
            "holder": {"identity": self.lock.who()}, "fencingToken": self.lock.status.fencing_token,
            "ttlMs": self.lock.spec.ttl.get().as_millis()})
    }

    fn text(&self, paint: Paint, _: bool) -> String {
        let lock = paint.tone(Tone::Title, &self.lock.lock());
        format!("{lock}: {}\nSee it end: redlock wait {} --for free\n", self.then, argument(&self.lock))
    }

    fn names(&self) -> Vec<String> {
        vec![format!("dlock/{}", self.lock.name_any())]
    }
}

/// Reads the one held object of the target in the arguments.
pub(super) async fn held(args: &LockArgs) -> Result<(Cluster, LockObject), Problem> {
    let (cluster, target, found) = args.find().await?;
    Ok((cluster, only_hold(&target.to_string(), found.meant)?))
}

/// Returns the only held object. If several slots are held, the user must name one object. Pure.
fn only_hold(target: &str, locks: Vec<LockObject>) -> Result<LockObject, Problem> {
    let mut held: Vec<LockObject> = locks.into_iter().filter(LockObject::is_held).collect();
    match (held.pop(), held.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(Problem::new(format!("{target} is not held"), format!("See why: redlock explain {target}"))),
        (Some(last), false) => {
            let names: Vec<_> = held.iter().chain([&last]).map(argument).collect();
            let next = format!("Name one of them: {}", names.join(", "));
            Err(Problem::new(format!("{target} has {} holders", names.len()), next))
        }
    }
}

/// The arguments of a command for this object.
fn argument(lock: &LockObject) -> String {
    format!("dlock/{} -n {}", lock.name_any(), lock.namespace().unwrap_or_default())
}

/// Reads the user's name from the API server. The history of the lock contains it.
///
/// The admission policy compares this name with the annotations that break a lock.
async fn user(cluster: &Cluster) -> Result<String, Problem> {
    let user = cluster.call("ask who you are", whoami(&cluster.client)).await?;
    user.username.ok_or_else(|| Problem::new("the API server did not report your user name", ""))
}

/// Annotates the observed hold with the user and a reason. A later hold of the same object stays unchanged.
pub(crate) async fn annotate(
    cluster: &Cluster,
    observed: &LockObject,
    annotation: &str,
    reason: &str,
) -> Result<(), Problem> {
    let user = user(cluster).await?;
    let annotations = json!({annotation: format!("{user}: {reason}")});
    let (namespace, name) = (observed.namespace().unwrap_or_default(), observed.name_any());
    let api = cluster.api::<LockObject>(Some(&namespace));
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let mut version = observed.resource_version();
    for _ in 0..ATTEMPTS {
        let patch =
            json!({"metadata": {"resourceVersion": version, "uid": observed.uid(), "annotations": annotations}});
        let doing = format!("annotate DistributedLock {namespace}/{name}");
        match cluster.call(&doing, api.patch(&name, &params, &Patch::Merge(&patch))).await {
            Ok(_) => return Ok(()),
            Err(problem) if problem.code == Some(409) => {}
            Err(problem) => return Err(problem),
        }
        let now = cluster.call(&format!("read DistributedLock {namespace}/{name}"), api.get(&name)).await?;
        if !now.is_held() || now.status.fencing_token != observed.status.fencing_token || now.uid() != observed.uid() {
            let what = format!("{:?} has left {}: nothing was changed", observed.who(), observed.lock());
            return Err(Problem::new(what, format!("Look at it again: redlock status {}", observed.lock())));
        }
        version = now.resource_version();
    }
    Err(Problem::new(format!("DistributedLock {namespace}/{name} changes all the time"), "Run the command again."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::objects::fake::{held, waiting};

    #[test]
    fn a_request_is_about_one_hold() {
        let one = only_hold("shop/reindex", vec![waiting("b", "Queued", "", Some(1)), held("a")]).unwrap();
        assert_eq!(one.name_any(), "a");
        let none = only_hold("shop/reindex", vec![waiting("b", "Queued", "", Some(1))]).unwrap_err();
        assert_eq!(none.to_string(), "shop/reindex is not held\nnext: See why: redlock explain shop/reindex");
        let two = only_hold("shop/reindex", vec![held("a"), held("b")]).unwrap_err();
        assert_eq!(
            two.to_string(),
            "shop/reindex has 2 holders\nnext: Name one of them: dlock/a -n shop, dlock/b -n shop"
        );
    }

    #[test]
    fn an_annotated_hold_names_its_end() {
        let annotated = AnnotatedHold { lock: held("a"), act: "break", then: "a loses the lock.".into() };
        assert_eq!(annotated.value()["ttlMs"], 10_000);
        assert!(annotated.text(Paint::PLAIN, false).ends_with("redlock wait dlock/a -n shop --for free\n"));
    }
}
