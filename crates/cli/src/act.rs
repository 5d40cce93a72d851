//! `redlock step-down` and `redlock break`: what people ask of a hold, by annotations.

use std::io::{self, IsTerminal as _};

use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::cluster::{Cluster, Problem};
use super::holding::whoami;
use super::list;
use super::objects::LockObject;
use super::output::{Answer, Paint, Printer, Tone};
use super::status::LockArgs;
use crate::console;
use redlock_api::{BREAK_ANNOTATION, BREAK_FORCE_ANNOTATION, STEP_DOWN_ANNOTATION};

/// So often a write is tried that names a version: the operator writes the status of a held lock often.
const ATTEMPTS: usize = 10;
/// Who writes.
const FIELD_MANAGER: &str = "redlock";

/// Which lock, and why.
#[derive(Debug, clap::Args)]
pub struct StepDownArgs {
    #[command(flatten)]
    lock: LockArgs,
    /// Why.
    #[arg(long, default_value = "redlock step-down")]
    reason: String,
}

/// Which lock, and why.
#[derive(Debug, clap::Args)]
pub struct BreakArgs {
    #[command(flatten)]
    lock: LockArgs,
    /// Why. The history of the lock and Events show it, with your name.
    #[arg(long, required = true)]
    reason: String,
    /// Delete the key at once. The holder may still work, so this gives up exclusion.
    #[arg(long)]
    force: bool,
    /// Do not ask whether --force is meant.
    #[arg(long, requires = "force")]
    yes: bool,
}

/// What was asked of a hold.
struct Asked {
    lock: LockObject,
    act: &'static str,
    then: String,
}

impl Answer for Asked {
    fn value(&self) -> Value {
        json!({"lock": self.lock.lock(), "name": self.lock.name_any(), "asked": self.act,
            "holder": {"identity": self.lock.who()}, "fencingToken": self.lock.status.fencing_token,
            "ttlMs": self.lock.spec.ttl.map(|ttl| ttl.get().as_millis())})
    }

    fn text(&self, paint: Paint, _: bool) -> String {
        let lock = paint.tone(Tone::Title, &self.lock.lock());
        format!("{lock}: {}\nSee it end: redlock wait {} --for free\n", self.then, self.lock.lock())
    }

    fn names(&self) -> Vec<String> {
        vec![format!("dlock/{}", self.lock.name_any())]
    }
}

/// Asks a holder to pass its lock on.
///
/// # Errors
/// If the lock is not held, or the API server refuses.
pub async fn step_down(args: StepDownArgs) -> anyhow::Result<()> {
    let cluster = Cluster::connect(&args.lock.cluster).await?;
    let lock = held(&cluster, &args.lock).await?;
    annotate(&cluster, &lock, &json!({STEP_DOWN_ANNOTATION: args.reason})).await?;
    let then = format!("{} is renewed no more, and the hold runs out within {}.", lock.who(), ttl(&lock));
    Printer::new(args.lock.output).show(&Asked { lock, act: "step-down", then })?;
    Ok(())
}

/// Takes a lock from its holder.
///
/// # Errors
/// If the lock is not held, the user does not mean it, or the API server refuses.
pub async fn break_lock(args: BreakArgs) -> anyhow::Result<()> {
    if args.reason.trim().is_empty() {
        return Err(Problem::new("--reason is empty", "Say why: the history of the lock shows it.").into());
    }
    let cluster = Cluster::connect(&args.lock.cluster).await?;
    let lock = held(&cluster, &args.lock).await?;
    if args.force && !args.yes {
        confirm(&lock)?;
    }
    let user = user(&cluster).await?;
    let annotation = if args.force { BREAK_FORCE_ANNOTATION } else { BREAK_ANNOTATION };
    annotate(&cluster, &lock, &json!({annotation: format!("{user}: {}", args.reason)})).await?;
    let who = lock.who();
    let (act, then) = if args.force {
        ("break-force", format!("the key is deleted at once, and {who} may still work. Make sure that it has stopped."))
    } else {
        let ttl = ttl(&lock);
        (
            "break",
            format!("{who} loses the lock: the hold runs out within {ttl}. Make sure that {who} has stopped by then."),
        )
    };
    Printer::new(args.lock.output).show(&Asked { lock, act, then })?;
    Ok(())
}

fn ttl(lock: &LockObject) -> String {
    lock.spec.ttl.map_or("one ttl".to_owned(), |ttl| ttl.to_string())
}

