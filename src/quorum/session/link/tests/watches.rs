//! Clocks, times to live and scripts, with real processes. The clock of a member is shifted by a preloaded library, which the
//! C compiler `cc` makes from tests/redis/shifted_clock.c.

use redis::aio::MultiplexedConnection;

use super::shifted_clock::library;
use super::*;
use crate::redlock::{ClockCheck, Command as Asked, MemberFailure};

pub(super) const EPOCH: i64 = 7;
/// The time to live of an acquisition on three members.
const TTL: Duration = Duration::from_secs(20);

/// Three admitted members whose clocks can be shifted, with a link to each, and one guard.
struct Quorum {
    members: Vec<Member>,
    links: Vec<Arc<MemberLink>>,
    clocks: Arc<ClockGuard>,
    admitted: Vec<RunId>,
}

impl Quorum {
    async fn new() -> Self {
        let quorum = quorum(json!({}), json!(null));
        let (plan, users, auth) = (validate(&quorum).unwrap(), voting_users(&quorum, "main-0"), Auth::random());
        let rule = Rule { drift: plan.settings.drift, window: plan.max_ttl };
        let clocks = Arc::new(ClockGuard::new(3, rule));
        let mut of = Self { members: vec![], links: vec![], clocks, admitted: vec![] };
        for index in 0..3 {
            let member = Member::of(&plan, &auth, index, |directory| {
                vec![("LD_PRELOAD", library().to_owned()), ("CLOCK_OFFSET_FILE", directory.join("offset"))]
            });
            let link = MemberLink::start(shared(of.clocks.clone()), plan.members[index].clone());
            place(&link, &format!("pod-{index}"), &member, (&plan, &users, &auth));
            let run_id = until(&link, |state| state.processes.answers()).await.processes.last().unwrap().run_id.clone();
            open(&link, &run_id, EPOCH, &plan.user_rules(&auth, link.name.as_str())).await;
            until_votes(&link).await;
            of.members.push(member);
            of.links.push(link);
            of.admitted.push(run_id);
        }
        of
    }

    /// Shifts the clock of a member by this number of milliseconds from the correct time.
    fn shift(&self, index: usize, millis: i64) {
        let (file, new) = (self.members[index].directory.join("offset"), self.members[index].directory.join("new"));
        std::fs::write(&new, millis.to_string()).unwrap();
        std::fs::rename(new, file).unwrap();
    }

    /// One acquisition, with or without the clock check.
    async fn acquire(&self, value: &str, checked: bool) -> Acquire {
        let electors = self.links.iter().zip(&self.admitted).map(|(link, admitted)| Elector {
            member: link.voter(1).unwrap() as Arc<dyn LockMember>,
            admitted: Some(admitted.clone()),
        });
        let mut electorate = Electorate::single(electors.collect());
        if checked {
            electorate = electorate.with_clock_check(self.clocks.clone() as Arc<dyn ClockCheck>);
        }
        let settings = Settings { node_timeout: PATIENCE, ..Settings::default() };
        let request =
            AcquireRequest { key: "k".into(), value: LockValue::from_text(value.to_owned()), ttl: TTL, token: true };
        Redlock::new(Arc::new(SystemClock), settings).acquire(&electorate, request).await
    }

    /// Waits until every member has executed all earlier requests.
    async fn finish_requests(&self) {
        for link in &self.links {
            let asked = link.voter(1).unwrap().send(vec![Asked::Inspect { key: "k".into() }]);
            asked.await.unwrap();
        }
    }

    /// Waits for the discovery of a step, and returns it in milliseconds.
    async fn until_stepped(&self, index: usize) -> i64 {
        let step = found(PATIENCE, || self.clocks.step_of(&self.admitted[index])).await;
        step.expect("the step is found").micros() / 1_000
    }

    /// Waits for two more probes of every member.
    async fn two_probes(&self) {
        sleep(2 * PROBE_PERIOD + Duration::from_millis(300)).await;
    }
}

