//! `redlock quorum status`: members, fences, clocks and votes.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::cluster::objects::{QuorumMember, QuorumObject};
use crate::cluster::{Cluster, Problem, ScopeArgs, any_of};
use crate::output::format::{between, span};
use crate::output::{Answer, Cell, OutputArgs, Paint, Printer, Table, Tone};
use crate::show::explain::{State, member_text, of_quorum};
use redlock_api::MilliTime;
use redlock_api::conditions::{CommonReason, QuorumCondition, find_condition};

/// Time between two requests of `--watch`.
const PERIOD: Duration = Duration::from_secs(1);

/// Which quorums, and the form of the output.
#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// The RedisQuorum, as `<name>` or `<namespace>/<name>`. Default: all of the namespace.
    name: Option<String>,
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Print again after each change and, on a terminal, count fences down. Ends with Ctrl-C.
    #[arg(short, long)]
    watch: bool,
}

/// Quorums at one moment.
pub struct QuorumList {
    /// The quorums.
    pub quorums: Vec<QuorumObject>,
    /// The time of the list.
    pub now: MilliTime,
    /// The namespace or the cluster, in words.
    pub place: String,
}

impl Answer for QuorumList {
    fn value(&self) -> Value {
        json!({"items": self.quorums.iter().map(|quorum| value(quorum, self.now)).collect::<Vec<_>>()})
    }

    fn text(&self, paint: Paint, wide: bool) -> String {
        if self.quorums.is_empty() {
            return format!("No quorums in {}.\n", self.place);
        }
        self.quorums.iter().map(|quorum| text(quorum, self.now, paint, wide)).collect::<Vec<_>>().join("\n")
    }

    fn names(&self) -> Vec<String> {
        self.quorums.iter().map(|quorum| format!("rq/{}", quorum.name_any())).collect()
    }
}

/// The quorum as a value for programs.
fn value(quorum: &QuorumObject, now: MilliTime) -> Value {
    let status = &quorum.status;
    let member = |member: &QuorumMember| {
        json!({
            "name": member.name, "state": member.state, "reason": member.reason, "message": member.message,
            "votes": quorum.has_vote(member), "podName": member.pod_name, "nodeName": member.node_name,
            "address": member.address, "runID": member.run_id, "rejoinAt": member.rejoin_at,
            "fencedForMs": fence(member, now), "admittedAt": member.admitted_at,
            "external": member.external.is_some(),
        })
    };
    let ready = find_condition(&status.conditions, QuorumCondition::Ready);
    let link = of_quorum(quorum, now);
    json!({
        "namespace": quorum.namespace(), "name": quorum.name_any(), "default": quorum.is_default(),
        "installation": quorum.spec.installation, "operator": status.operator, "voting": quorum.voting(), "quorum": status.quorum,
        "memberCount": status.voters.len(), "grantsLocks": link.state == State::Fine,
        "reason": ready.map(|ready| &ready.reason), "message": ready.map(|ready| &ready.message),
        "maxTTLMs": quorum.spec.max_ttl.map(|ttl| ttl.get().as_millis()),
        "members": status.members.iter().map(member).collect::<Vec<_>>(),
        "conditions": status.conditions,
    })
}

/// The remaining fence of a member, in milliseconds.
pub(crate) fn fence(member: &QuorumMember, now: MilliTime) -> Option<i64> {
    member.rejoin_at.filter(|_| !member.votes()).map(|at| between(now, at).max(0))
}

fn text(quorum: &QuorumObject, now: MilliTime, paint: Paint, wide: bool) -> String {
    let link = of_quorum(quorum, now);
    let tone = match link.state {
        State::Fine if quorum.all_vote() => Tone::Good,
        State::Fine | State::Waits => Tone::Waiting,
        State::Stops | State::Unknown => Tone::Bad,
    };
    let default = if quorum.is_default() { " It is the default quorum." } else { "" };
    let summary = link.lines.first().cloned().unwrap_or_default();
    let mut text = format!("{}{default}\n", paint.tone(tone, &summary));
    let mut titles = vec!["MEMBER", "STATE", "VOTES", "FENCE", "NODE"];
    if wide {
        titles.extend(["POD", "ADDRESS", "PROCESS"]);
    }
    let mut table = Table::new(titles);
    for member in &quorum.status.members {
        let voting = quorum.has_vote(member);
        let tone = match member.state.as_str() {
            _ if voting => Tone::Good,
            "Unreachable" | "Pending" => Tone::Bad,
            _ => Tone::Waiting,
        };
        let fence =
            fence(member, now).map(|left| format!("{} ({})", span(left), member.reason.clone().unwrap_or_default()));
        let mut cells = vec![
            member.name.clone().into(),
            Cell::toned(tone, member.state.clone()),
            if voting { "yes" } else { "no" }.into(),
            fence.or_else(|| member.reason.clone()).unwrap_or_default().into(),
            member.node_name.clone().unwrap_or_default().into(),
        ];
        if wide {
            let process = member.run_id.clone().map(|id| id.chars().take(12).collect::<String>());
            let wider = [member.pod_name.clone(), member.address.clone(), process];
            cells.extend(wider.map(|text| text.unwrap_or_default().into()));
        }
        table.push(cells);
    }
    text += &table.render(paint);
    for condition in quorum.status.conditions.iter().filter(|condition| is_trouble(condition)).chain(change(quorum)) {
        let line = format!("{} ({}): {}\n", condition.type_, condition.reason, condition.message);
        text += &paint.tone(Tone::Waiting, &line);
    }
    let silent = quorum.status.members.iter().filter(|member| !member.votes() && member.message.is_some());
    text.extend(silent.map(|member| format!("{}\n", member_text(member, now))));
    text
}