/// The one hold that is meant.
async fn held(cluster: &Cluster, args: &LockArgs) -> Result<LockObject, Problem> {
    let target = args.target(cluster)?;
    let found = list::find(cluster, &target).await?;
    only_hold(&target.to_string(), found.meant)
}

/// Pure: the one object that is held; with several slots the user has to name it.
fn only_hold(target: &str, locks: Vec<LockObject>) -> Result<LockObject, Problem> {
    let mut held: Vec<LockObject> = locks.into_iter().filter(LockObject::is_held).collect();
    match (held.pop(), held.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(Problem::new(format!("{target} is not held"), format!("See why: redlock explain {target}"))),
        (Some(last), false) => {
            let names: Vec<_> = held.iter().chain([&last]).map(|lock| format!("dlock/{}", lock.name_any())).collect();
            let next = format!("Name one of them: {}", names.join(", "));
            Err(Problem::new(format!("{target} has {} holders", names.len()), next))
        }
    }
}

fn confirm(lock: &LockObject) -> Result<(), Problem> {
    let stop = |what: &str| Problem::new(what, "Use --force --yes if you are sure that the holder has stopped.");
    if !io::stdin().is_terminal() {
        return Err(stop("--force gives up exclusion, and there is no terminal to ask at"));
    }
    let (holder, lock) = (lock.who(), lock.lock());
    console::write_error(&format!(
        "{holder} can still work, and another holder would get {lock} at once. Break it? [y/N] "
    ));
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    match (read, answer.trim()) {
        (Ok(_), "y" | "Y" | "yes") => Ok(()),
        _ => Err(stop("nothing was broken")),
    }
}

/// As whom the API server knows this user: the admission policy compares.
async fn user(cluster: &Cluster) -> Result<String, Problem> {
    let user = cluster.call("ask who you are", whoami(&cluster.client)).await?;
    user.ok_or_else(|| Problem::new("the API server does not say who you are", ""))
}

/// Annotates the hold that was seen, and no later one.
pub(super) async fn annotate(cluster: &Cluster, seen: &LockObject, annotations: &Value) -> Result<(), Problem> {
    let (namespace, name) = (seen.namespace().unwrap_or_default(), seen.name_any());
    let api = Api::<LockObject>::namespaced(cluster.client.clone(), &namespace);
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let mut version = seen.resource_version();
    for _ in 0..ATTEMPTS {
        let patch = json!({"metadata": {"resourceVersion": version, "uid": seen.uid(), "annotations": annotations}});
        let doing = format!("annotate DistributedLock {namespace}/{name}");
        match cluster.call(&doing, api.patch(&name, &params, &Patch::Merge(&patch))).await {
            Ok(_) => return Ok(()),
            Err(problem) if problem.code == Some(409) => {}
            Err(problem) => return Err(problem),
        }
        let now = cluster.call(&format!("read DistributedLock {namespace}/{name}"), api.get(&name)).await?;
        if !now.is_held() || now.status.fencing_token != seen.status.fencing_token || now.uid() != seen.uid() {
            let next = format!("Look at it again: redlock status {}", seen.lock());
            return Err(Problem::new(format!("{} has left {}: nothing was changed", seen.who(), seen.lock()), next));
        }
        version = now.resource_version();
    }
    Err(Problem::new(format!("DistributedLock {namespace}/{name} changes all the time"), "Run the command again."))
}

#[cfg(test)]
mod tests {
    use super::super::objects::fake::{held, waiting};
    use super::*;

    #[test]
    fn a_request_is_about_one_hold() {
        let one = only_hold("shop/reindex", vec![waiting("b", "Queued", "", Some(1)), held("a")]).unwrap();
        assert_eq!(one.name_any(), "a");
        let none = only_hold("shop/reindex", vec![waiting("b", "Queued", "", Some(1))]).unwrap_err();
        assert_eq!(none.to_string(), "shop/reindex is not held\nnext: See why: redlock explain shop/reindex");
        let two = only_hold("shop/reindex", vec![held("a"), held("b")]).unwrap_err();
        assert_eq!(two.to_string(), "shop/reindex has 2 holders\nnext: Name one of them: dlock/a, dlock/b");
    }

    #[test]
    fn what_was_asked_says_how_it_ends() {
        let asked = Asked { lock: held("a"), act: "break", then: "a loses the lock.".into() };
        assert_eq!(asked.value()["ttlMs"], 10_000);
        assert!(asked.text(Paint::PLAIN, false).ends_with("redlock wait shop/reindex --for free\n"));
    }
}