/// Compares with a tolerance, because this machine can be busy, and slow replies prove less.
fn about(step: i64, expected: i64) {
    assert!((step - expected).abs() < 200, "{step} ms");
}

async fn until_votes(link: &MemberLink) {
    let voter = link.voter(1).unwrap();
    let mut state = voter.link();
    let open = state.wait_for(|state| matches!(state, crate::redis_member::Link::Open(_)));
    tokio::time::timeout(PATIENCE, open).await.expect("the voter connects").unwrap();
}

#[tokio::test]
async fn the_clock_check_prevents_two_holders_after_two_steps() {
    // A step longer than the ttl removes the key. One shorter than the deadline of the attempt does not refuse the attempt.
    const STEP: Duration = Duration::from_secs(25);
    const { assert!(TTL.as_secs() < STEP.as_secs() && STEP.as_secs() < PATIENCE.as_secs()) }
    let quorum = Quorum::new().await;
    let first = match quorum.acquire("a", true).await {
        Acquire::Granted(grant) => grant,
        other => panic!("{other:?}"),
    };
    // A majority is enough for the grant. A key that reaches a member after its step would live longer there.
    quorum.finish_requests().await;
    let step = i64::try_from(STEP.as_millis()).unwrap();
    quorum.shift(0, step);
    quorum.shift(1, step);
    // The check of the votes is immediate, with or without an earlier probe.
    match quorum.acquire("b", true).await {
        Acquire::NoQuorum { failures, .. } => {
            let stepped = ["main-0", "main-1"].map(|name| (name.into(), MemberFailure::ClockStepped));
            assert_eq!(failures, stepped);
        }
        other => panic!("{other:?}"),
    }
    for index in [0, 1] {
        about(quorum.until_stepped(index).await, step);
    }
    assert_eq!(quorum.clocks.step_of(&quorum.admitted[2]), None);
    // Without the check there are two holders. (The refused attempt has released its votes.)
    quorum.finish_requests().await;
    let without = quorum.acquire("c", false).await;
    assert!(matches!(without, Acquire::Granted(_)), "without the check this must be granted: {without:?}");
    assert!(SystemClock.boottime() < first.valid_until, "the first holder's validity has ended, so this shows nothing");
}

#[tokio::test]
async fn a_step_back_and_a_small_step_are_found() {
    let quorum = Quorum::new().await;
    quorum.shift(2, -60_000);
    match quorum.acquire("a", true).await {
        Acquire::Granted(grant) => assert_eq!(grant.votes.yes, 2, "{grant:?}"),
        other => panic!("{other:?}"),
    }
    about(quorum.until_stepped(2).await, -60_000);
    quorum.shift(0, 200);
    about(quorum.until_stepped(0).await, 200);
    assert_eq!(quorum.clocks.step_of(&quorum.admitted[1]), None);
}

#[tokio::test]
async fn only_a_clock_with_excessive_drift_is_found() {
    let quorum = Quorum::new().await;
    // 0.5 % and 5 %, in steps of 10 ms of real time.
    let started = SystemClock.monotonic();
    let passed = || SystemClock.monotonic().since(started);
    while passed() < Duration::from_secs(4) {
        let passed = i64::try_from(passed().as_millis()).unwrap();
        quorum.shift(0, passed / 200);
        quorum.shift(1, passed / 20);
        sleep(Duration::from_millis(10)).await;
    }
    assert!(quorum.until_stepped(1).await > 0);
    for index in [0, 2] {
        assert_eq!(quorum.clocks.step_of(&quorum.admitted[index]), None, "{index}");
    }
}

#[tokio::test]
async fn no_member_is_fenced_when_all_clocks_move_together() {
    let quorum = Quorum::new().await;
    for index in 0..3 {
        quorum.shift(index, 60_000);
    }
    quorum.two_probes().await;
    for run_id in &quorum.admitted {
        assert_eq!(quorum.clocks.step_of(run_id), None);
    }
    let report = quorum.clocks.report(SystemClock.boottime());
    assert!(report.together.is_some() && report.stepped.is_empty(), "{report:?}");
    assert!(matches!(quorum.acquire("a", true).await, Acquire::Granted(_)), "judged again");
}

