//! A lock client without any knowledge of Kubernetes.
//!
//! It is redis-cli in a pod, with the Secret that the quorum gives its clients.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;

use crate::{
    bench::Bench,
    locks::{SOON, with},
    pods::is_ready,
    poll,
    quorums::Quorum,
    suite_lock::support::{IDLE, create, with_container, worker},
};

/// A pod with a pulled image is running within this time.
const START_LIMIT: Duration = Duration::from_secs(40);

/// `redis MEMBER COMMAND...`, with members counted from 0.
const REDIS: &str = r#"redis() { m=$(($1 + 1)); shift; [ ! -e /client/ca.crt ] || set -- --cacert /client/ca.crt "$@"
${TRY:-} redis-cli --no-auth-warning -u "$(sed -n "${m}p" /client/urls)" "$@" 2>&1; }"#;

/// The cluster's DNS serves a new Service within this time.
///
/// After an outage of the API server, the DNS server lists Services again with up to a minute between two attempts.
const NAMES_LIMIT: Duration = Duration::from_secs(120);

/// Waits until each member has answered.
///
/// If a member does not, it prints the last answer and the state of the name resolution.
const ALL_ANSWER: &str = r#"
end=$(($(date +%s) + LIMIT)); m=0; TRY="timeout 5"
while read -r url; do
    until answer=$(redis $m PING); [ "$answer" = PONG ]; do
        if [ "$(date +%s)" -ge $end ]; then
            host=${url##*@}; host=${host%%:*}
            { echo "member $m did not answer PING: $answer"; timeout 5 getent hosts "$host" || echo "no address of $host"
              cat /etc/resolv.conf; } >&2
            exit 1
        fi
        sleep 0.1
    done
    m=$((m + 1))
done < /client/urls"#;

/// Maximum duration of a lock that a client with an old list holds.
pub(crate) const OLD_LIST_TTL: Duration = Duration::from_secs(3);

const OLD_LIST: &str = r#"
set -- $(cat /client/urls)
n=0
while :; do
    n=$((n + 1)); yes=0; refused=0
    echo "try $n"
    for url in "$@"; do
        case "$(redis-cli --no-auth-warning -u "$url" SET "$key" "v$n" NX PX "$ttl" 2>&1)" in
            OK) yes=$((yes + 1)) ;;
            *NOPERM* | *WRONGPASS*) refused=$((refused + 1)) ;;
        esac
    done
    if [ $((yes * 2)) -gt $# ]; then
        echo "held $n $yes $refused"; sleep 0.3; echo "over $n"
    else
        echo "no $n $yes $refused"
    fi
    for url in "$@"; do
        redis-cli --no-auth-warning -u "$url" EVAL \
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end" 1 "$key" "v$n"
    done > /dev/null 2>&1
    sleep 0.2
done"#;

/// Reads the key on all members repeatedly.
///
/// A member that does not answer within a second has no value. All files of a mounted Secret change at the same time, so
/// one round reads one version.
const READER: &str = r#"
while :; do
    says=; verdict=seen
    now=$(readlink /client/..data)
    for list in urls formerUrls; do
        file="/client/$now/$list"; all=0; shown=0
        [ -e "$file" ] || continue
        for url in $(cat "$file"); do
            all=$((all + 1))
            answer=$(printf 'GET %s\nPTTL %s\n' "$key" "$key" | timeout 1 redis-cli --no-auth-warning -u "$url" 2>&1 | tr '\n' ' ')
            case "$answer" in ?*" "[1-9]*" ") shown=$((shown + 1)) ;; esac
            says="$says [${url##*@} $answer]"
        done
        [ $((shown * 2)) -gt "$all" ] || verdict=gap
    done
    # A Secret that was replaced in the middle of a round is read again.
    [ "$now" = "$(readlink /client/..data)" ] || continue
    if [ "$verdict" = seen ]; then echo seen; else echo "gap $says"; fi
    sleep 0.1
done"#;