/// Whether the condition shows a problem. Progressing never does.
pub fn is_trouble(condition: &Condition) -> bool {
    condition.status != "True" && condition.type_ != QuorumCondition::Progressing.as_str()
}

/// The change of the quorum that is under way or paused, which no member's state shows.
pub fn change(quorum: &QuorumObject) -> Option<&Condition> {
    use CommonReason::{MembersChanging, RolloutPaused, RotatingPasswords, Updating};
    let changes = [MembersChanging, RolloutPaused, RotatingPasswords, Updating];
    let progressing = find_condition(&quorum.status.conditions, QuorumCondition::Progressing);
    progressing.filter(|condition| changes.iter().any(|change| change.as_str() == condition.reason))
}

/// Prints quorums.
///
/// # Errors
/// If the named quorum does not exist, or the API server does not answer.
pub async fn status(args: StatusArgs) -> anyhow::Result<()> {
    let cluster = Cluster::connect(&args.scope.cluster).await?;
    let printer = Printer::new(args.output);
    if args.watch {
        return watch(&cluster, printer, &args).await;
    }
    printer.show(&load(&cluster, &args).await?)
}

async fn load(cluster: &Cluster, args: &StatusArgs) -> Result<QuorumList, Problem> {
    let (namespace, name) = named(args.name.as_deref(), &cluster.namespace);
    let scope = args.scope.of(&namespace);
    let mut quorums: Vec<QuorumObject> = cluster.list(scope, "").await?;
    quorums.sort_by_key(QuorumObject::full_name);
    if let Some(name) = name {
        quorums.retain(|quorum| quorum.name_any() == name);
        if quorums.is_empty() {
            let next = "See which exist: redlock quorum status -A";
            let what = format!("RedisQuorum {namespace}/{name} does not exist");
            return Err(Problem { code: Some(404), ..Problem::new(what, next) });
        }
    }
    Ok(QuorumList { quorums, now: cluster.now(), place: any_of(scope) })
}

/// Splits `<namespace>/<name>`. A name alone is in the default namespace.
pub(crate) fn named<'a>(text: Option<&'a str>, namespace: &str) -> (String, Option<&'a str>) {
    match text.and_then(|text| text.split_once('/')) {
        Some((namespace, name)) => (namespace.to_owned(), Some(name)),
        None => (namespace.to_owned(), text),
    }
}

/// Prints quorums repeatedly: on a terminal in place, elsewhere after each change.
async fn watch(cluster: &Cluster, printer: Printer, args: &StatusArgs) -> anyhow::Result<()> {
    let (mut ticks, mut before) = (interval(PERIOD), Value::Null);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut view = load(cluster, args).await?;
    loop {
        ticks.tick().await;
        // If the API server does not answer a request, or fails, the previous view stays and its fences count down.
        match load(cluster, args).await {
            Ok(next) => view = next,
            Err(problem) if matches!(problem.code, Some(401 | 403 | 404)) => return Err(problem.into()),
            Err(_) => view.now = cluster.now(),
        }
        if printer.is_terminal && !printer.is_for_programs() {
            printer.write("\u{1b}[H\u{1b}[2J")?;
            printer.show(&view)?;
        } else {
            // Values without the present time differ only after a change.
            view.now = MilliTime::from(jiff::Timestamp::UNIX_EPOCH);
            let value = view.value();
            view.now = cluster.now();
            if value == before {
                continue;
            }
            before = value;
            match printer.is_for_programs() {
                true => printer.next_value(&view.value())?,
                false => printer.show(&view)?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::objects::fake::{condition, now, quorum};

    #[test]
    fn a_quorum_lists_its_voters_and_the_end_of_each_fence() {
        let quorum = quorum(["Admitted", "Admitted", "Fenced"]);
        let view = QuorumList { quorums: vec![quorum], now: now(), place: "x".into() };
        assert_eq!(
            view.text(Paint::PLAIN, false),
            "RedisQuorum redlock-system/main: 2 of 3 members vote, and 2 are needed. It is the default quorum.\n\
             MEMBER   STATE      VOTES   FENCE             NODE\n\
             main-0   Admitted   yes     -                 node-0\n\
             main-1   Admitted   yes     -                 node-1\n\
             main-2   Fenced     no      12s (Restarted)   node-2\n\
             Ready (MembersFenced): main-2 votes from 12:00:12\n"
        );
        let value = &view.value()["items"][0];
        assert_eq!((&value["voting"], &value["grantsLocks"]), (&json!(2), &json!(true)));
        assert_eq!(value["members"][2]["fencedForMs"], 12_000);
        assert_eq!((&value["members"][2]["votes"], &value["maxTTLMs"]), (&json!(false), &json!(30_000)));
    }

    #[test]
    fn an_update_that_waits_is_printed_with_its_cause() {
        let mut quorum = quorum(["Admitted"; 3]);
        quorum.status.conditions.push(condition("Progressing", "True", "Updating", "main-1 is not replaced"));
        assert_eq!(change(&quorum).map(|change| change.reason.as_str()), Some("Updating"));
        let view = QuorumList { quorums: vec![quorum], now: now(), place: "x".into() };
        assert!(view.text(Paint::PLAIN, false).ends_with("\nProgressing (Updating): main-1 is not replaced\n"));
    }

    #[test]
    fn a_name_can_have_its_namespace() {
        assert_eq!(named(Some("redis/main"), "home"), ("redis".to_owned(), Some("main")));
        assert_eq!(named(Some("main"), "home"), ("home".to_owned(), Some("main")));
        assert_eq!(named(None, "home"), ("home".to_owned(), None));
    }
}
