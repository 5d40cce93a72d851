//! `redlock drill`: restarts a member, and shows that a lock on its quorum stays held.

use std::time::Duration;

use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::super::cluster::Problem;
use super::super::output::{Answer, Cell, Paint, Table, Tone};
use super::super::seen::{SeenLock, SeenMember, SeenQuorum};
use super::super::words::{between, span};
use super::restart::{Progress, RestartArgs, progress};
use super::run::{Ready, evict, ticks};
use super::{fence, is_for_programs};
use crate::api::{DistributedLock, MilliTime};
use crate::time::{Boottime, Clock as _, SystemClock};

/// Of the lock, unless the quorum's `maxTTL` is shorter.
const TTL: Duration = Duration::from_secs(3);
/// The lock has to be held within this time.
const HELD_LIMIT: Duration = Duration::from_secs(30);

/// What one look shows.
#[derive(Clone, Debug)]
struct Look {
    after: i64,
    members: Vec<SeenMember>,
    /// Nothing: it is gone.
    lock: Option<SeenLock>,
    now: MilliTime,
}

impl Look {
    fn token(&self) -> Option<i64> {
        self.lock.as_ref().filter(|lock| lock.is_held())?.status.fencing_token
    }

    fn valid(&self) -> Option<i64> {
        Some(between(self.now, self.lock.as_ref()?.valid_until()?).max(0))
    }

    fn votes(&self) -> String {
        self.lock.as_ref().and_then(|lock| lock.status.votes.clone()).unwrap_or_default()
    }

    fn value(&self) -> Value {
        let member = |member: &SeenMember| json!({"name": member.name, "state": member.state, "fencedForMs": fence(member, self.now)});
        json!({"afterMs": self.after, "members": self.members.iter().map(member).collect::<Vec<_>>(),
            "held": self.token().is_some(), "votes": self.votes(), "fencingToken": self.token(), "validForMs": self.valid()})
    }

    fn cells(&self) -> Vec<Cell> {
        let member = |member: &SeenMember| match fence(member, self.now) {
            Some(left) => format!("{}({})", member.state, span(left)),
            None => member.state.clone(),
        };
        let members: Vec<_> = self.members.iter().map(member).collect();
        let token = self.token().map_or_else(|| Cell::toned(Tone::Bad, "lost"), |token| token.to_string().into());
        vec![
            span(self.after).into(),
            members.join(" ").into(),
            self.votes().into(),
            token,
            self.valid().map(span).unwrap_or_default().into(),
        ]
    }
}

/// What came of a drill.
struct Drilled {
    member: String,
    kept: Option<i64>,
    votes: bool,
    took: i64,
}

impl Answer for Drilled {
    fn value(&self) -> Value {
        json!({"member": self.member, "kept": self.kept.is_some(), "votes": self.votes, "tookMs": self.took})
    }

    fn text(&self, paint: Paint, _: bool) -> String {
        let votes = if self.votes { "votes again" } else { "does not vote yet" };
        let kept = match self.kept {
            Some(token) => paint.tone(Tone::Good, &format!("the lock was held throughout with token {token}")),
            None => paint.tone(Tone::Bad, "the lock was lost. See why: redlock doctor"),
        };
        format!("{}: {votes} after {}; {kept}\n", self.member, span(self.took))
    }

    fn names(&self) -> Vec<String> {
        vec![self.member.clone()]
    }
}

/// Restarts a member; whether it votes again in time and the lock was held throughout.
///
/// # Errors
/// If it may not be restarted now, or the API server refuses.
pub async fn run(args: RestartArgs) -> anyhow::Result<bool> {
    let ready = Ready::new(&args).await?;
    let locks = Api::<DistributedLock>::namespaced(ready.cluster.client.clone(), &ready.namespace);
    let lock = claim(&ready)?;
    let name = lock.name_any();
    let object = format!("DistributedLock {}/{name}", ready.namespace);
    ready.cluster.call(&format!("create {object}"), locks.create(&PostParams::default(), &lock)).await?;
    let drilled = drill(&ready, &name).await;
    // Also after a failure; maxHold ends it if this process is killed.
    let params = DeleteParams::default();
    let deleted = ready.cluster.call(&format!("delete {object}"), locks.delete(&name, &params)).await;
    let drilled = drilled?;
    deleted?;
    if is_for_programs(ready.printer.format()) {
        ready.printer.next_value(&drilled.value())?;
    } else {
        ready.printer.show(&drilled)?;
    }
    Ok(drilled.votes && drilled.kept.is_some())
}

