//! `redlock quorum restart`: evicts the pod of a member, and waits until the member votes again.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::cluster::installation::{self, Leader};
use crate::cluster::objects::QuorumObject;
use crate::cluster::{Cluster, Problem};
use crate::output::format::{millis, span};
use crate::output::{Answer, Paint, Printer, Tone};
use crate::show::quorum::named;
use plan::{Plan, Progress, plan, progress};
mod plan;

pub use plan::RestartArgs;

use redlock_api::GoDuration;
use redlock_engine::time::{Clock as _, SystemClock};

/// Time between two readings of the quorum.
const PERIOD: Duration = Duration::from_secs(1);
/// Time limit for the end of one process and the start of the next, without the fence.
const START_LIMIT: Duration = Duration::from_secs(300);

/// The result of a restart.
struct RestartResult {
    member: String,
    quorum: String,
    votes: bool,
    took: Duration,
    observations: Observations,
    /// The token floor before the restart.
    tokens_before: Option<i64>,
}

/// The observations during a restart.
#[derive(Clone, Debug, Default)]
struct Observations {
    /// The duration of the member's fence.
    fenced: Duration,
    /// The smallest number of voting members.
    ///
    /// `voting` is the last number, and `members` the number of all voters.
    least: Option<usize>,
    voting: usize,
    members: usize,
    /// The token floor: no token of the quorum is above it.
    tokens: Option<i64>,
}

impl Observations {
    /// Adds one reading of the quorum. `since` is the time since the previous reading.
    fn observe(&mut self, quorum: &QuorumObject, progress: &Progress, since: Duration) {
        if matches!(progress, Progress::Fenced(_)) {
            self.fenced += since;
        }
        let counted = || quorum.status.members.iter().filter(|member| quorum.counts(&member.name));
        (self.members, self.voting) = (counted().count(), counted().filter(|member| member.votes()).count());
        self.least = Some(self.least.map_or(self.voting, |least| least.min(self.voting)));
        self.tokens = quorum.status.token_floor;
    }
}

impl Answer for RestartResult {
    fn value(&self) -> Value {
        let Observations { fenced, least, voting, members, tokens } = &self.observations;
        json!({
            "member": self.member, "quorum": self.quorum, "votes": self.votes, "tookMs": millis(self.took), "fencedMs": millis(*fenced),
            "members": members, "voting": voting, "leastVoting": least,
            "tokenFloor": tokens, "tokenFloorBefore": self.tokens_before,
        })
    }

    fn text(&self, paint: Paint, _: bool) -> String {
        let took = span(millis(self.took));
        let mut text = if self.votes {
            format!("{}: {} after {took}\n", self.member, paint.tone(Tone::Good, "votes again"))
        } else {
            let word = paint.tone(Tone::Bad, "does not vote yet");
            format!("{}: {word} after {took}. See why: redlock quorum status {}\n", self.member, self.quorum)
        };
        let Observations { fenced, least, voting, members, tokens } = &self.observations;
        text.push_str(&format!("  fence    {}\n", span(millis(*fenced))));
        let least = least.unwrap_or(*voting);
        text.push_str(&format!("  votes    {voting} of {members}, at the least {least}\n"));
        if let Some(tokens) = tokens {
            let is_back = self.tokens_before.is_some_and(|before| before > *tokens);
            let word = if is_back {
                paint.tone(Tone::Bad, "below the floor before")
            } else {
                "not below the floor before".into()
            };
            text.push_str(&format!("  tokens   floor {tokens}, {word}\n"));
        }
        text
    }

    fn names(&self) -> Vec<String> {
        vec![self.member.clone()]
    }
}

/// Restarts a member. Returns whether it votes again in time.
///
/// # Errors
/// If the member must not be restarted now, or the API server refuses a request.
pub async fn run(args: RestartArgs) -> anyhow::Result<bool> {
    let cluster = Cluster::connect(&args.cluster).await?;
    let printer = Printer::new(args.output);
    let (namespace, member) = named(Some(&args.member), &cluster.namespace);
    let member = member.unwrap_or_default();
    let quorum = quorum_of(&cluster, &namespace, member).await?;
    let plan = plan(&quorum, member, cluster.now())?;
    operator_works(&cluster, &quorum).await?;
    let max_ttl = quorum.status.max_ttl_in_force.or(quorum.spec.max_ttl).unwrap_or_default();
    let limit = args.timeout.map_or(max_ttl.get() + START_LIMIT, GoDuration::get);
    let begun = SystemClock.boottime();
    evict(&cluster, &namespace, &plan).await?;
    printer.print_line(&format!("{member}: pod {namespace}/{} is evicted", plan.pod))?;
    let mut observations = Observations::default();
    let following = follow(&cluster, printer, &quorum, member, &plan, &mut observations);
    let votes = tokio::time::timeout(limit, following).await.ok().transpose()?.is_some();
    let took = SystemClock.boottime().since(begun);
    let (member, tokens_before) = (member.to_owned(), quorum.status.token_floor);
    printer.show(&RestartResult { member, quorum: quorum.full_name(), votes, took, observations, tokens_before })?;
    Ok(votes)
}

async fn quorum_of(cluster: &Cluster, namespace: &str, member: &str) -> Result<QuorumObject, Problem> {
    let quorums: Vec<QuorumObject> = cluster.list(Some(namespace), "").await?;
    let has = |quorum: &QuorumObject| quorum.status.members.iter().any(|known| known.name == member);
    quorums.into_iter().find(has).ok_or_else(|| {
        let what = format!("no RedisQuorum in namespace {namespace} has a member {member}");
        Problem::new(what, "See which exist: redlock quorum status -A")
    })
}

