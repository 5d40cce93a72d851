//! Attacks of a client on the members of its quorum harm only that quorum.
//!
//! Locks on another quorum are kept, granted and passed on at the same time.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::{Either, select};
use k8s_openapi::api::core::v1::Pod;
use redlock_operator::api::{RedisQuorum, conditions::CommonReason};
use serde_json::json;

use super::{
    shares::{kill_leader, measure},
    victim::{MEMORY_LIMIT_KIB, Replicas},
};
use crate::{
    bench::Bench,
    history::check_held_throughout,
    locks::{Lock, SOON, claim},
    operators,
    quorums::{Quorum, client_urls},
    record::Version,
    suite_lock::support::{election, run_pair},
};

const MAX_TTL: Duration = Duration::from_secs(3);
/// A ttl that is shorter than the attack, so that a lock without renewals is lost.
const TTL: Duration = Duration::from_secs(3);
/// The length of each attack in seconds.
const ATTACK: u64 = 40;
/// A script that has written keeps a member busy for some seconds before its pod is replaced.
const REPORT_LIMIT: Duration = Duration::from_secs(ATTACK);
/// An attack has begun after this time.
const BEGUN: Duration = Duration::from_secs(3);

pub(crate) async fn endless_scripts_that_have_written_harm_no_other_tenant(bench: Bench) -> anyhow::Result<()> {
    let does = r#"say "EVAL 'redis.call(\"SET\",KEYS[1],1) while true do end' 1 $key"; sleep 3"#;
    suffer(&bench, "endless scripts that have written", does, Some("script")).await
}

pub(crate) async fn a_hundred_endless_scripts_at_once_harm_no_other_tenant(bench: Bench) -> anyhow::Result<()> {
    let does = r#"for i in {1..100}; do say "EVAL 'while true do end' 0"; done; sleep 3"#;
    suffer(&bench, "100 endless scripts at once", does, None).await
}

pub(crate) async fn scripts_that_build_long_texts_harm_no_other_tenant(bench: Bench) -> anyhow::Result<()> {
    let does = r#"
        while say "EVAL 'local t={} for i=1,60 do t[i]=string.rep(\"x\",1048576)..i end return #t' 0"; do
            read -r -t 5 -u 3 _ || break
        done"#;
    suffer(&bench, "60 MB of Lua strings", does, None).await
}

pub(crate) async fn thousands_of_loaded_scripts_harm_no_other_tenant(bench: Bench) -> anyhow::Result<()> {
    let does = r#"
        pad=$(printf '%9000s' '' | tr ' ' x)
        for i in {1..2000}; do say "SCRIPT LOAD 'return \"$i$pad\"'"; done
        sleep 3"#;
    suffer(&bench, "2,000 x SCRIPT LOAD of 9 kB", does, None).await
}