/// The client of [`crate::quorums::manifest`].
const OUTSIDE: &str = "outside";

/// A pod that waits for commands.
pub(crate) struct Client {
    bench: Bench,
}

impl Client {
    /// Starts it after the quorum's Secret exists.
    ///
    /// A client is ready when every member has answered under its name.
    pub(crate) async fn start(quorum: &Quorum) -> anyhow::Result<Self> {
        Monitor::of(quorum, "outside", OUTSIDE, IDLE).await?;
        let client = Self { bench: quorum.bench.clone() };
        client.shell(&ALL_ANSWER.replace("LIMIT", &NAMES_LIMIT.as_secs().to_string())).await?;
        Ok(client)
    }

    /// Runs a Redis command on a member and returns the reply, or the text of an error.
    pub(crate) async fn redis(&self, member: usize, command: &[&str]) -> anyhow::Result<String> {
        let script = format!("{REDIS}; redis \"$@\"");
        let member = member.to_string();
        let arguments = [&["exec", "outside", "--", "sh", "-c", &script, "sh", &member], command].concat();
        Ok(self.bench.kubectl(&arguments).await?.trim().to_owned())
    }

    /// Runs a shell script.
    ///
    /// It can call a function `redis MEMBER COMMAND...`.
    pub(crate) async fn shell(&self, script: &str) -> anyhow::Result<String> {
        let script = format!("{REDIS}; {script}");
        Ok(self.bench.kubectl(&["exec", "outside", "--", "sh", "-c", &script]).await?.trim().to_owned())
    }
}

/// A pod that repeats a request.
///
/// Its log is the record.
pub(crate) struct Monitor {
    bench: Bench,
    name: String,
}

/// One line of a monitor's log.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// When the container runtime received the line, in milliseconds of its node's wall clock.
    pub(crate) at: i64,
    pub(crate) text: String,
}

impl Monitor {
    /// A pod with the Secret of this client.
    async fn of(quorum: &Quorum, name: &str, client: &str, script: &str) -> anyhow::Result<Self> {
        let bench = &quorum.bench;
        let secret = format!("{}-client-{client}", quorum.name);
        let secrets = bench.record::<Secret>(&secret).await?;
        secrets.until(START_LIMIT, "the client's Secret exists", |version| !version.gone).await?;
        let volumes = json!({"volumes": [{"name": "client", "secret": {"secretName": secret}}]});
        let mounts = json!({"volumeMounts": [{"name": "client", "mountPath": "/client", "readOnly": true}]});
        let pod = with_container(with(worker(bench, name, "client", script), volumes), mounts);
        let pods = create(bench, pod).await?;
        let ready = pods.until(START_LIMIT, "the pod is ready", |version| is_ready(&version.object)).await?;
        ensure!(!ready.gone, "pod {name} was deleted");
        Ok(Self { bench: bench.clone(), name: name.to_owned() })
    }

    /// Prints the reply to this shell command ten times a second.
    ///
    /// The command can use the number `n` of the attempt, and a function `redis MEMBER COMMAND...`.
    pub(crate) async fn start(quorum: &Quorum, name: &str, command: &str) -> anyhow::Result<Self> {
        let script = format!("n=0; while :; do n=$((n + 1)); echo \"$({command})\"; sleep 0.1; done");
        Self::run(quorum, name, &script).await
    }

    /// Runs this shell script.
    ///
    /// It can call a function `redis MEMBER COMMAND...`.
    pub(crate) async fn run(quorum: &Quorum, name: &str, script: &str) -> anyhow::Result<Self> {
        Self::of(quorum, name, OUTSIDE, &format!("{REDIS}; {script}")).await
    }