/// Checks that an operator runs.
///
/// Without an operator the member would not vote again, and the status can be old.
async fn operator_works(cluster: &Cluster, quorum: &QuorumObject) -> Result<(), Problem> {
    let Some(operator) = &quorum.status.operator else {
        let next = "Check that an operator runs: redlock doctor";
        return Err(Problem::new(format!("no operator serves RedisQuorum {}", quorum.full_name()), next));
    };
    match installation::leader(cluster, operator).await? {
        // A forbidden Lease is no reason to refuse: the eviction depends on the readiness of the pods.
        Leader::Works(_) | Leader::Hidden => Ok(()),
        leader => {
            let text = leader.text(operator);
            Err(Problem::new(text.trim_end_matches('.'), "Mend the operator first: the member would not vote again."))
        }
    }
}

/// Evicts the pod. The quorum's PodDisruptionBudget allows one eviction at a time.
///
/// A member without a vote is not ready, so the budget counts its pod as unavailable.
async fn evict(cluster: &Cluster, namespace: &str, plan: &Plan) -> Result<(), Problem> {
    let pods = cluster.api::<Pod>(Some(namespace));
    // kube's own call loses the precondition, because it writes the options under another name than the API's.
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": plan.pod, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": plan.pod_uid}},
    });
    let params = PostParams::default();
    let evicted = pods.create_subresource::<Value, Value>("eviction", &plan.pod, &params, &eviction);
    let doing = format!("evict pod {namespace}/{}", plan.pod);
    cluster.call(&doing, evicted).await.map(drop).map_err(|mut problem| {
        if problem.code == Some(429) {
            problem.next = "Another member is out at this moment. Wait until all vote: redlock quorum status".into();
        }
        problem
    })
}

/// Follows the restart until the member votes again. On a terminal the last line counts down.
async fn follow(
    cluster: &Cluster,
    printer: Printer,
    quorum: &QuorumObject,
    member: &str,
    plan: &Plan,
    observations: &mut Observations,
) -> anyhow::Result<()> {
    let quorums = cluster.api::<QuorumObject>(quorum.namespace().as_deref());
    let is_live = printer.is_terminal && !printer.is_for_programs();
    let (mut ticks, mut reported, mut observed) = (interval(PERIOD), None, SystemClock.boottime());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let observed_quorum = match cluster.call("read the RedisQuorum", quorums.get(&quorum.name_any())).await {
            Ok(observed_quorum) => observed_quorum,
            Err(problem) if matches!(problem.code, Some(401 | 403 | 404)) => return Err(problem.into()),
            // Any other error is not reported: the next reading replaces it.
            Err(_) => continue,
        };
        let progress = progress(&observed_quorum, member, plan, cluster.now());
        let now = SystemClock.boottime();
        observations.observe(&observed_quorum, &progress, now.since(std::mem::replace(&mut observed, now)));
        if progress == Progress::Votes {
            return if is_live { printer.write("\r\u{1b}[K") } else { Ok(()) };
        }
        if reported != Some(progress.text()) {
            let line = format!("{member}: {}", progress.text());
            if is_live {
                printer.write(&format!("\r\u{1b}[K{line}\n"))?
            } else {
                printer.print_line(&line)?
            }
            reported = Some(progress.text());
        }
        if let (true, Progress::Fenced(Some(left))) = (is_live, &progress) {
            printer.write(&format!("\r\u{1b}[K  votes in {}", span(*left)))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fake::failure;
    use crate::cluster::objects::fake::{now, quorum};
    use crate::output::OutputArgs;

    #[tokio::test(start_paused = true)]
    async fn a_restart_whose_quorum_cannot_be_read_has_no_answer() {
        for code in [401, 403, 404] {
            let cluster = Cluster::answering(move |_| failure(code, "Failed"));
            let (quorum, printer) = (quorum(["Admitted"; 3]), Printer::new(OutputArgs::default()));
            let (plan, mut observations) = (plan(&quorum, "main-0", now()).unwrap(), Observations::default());
            let following = follow(&cluster, printer, &quorum, "main-0", &plan, &mut observations);
            let followed = tokio::time::timeout(START_LIMIT, following).await.expect("an end");
            assert_eq!(followed.unwrap_err().downcast::<Problem>().unwrap().code, Some(code));
        }
    }

    #[test]
    fn a_restart_reports_the_fence_the_votes_and_the_tokens() {
        let mut observations = Observations::default();
        let (second, mut observed_quorum) = (Duration::from_secs(1), quorum(["Admitted", "Admitted", "Fenced"]));
        observed_quorum.status.token_floor = Some(7);
        observations.observe(&observed_quorum, &Progress::Starting, second);
        observations.observe(&observed_quorum, &Progress::Fenced(None), 12 * second);
        let mut last = quorum(["Admitted"; 3]);
        last.status.token_floor = Some(9);
        observations.observe(&last, &Progress::Votes, second);
        let restarted = |tokens_before| RestartResult {
            member: "main-2".into(),
            quorum: "a/main".into(),
            votes: true,
            took: 14 * second,
            observations: observations.clone(),
            tokens_before,
        };
        assert_eq!(
            restarted(Some(7)).text(Paint::PLAIN, false),
            "main-2: votes again after 14s\n  fence    12s\n  votes    3 of 3, at the least 2\n  tokens   floor 9, not below the floor before\n"
        );
        assert!(restarted(Some(10)).text(Paint::PLAIN, false).contains("below the floor before"));
        let value = restarted(Some(7)).value();
        assert_eq!(
            (&value["fencedMs"], &value["leastVoting"], &value["tokenFloor"]),
            (&12_000.into(), &2.into(), &9.into())
        );
    }
}