pub(crate) async fn unread_answers_harm_no_other_tenant(bench: Bench) -> anyhow::Result<()> {
    let does = r#"
        value=$(printf '%900000s' '' | tr ' ' x)
        printf '*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n' ${#key} "$key" ${#value} "$value" >&3
        for i in {1..40}; do say "GET $key"; done
        sleep 3"#;
    suffer(&bench, "40 answers of 0.9 MB that are not read", does, None).await
}

pub(crate) async fn a_large_announced_argument_harms_no_other_tenant(bench: Bench) -> anyhow::Result<()> {
    let does = r#"
        printf '*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$300000000\r\n' ${#key} "$key" >&3
        for i in {1..5}; do sleep 1; printf x >&3 || break; done"#;
    suffer(&bench, "an announced argument of 300 MB", does, None).await
}

pub(crate) async fn many_idle_connections_to_every_member_harm_no_other_tenant(bench: Bench) -> anyhow::Result<()> {
    let does = r#"
        for i in {1..500}; do exec {fd}<>"/dev/tcp/$address/6379" && printf '%s\r\n' "$login" >&$fd; done
        sleep 10"#;
    suffer(&bench, "500 idle connections to every member", does, None).await
}

/// The address and login of a member for the attacker.
struct Target {
    address: String,
    user: String,
    password: String,
}

/// The targets by address, because the control plane does not use the cluster's DNS.
async fn targets(bench: &Bench) -> anyhow::Result<Vec<Target>> {
    let mut targets = Vec::new();
    for url in client_urls(bench).await? {
        let (user, host) = url.strip_prefix("redis://").and_then(|url| url.split_once('@')).context("not plain TCP")?;
        let (user, password) = user.split_once(':').context("no password")?;
        let member = host.split('.').next().unwrap_or(host);
        let pod = bench.api::<Pod>().get(&format!("{member}-0")).await?;
        let address = pod.status.and_then(|status| status.pod_ip).context("no pod IP")?;
        targets.push(Target { address, user: user.to_owned(), password: password.to_owned() });
    }
    ensure!(targets.len() == 3, "{} members", targets.len());
    Ok(targets)
}

/// The attack on all members at once, for [`ATTACK`] seconds.
///
/// It reconnects after a cut. It prints the address of each member once, after the first login there.
fn script(does: &str, targets: &[Target], key: &str) -> String {
    let mut script = format!("exec 4>&1 >/dev/null 2>&1; trap '' PIPE; key={key}\n");
    script.push_str("say() { printf '%s\\r\\n' \"$1\" >&3; }\n");
    script.push_str("logs_in() { (\n    exec 3<>\"/dev/tcp/$address/6379\" || exit; say \"$login\"\n");
    script.push_str("    read -r -t 5 -u 3 answer && [[ $answer == +OK* ]] && echo \"$address\" >&4\n) }\n");
    // Processes that still run after the end must not hold the output open.
    script.push_str("member() {\n    address=$1; login=\"AUTH $2 $3\"\n");
    script.push_str("    until logs_in; do sleep 0.5; done; exec 4>&-\n    while :; do (\n");
    script.push_str("        exec 3<>\"/dev/tcp/$address/6379\" || exit; say \"$login\"\n");
    script.push_str(does);
    script.push_str("\n    ); sleep 0.5; done\n}\n");
    for Target { address, user, password } in targets {
        script.push_str(&format!("member '{address}' '{user}' '{password}' &\n"));
    }
    script.push_str(&format!("sleep {ATTACK}; kill $(jobs -p)\n"));
    script
}

fn reports(version: &Version<RedisQuorum>, words: &str) -> bool {
    let conditions = version.object.status.iter().flat_map(|status| &status.conditions);
    conditions.filter(|condition| condition.type_ == "ClientsReady").any(|condition| {
        condition.status == "False"
            && condition.reason == CommonReason::ClientMisbehaves.as_str()
            && condition.message.contains(words)
    })
}

/// The objects of another tenant on the default quorum, which are checked during the attack.
struct Victim<'a> {
    bench: &'a Bench,
    held: Lock,
    elected: Lock,
}

impl<'a> Victim<'a> {
    async fn set(bench: &'a Bench) -> anyhow::Result<Self> {
        run_pair(bench, "app", ["one", "two"]).await?;
        let held = Lock::create(bench, claim("held", "held", None, TTL)).await?;
        let elected = Lock::create(bench, election("app", "app", Duration::from_secs(2))).await?;
        held.held(SOON).await?;
        elected.held(SOON).await?;
        Ok(Self { bench, held, elected })
    }

    async fn check(&self, attack: &str) -> anyhow::Result<()> {
        kill_leader(&self.elected, attack).await?;
        measure(self.bench, &format!("apply -> Held beside {attack}"), "meanwhile").await?;
        check_held_throughout(&self.held.recorder.versions()).map(drop)
    }
}

/// Samples the operator's memory until the future ends.
///
/// Returns the maximum.
async fn most_memory<T>(meanwhile: impl Future<Output = T>) -> anyhow::Result<(T, u64)> {
    let (mut meanwhile, mut most) = (std::pin::pin!(meanwhile), 0);
    loop {
        most = operators::memory().into_iter().fold(most, u64::max);
        match select(meanwhile.as_mut(), std::pin::pin!(tokio::time::sleep(Duration::from_secs(1)))).await {
            Either::Left((result, _)) => {
                ensure!(most > 0, "no process of the operator was found on this machine");
                return Ok((result, most));
            }
            Either::Right(_) => {}
        }
    }
}

/// Runs an attack: bash commands that one logged-in connection repeats.
///
/// The connection is file descriptor 3, and the commands can use `$key`. `name` is for the figures, and `reported` is in
/// the message of the condition `ClientsReady`. The attacked members have a limit of CPU, as docs/security.md advises.
/// On the local cluster they share two cores with the kubelet that reports the end of the victim's container.
async fn suffer(bench: &Bench, name: &str, does: &str, reported: Option<&str>) -> anyhow::Result<()> {
    operators::all_available(&bench.cluster).await?;
    let replicas = Replicas::watch(&bench.cluster).await?;
    let limits = json!({"pod": {"resources": {"limits": {"cpu": "300m", "memory": "128Mi"}}}});
    let quorum = Quorum::ready_with(bench, "q", MAX_TTL, limits).await?;
    let targets = targets(bench).await?;
    let script = script(does, &targets, &format!("{}/mine", bench.namespace));
    Bench::beside(bench, "victim-of-a-client", async |other| {
        let victim = Victim::set(other).await?;
        let mark = quorum.recorder.mark();
        let begun = async {
            if let Some(words) = reported {
                let start = bench.now();
                let is_said = |version: &Version<RedisQuorum>| reports(version, words);
                let what = format!("ClientsReady reports: {words}");
                let seen = quorum.recorder.until_after(mark, REPORT_LIMIT, &what, is_said).await?;
                bench.figures.add(&format!("{name} -> reported"), seen.at.since(start));
            }
            anyhow::Ok(())
        };
        // The report can take as long as the attack, so the victim is checked at the same time.
        let looked = async {
            tokio::time::sleep(BEGUN).await;
            victim.check(name).await
        };
        let suffered = async {
            let attacked = bench.cluster.faults.beside_the_control_plane(&script);
            let (attacked, begun, looked) = tokio::join!(attacked, begun, looked);
            looked.and(begun)?;
            let attacked = attacked?;
            let spared = targets.iter().find(|target| !attacked.lines().any(|line| line == target.address));
            ensure!(spared.is_none(), "the attack logged in only at {attacked:?}");
            anyhow::Ok(())
        };
        let (suffered, most) = most_memory(suffered).await?;
        suffered?;
        println!("         the operator took {} MiB at most", most / 1024);
        ensure!(most < MEMORY_LIMIT_KIB, "the operator took {most} KiB");
        check_held_throughout(&victim.held.recorder.versions()).map(drop)
    })
    .await?;
    replicas.check().await
}