    /// A Redlock client that reads the list of members once at its start, and keeps it.
    ///
    /// It takes the lock on `key` repeatedly, for [`OLD_LIST_TTL`] at most. It prints `try`, then `held` or `no` with
    /// the number of votes and of refusals, and `over` before the release.
    pub(crate) async fn with_old_list(quorum: &Quorum, name: &str, key: &str) -> anyhow::Result<Self> {
        let ttl = OLD_LIST_TTL.as_millis();
        Self::of(quorum, name, OUTSIDE, &format!("key={key}; ttl={ttl}; {OLD_LIST}")).await
    }

    /// A read-only client, named `client` like its pod.
    ///
    /// Ten times a second it reads its Secret, and reads `key` on all members in it. It prints `seen` if a majority of
    /// each list has a value and a time to live. Otherwise it prints `gap` and the replies.
    pub(crate) async fn of_reader(quorum: &Quorum, client: &str, key: &str) -> anyhow::Result<Self> {
        Self::of(quorum, client, client, &format!("key={key}; {READER}")).await
    }

    /// All lines up to now.
    pub(crate) async fn lines(&self) -> anyhow::Result<Vec<Line>> {
        let text = self.bench.kubectl(&["logs", &self.name, "--timestamps"]).await?;
        text.lines()
            .map(|line| {
                let (at, text) = line.split_once(' ').unwrap_or((line, ""));
                let at: Timestamp = at.parse().with_context(|| format!("no time in the log line {line:?}"))?;
                Ok(Line { at: at.as_millisecond(), text: text.to_owned() })
            })
            .collect()
    }

    /// Waits until the log has a line that matches, later than `after`.
    pub(crate) async fn until(
        &self,
        after: i64,
        limit: Duration,
        what: &str,
        is_so: impl Fn(&Line) -> bool,
    ) -> anyhow::Result<Vec<Line>> {
        // Logs cannot be watched. Even the output of `kubectl logs --follow` would need a poll.
        poll::until(limit, &format!("in the log of pod {}: {what}", self.name), || async {
            let lines = self.lines().await?;
            Ok(lines.iter().any(|line| line.at > after && is_so(line)).then_some(lines))
        })
        .await
    }
}

/// A pod that checks repeatedly on how many of three members a key exists.
pub(crate) struct KeyMonitor(Monitor);

impl KeyMonitor {
    /// The mean period of the checks is below this, even on a busy machine.
    const PERIOD: i64 = 600;
    /// Maximum pause between two checks.
    const LONGEST_PAUSE: i64 = 2_000;

    /// Starts when the key exists on all members.
    pub(crate) async fn start(quorum: &Quorum, key: &str) -> anyhow::Result<Self> {
        let command = format!("echo $(redis 0 PTTL {key}) $(redis 1 PTTL {key}) $(redis 2 PTTL {key})");
        let monitor = Monitor::start(quorum, "monitor", &command).await?;
        monitor.until(0, SOON, "the key lives on all members", |line| Self::living(line) == 3).await?;
        Ok(Self(monitor))
    }

    /// Checks that the key existed on a majority between these wall-clock times, in milliseconds.
    pub(crate) async fn check_alive(&self, from: i64, to: i64) -> anyhow::Result<()> {
        let lines = self.0.until(to, SOON, "the monitor goes on", |_| true).await?;
        let meanwhile: Vec<_> = lines.iter().filter(|line| (from..to).contains(&line.at)).collect();
        let enough = usize::try_from((to - from) / Self::PERIOD)?;
        ensure!(meanwhile.len() >= enough, "the monitor read the key only {} times", meanwhile.len());
        let pause = meanwhile.windows(2).map(|pair| pair[1].at - pair[0].at).max().unwrap_or_default();
        ensure!(pause < Self::LONGEST_PAUSE, "the monitor did not read the key for {pause} ms");
        let dead: Vec<_> = meanwhile.iter().filter(|line| Self::living(line) < 2).collect();
        ensure!(dead.is_empty(), "the key did not live on a majority: {dead:?}");
        Ok(())
    }

    fn living(line: &Line) -> usize {
        line.text.split(' ').filter(|left| left.parse::<i64>().is_ok_and(|left| left > 0)).count()
    }
}