/// The connection of the plan's client.
pub(super) async fn client(member: &Member, auth: &Auth) -> MultiplexedConnection {
    connect(member, auth).await.unwrap()
}

pub(super) async fn connect(member: &Member, auth: &Auth) -> redis::RedisResult<MultiplexedConnection> {
    let password = auth.password("main-0", "billing-e1");
    let url = format!("redis://billing-e1:{}@{}/", password.expose(), member.address());
    redis::Client::open(url).unwrap().get_multiplexed_async_connection().await
}

/// An open member, in the state that its leader leaves.
pub(super) async fn led() -> (Member, Arc<MemberLink>, Auth) {
    let (member, link, (plan, _, auth)) = answering().await;
    let run_id = link.state().processes.last().unwrap().run_id.clone();
    open(&link, &run_id, EPOCH, &plan.user_rules(&auth, "main-0")).await;
    (member, link, auth)
}

#[tokio::test]
async fn client_keys_without_expiry_and_the_average_ttl_are_observed() {
    let (member, link, auth) = led().await;
    let mut client = client(&member, &auth).await;
    let endless = |state: &LinkState| state.observation().map(|seen| seen.keys.endless);
    // The operator's own keys, the counter and the epoch, have no time to live and are not counted.
    until(&link, |state| endless(state) == Some(0)).await;
    redis::cmd("SET").arg("shop/for-ever").arg("v").exec_async(&mut client).await.unwrap();
    redis::cmd("SET").arg("shop/a").arg("v").arg("PX").arg(3_600_000).exec_async(&mut client).await.unwrap();
    until(&link, |state| endless(state) == Some(1)).await;
    let is_long =
        |state: &LinkState| state.observation().is_some_and(|seen| seen.keys.average_ttl > Duration::from_secs(30));
    until(&link, is_long).await;
    redis::cmd("DEL").arg("shop/a").arg("shop/for-ever").exec_async(&mut client).await.unwrap();
    until(&link, |state| endless(state) == Some(0) && !is_long(state)).await;
}

/// Starts a script of the client that runs without end. It never answers.
pub(super) fn busy(mut client: MultiplexedConnection, script: &'static str) {
    tokio::spawn(async move { redis::cmd("EVAL").arg(script).arg(1).arg("shop/k").exec_async(&mut client).await });
}

async fn next_event(events: &mut broadcast::Receiver<QuorumEvent>) -> QuorumEvent {
    tokio::time::timeout(PATIENCE, events.recv()).await.expect("the script is noticed").unwrap()
}

#[tokio::test]
async fn a_script_that_keeps_a_member_busy_is_ended() {
    let (member, link, auth) = led().await;
    let mut events = link.shared.events.subscribe();
    busy(client(&member, &auth).await, "while true do end");
    assert_eq!(next_event(&mut events).await, QuorumEvent::ScriptKilled { member: "main-0".into() });
    assert!(link.answers(), "a busy member is alive");
    assert!(events.is_empty(), "one Event");
    let run_id = link.state().processes.last().unwrap().run_id.clone();
    assert!(vote(&link, &run_id, "k").await.is_some(), "it votes again");
}

#[tokio::test]
async fn a_script_that_has_written_cannot_be_ended_and_is_reported() {
    let (member, link, auth) = led().await;
    let mut events = link.shared.events.subscribe();
    busy(client(&member, &auth).await, "redis.call('SET', KEYS[1], 'v') while true do end");
    let unkillable = QuorumEvent::ScriptUnkillable { member: "main-0".into(), pod: "main-0-0".into() };
    assert_eq!(next_event(&mut events).await, unkillable);
    sleep(3 * PROBE_PERIOD).await;
    assert!(link.answers(), "a busy process is alive");
}