/// With a key that no other lock has, and an end of its own.
fn claim(ready: &Ready) -> Result<DistributedLock, Problem> {
    let max_ttl = ready.quorum.spec.max_ttl.unwrap_or_default().get();
    let (name, hold) = (format!("drill-{:08x}", rand::random::<u32>()), (ready.limit + HELD_LIMIT * 2).as_secs());
    let lock = json!({
        "apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock", "metadata": {"name": name},
        "spec": {"key": name, "ttl": format!("{}ms", TTL.min(max_ttl).as_millis()), "maxHold": format!("{hold}s"), "waitTimeout": "1m",
            "ttlAfterFinished": "1m", "quorumRef": {"name": ready.quorum.name_any()}, "claim": {"identity": "redlock drill"}},
    });
    serde_json::from_value(lock).map_err(|error| Problem::new(format!("failed to make a lock: {error}"), ""))
}

/// Shows all looks until the member votes again.
async fn drill(ready: &Ready, name: &str) -> anyhow::Result<Drilled> {
    let first = tokio::time::timeout(HELD_LIMIT, held(ready, name)).await.map_err(|_elapsed| {
        let what = format!("DistributedLock {}/{name} was not held within {} s", ready.namespace, HELD_LIMIT.as_secs());
        Problem::new(
            what,
            format!("Nothing was restarted. See why: redlock quorum status {}", ready.quorum.full_name()),
        )
    })?;
    let (token, begun) = (first.token(), SystemClock.boottime());
    let mut widths = show(ready, &first, None)?;
    evict(&ready.cluster, &ready.namespace, &ready.plan).await?;
    let (mut kept, mut ticks) = (token, ticks());
    let votes = loop {
        ticks.tick().await;
        let after = millis(begun);
        if u128::try_from(after).is_ok_and(|after| after > ready.limit.as_millis()) {
            break false;
        }
        // The next look tells more than an error does.
        let Ok((quorum, look)) = look(ready, name, after).await else { continue };
        widths = show(ready, &look, Some(&widths))?;
        kept = kept.filter(|kept| look.token() == Some(*kept));
        if progress(&quorum, &ready.member, &ready.plan, look.now) == Progress::Votes {
            break true;
        }
    };
    Ok(Drilled { member: ready.member.clone(), kept, votes, took: millis(begun) })
}

fn millis(begun: Boottime) -> i64 {
    i64::try_from(SystemClock.boottime().since(begun).as_millis()).unwrap_or(i64::MAX)
}

async fn held(ready: &Ready, name: &str) -> Look {
    let mut ticks = ticks();
    loop {
        ticks.tick().await;
        if let Ok((_, look)) = look(ready, name, 0).await
            && look.token().is_some()
        {
            return look;
        }
    }
}

async fn look(ready: &Ready, name: &str, after: i64) -> Result<(SeenQuorum, Look), Problem> {
    let cluster = &ready.cluster;
    let quorums = Api::<SeenQuorum>::namespaced(cluster.client.clone(), &ready.namespace);
    let locks = Api::<SeenLock>::namespaced(cluster.client.clone(), &ready.namespace);
    let quorum = cluster.call("read the RedisQuorum", quorums.get(&ready.quorum.name_any())).await?;
    let lock = cluster.call("read the DistributedLock", locks.get_opt(name)).await?;
    let members = quorum.status.members.clone();
    Ok((quorum, Look { after, members, lock, now: cluster.now() }))
}

fn show(ready: &Ready, look: &Look, widths: Option<&[usize]>) -> anyhow::Result<Vec<usize>> {
    let mut table = Table::new(vec!["TIME", "MEMBERS", "VOTES", "TOKEN", "VALID"]);
    table.push(look.cells());
    let wider = table.widths(widths.unwrap_or_default());
    match widths {
        _ if is_for_programs(ready.printer.format()) => ready.printer.next_value(&look.value())?,
        None => ready.printer.write(&table.render(ready.printer.paint()))?,
        Some(_) => ready.printer.write(&table.render_rows(&wider, ready.printer.paint()))?,
    }
    Ok(wider)
}

#[cfg(test)]
mod tests {
    use super::super::super::seen::fake::{held, now, quorum, waiting};
    use super::*;

    #[test]
    fn a_look_shows_fence_votes_and_token() {
        let members = quorum(["Admitted", "Admitted", "Fenced"]).status.members;
        let look = Look { after: 4_000, members, lock: Some(held("a")), now: now() };
        let mut table = Table::new(vec!["TIME", "MEMBERS", "VOTES", "TOKEN", "VALID"]);
        table.push(look.cells());
        let text = table.render(Paint(false));
        assert!(text.ends_with("4.0s   Admitted Admitted Fenced(12s)   3/3     42      8.2s\n"), "{text}");
        assert_eq!((&look.value()["held"], &look.value()["members"][2]["fencedForMs"]), (&json!(true), &json!(12_000)));
        let lost = Look { lock: Some(waiting("a", "Expired", "", None)), ..look };
        assert_eq!((lost.token(), &lost.value()["held"]), (None, &json!(false)));
    }
}
