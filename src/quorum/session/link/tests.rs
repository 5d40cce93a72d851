//! A link to a real Redis, run with the very files that a member gets. Each of these needs `redis-server`.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::json;
use tokio::process::{Child, Command};
use tokio::sync::broadcast;
use tokio::time::sleep;

use super::*;
use crate::api::RedisQuorum;
use crate::api::test_util::quorum;
use crate::fence::Users;
use crate::fence::clock::Rule;
use crate::quorum::model::auth::Auth;
use crate::quorum::model::build::{memory_settings, redis_conf, users_acl};
use crate::quorum::model::expose::PORT;
use crate::quorum::model::plan::{Plan, validate};
use crate::quorum::model::users::voting_users;
use crate::redis_member::ActError;
use crate::redis_member::acl::{OPERATOR_USER, UserRule};
use crate::redlock::{
    Acquire, AcquireRequest, Elector, Electorate, FencingToken, LockMember, LockValue, Redlock, Settings,
};
use crate::tests::{found, token};
use crate::time::{Clock, SystemClock};
use port::free_port;

mod busy;
mod emptied;
mod epochs;
mod lost;
#[path = "../../../../tests/support/port.rs"]
mod port;
#[path = "../../../../tests/support/shifted_clock.rs"]
mod shifted_clock;
mod watches;

/// A timeout that is much longer than every network operation of these tests.
const PATIENCE: Duration = Duration::from_secs(30);

/// A member's process, in its own directory.
struct Member {
    directory: PathBuf,
    port: u16,
    /// The arguments after redis.conf.
    arguments: Vec<String>,
    process: Option<Child>,
    /// Environment of the process.
    environment: Vec<(&'static str, PathBuf)>,
}

impl Member {
    fn new(plan: &Plan, auth: &Auth) -> Self {
        Self::of(plan, auth, 0, |_| Vec::new())
    }

    fn of(plan: &Plan, auth: &Auth, index: usize, env: impl Fn(&Path) -> Vec<(&'static str, PathBuf)>) -> Self {
        let port = free_port();
        let directory = std::env::temp_dir().join(format!("redlock-link-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let at = |path: &Path| path.to_string_lossy().into_owned();
        let conf = redis_conf(false)
            .replace(&format!("port {PORT}"), &format!("port {port}"))
            .replace("bind * -::*", "bind 127.0.0.1")
            .replace("/etc/redis/users.acl", &at(&directory.join("users.acl")))
            .replace("dir /\n", &format!("dir {}\n", at(&directory)));
        std::fs::write(directory.join("redis.conf"), conf).unwrap();
        std::fs::write(directory.join("users.acl"), users_acl(plan, auth, &plan.members[index])).unwrap();
        let settings = memory_settings(plan).into_iter();
        let arguments = settings.flat_map(|(name, value)| [format!("--{name}"), value.to_string()]).collect();
        let environment = env(&directory);
        let mut member = Self { directory, port, arguments, process: None, environment };
        member.start();
        member
    }

    fn start(&mut self) {
        let process = Command::new("redis-server")
            .arg(self.directory.join("redis.conf"))
            .args(&self.arguments)
            .envs(self.environment.iter().cloned())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("redis-server is installed");
        self.process = Some(process);
    }

    async fn kill(&mut self) {
        self.process.take().unwrap().kill().await.unwrap();
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn plan() -> (Plan, Vec<String>) {
    let clients = json!([{"name": "billing", "namespace": "shop", "keyPrefix": "shop/"}]);
    let quorum = quorum(json!({"members": 1, "clients": clients}), json!(null));
    (validate(&quorum).unwrap(), voting_users(&quorum, "main-0"))
}

/// A link to a member that answers.
async fn linked(member: &Member, plan: &Plan, users: &[String], auth: &Auth) -> Arc<MemberLink> {
    let link = started(member, plan, users, auth);
    until(&link, |state| state.processes.answers()).await;
    link
}

/// A member that answers, its link, and the parts of the link's target.
async fn answering() -> (Member, Arc<MemberLink>, (Plan, Vec<String>, Auth)) {
    let ((plan, users), auth) = (plan(), Auth::random());
    let member = Member::new(&plan, &auth);
    let link = linked(&member, &plan, &users, &auth).await;
    (member, link, (plan, users, auth))
}

/// A link that has not reached its member yet.
fn started(member: &Member, plan: &Plan, users: &[String], auth: &Auth) -> Arc<MemberLink> {
    let rule = Rule { drift: plan.settings.drift, window: plan.max_ttl };
    let link = MemberLink::start(shared(Arc::new(ClockGuard::new(1, rule))), plan.members[0].clone());
    place(&link, "pod-1", member, (plan, users, auth));
    link
}

/// Makes the pod of this member the target of a link.
fn place(link: &MemberLink, pod: &str, member: &Member, (plan, users, auth): (&Plan, &[String], &Auth)) {
    link.place_at(Some((pod.to_owned(), member.address())), None, Some(auth), plan.lists.epoch, users);
}

fn shared(clocks: Arc<ClockGuard>) -> Shared {
    let (quorum, announcements) = (ObjectRef::new("main").within("locks"), broadcast::channel(64).0);
    let (machine, agreement) = (Arc::new(SystemClock).into(), Arc::default());
    Shared { machine, clocks, agreement, quorum, announcements, events: broadcast::channel(64).0 }
}

async fn until(link: &MemberLink, what: impl Fn(&LinkState) -> bool) -> LinkState {
    found(PATIENCE, || Some(link.state()).filter(&what)).await.expect("the link reaches this state")
}

/// Opens these users of the process, in this term.
async fn open(link: &MemberLink, run_id: &RunId, term: i64, rules: &[UserRule]) {
    let mut admin = link.admin_session(run_id).await.unwrap();
    admin.raise_epoch(term).await.unwrap();
    admin.open(term, rules, token(1)).await.unwrap();
}

#[tokio::test]
async fn a_member_starts_closed_and_votes_only_while_it_is_open() {
    let (_member, link, (plan, users, auth)) = answering().await;
    let process = link.state().processes.last().unwrap().clone();
    assert_eq!(process.users, Users::Closed);
    assert_eq!(vote(&link, &process.run_id, "k").await, None, "fenced");

    let rules = plan.open_rules(&auth, "main-0");
    link.admin_session(&process.run_id).await.unwrap().raise_epoch(7).await.unwrap();
    assert_eq!(link.state().raised(), Some(7));
    link.admin_session(&process.run_id).await.unwrap().open(7, &rules, token(1_000)).await.unwrap();
    let state = link.state();
    assert_eq!(state.processes.last().unwrap().users, Users::Open, "observed immediately, before the next probe");
    assert_eq!(state.observation().unwrap().open_users, ["locker-e1", "billing-e1", "probe"]);
    assert_eq!(vote(&link, &process.run_id, "k").await, Some(token(1_001)));
    assert_eq!(link.counter(&process.run_id).await, Ok(token(1_001)));

    let all = plan.closing_rules(&auth, "main-0", 1);
    assert_eq!(all.iter().map(UserRule::name).collect::<Vec<_>>(), users, "the link reads all of these users");
    link.admin_session(&process.run_id).await.unwrap().close(7, &all).await.unwrap();
    let state = link.state();
    assert_eq!(state.processes.last().unwrap().users, Users::Closed);
    assert!(state.fenced_since().is_some(), "the wait starts again");
    assert_eq!(vote(&link, &process.run_id, "l").await, None);
}

#[tokio::test]
async fn a_restart_is_another_process_and_closed() {
    let (mut member, link, (plan, _, auth)) = answering().await;
    let before = link.state().processes.last().unwrap().clone();
    let rules = plan.user_rules(&auth, "main-0");
    open(&link, &before.run_id, 7, &rules).await;

    member.kill().await;
    until(&link, |state| !state.processes.answers()).await;
    member.start();
    let after =
        until(&link, |state| state.processes.last().is_some_and(|process| process.run_id != before.run_id)).await;
    let process = after.processes.last().cloned().unwrap();
    assert_eq!((process.users, after.raised()), (Users::Closed, None));
    assert!(process.first_observed > before.first_observed);
    // A change for the previous process does not reach this one.
    assert_eq!(link.admin_session(&before.run_id).await.err(), Some(ActError::OtherProcess));
    assert_eq!(vote(&link, &before.run_id, "k").await, None);
}

#[tokio::test]
async fn a_frozen_leader_opens_nothing_after_the_next_epoch() {
    let (plan, users) = plan();
    let auth = Auth::random();
    let member = Member::new(&plan, &auth);
    let old = linked(&member, &plan, &users, &auth).await;
    let new = linked(&member, &plan, &users, &auth).await;
    let run_id = old.state().processes.last().unwrap().run_id.clone();
    let rules = plan.user_rules(&auth, "main-0");
    old.admin_session(&run_id).await.unwrap().raise_epoch(7).await.unwrap();
    let mut frozen = old.admin_session(&run_id).await.unwrap();
    new.admin_session(&run_id).await.unwrap().raise_epoch(8).await.unwrap();
    // Its connection was cut, and the epoch refuses a new one.
    assert!(matches!(frozen.open(7, &rules, token(1)).await, Err(ActError::Member(_))));
    drop(frozen);
    assert_eq!(old.admin_session(&run_id).await.unwrap().open(7, &rules, token(1)).await, Err(ActError::Deposed));
    assert_eq!(old.admin_session(&run_id).await.unwrap().close(7, &rules).await, Err(ActError::Deposed));
    assert_eq!(old.admin_session(&run_id).await.unwrap().raise_epoch(7).await, Err(ActError::Outdated(8)));
    assert_eq!(new.admin_session(&run_id).await.unwrap().observe().await.unwrap().open_users, Vec::<String>::new());
    assert_eq!(new.admin_session(&run_id).await.unwrap().open(8, &rules, token(1)).await, Ok(()));
}

#[tokio::test]
async fn the_answer_of_a_former_process_is_not_that_of_the_next_pod() {
    let (plan, users) = plan();
    let auth = Auth::random();
    let (old, new) = (Member::new(&plan, &auth), Member::new(&plan, &auth));
    let link = linked(&old, &plan, &users, &auth).await;
    let former = link.state();
    assert!(former.processes.answers());
    // Its pod was deleted by force, and another pod has its name.
    place(&link, "pod-2", &new, (&plan, &users, &auth));
    let state = until(&link, |state| state.pod_uid.as_deref() == Some("pod-2") && state.processes.answers()).await;
    assert_ne!(state.processes.last().unwrap().run_id, former.processes.last().unwrap().run_id);
}

/// An earlier session can outlive the pod's object.
#[tokio::test]
async fn a_former_session_observes_nothing_for_the_next_pod() {
    let (_member, link, (plan, users, auth)) = answering().await;
    let run_id = link.state().processes.last().unwrap().run_id.clone();
    let mut session = link.admin_session(&run_id).await.unwrap();
    // The next pod has no process yet.
    link.place_at(Some(("pod-2".into(), "127.0.0.1:1".into())), None, Some(&auth), plan.lists.epoch, &users);
    until(&link, |state| state.pod_uid.as_deref() == Some("pod-2")).await;
    assert_eq!(session.observe().await, Err(ActError::OtherProcess));
    assert!(!link.answers());
}

#[tokio::test]
async fn secrets_of_another_member_open_no_connection() {
    let (member, link, (plan, users, _)) = answering().await;
    // A reused pod IP: the target of another member leads to the same process.
    place(&link, "pod-2", &member, (&plan, &users, &Auth::random()));
    let lost = until(&link, |state| !state.processes.answers()).await;
    assert_eq!(lost.pod_uid.as_deref(), Some("pod-2"));
    sleep(Duration::from_millis(700)).await;
    assert!(!link.answers());
}

/// One acquisition on this member alone, as the operator does it. Returns the token, if granted.
async fn vote(link: &MemberLink, admitted: &RunId, key: &str) -> Option<FencingToken> {
    vote_by(link.voter(1).unwrap(), admitted, key).await
}

async fn vote_by(voter: Arc<RedisMember>, admitted: &RunId, key: &str) -> Option<FencingToken> {
    let elector = Elector { member: voter as Arc<dyn LockMember>, admitted: Some(admitted.clone()) };
    let redlock =
        Redlock::new(Arc::new(SystemClock), Settings { node_timeout: Duration::from_secs(1), ..Settings::default() });
    let electorate = Electorate::single(vec![elector]);
    // The voting connection is made in the background.
    for _ in 0..20 {
        let request = AcquireRequest {
            key: key.into(),
            value: LockValue::from_text(format!("value-{key}")),
            ttl: Duration::from_secs(30),
            token: true,
        };
        if let Acquire::Granted(grant) = redlock.acquire(&electorate, request).await {
            return Some(grant.token);
        }
        sleep(Duration::from_millis(50)).await;
    }
    None
}

#[tokio::test]
async fn a_process_with_an_older_file_gets_the_new_passwords() {
    let (plan, users) = plan();
    let before = Auth::random();
    let removing = before.begin("t").advance().advance();
    let after = removing.advance();
    // The kubelet has not written the file with the new passwords into the pod yet.
    let member = Member::new(&plan, &before);
    let link = linked(&member, &plan, &users, &removing).await;
    let run_id = link.state().processes.last().unwrap().run_id.clone();
    let operator = removing.accepted("main-0", OPERATOR_USER);
    let rules = plan.user_rules(&removing, "main-0");
    let mut admin = link.admin_session(&run_id).await.unwrap();
    admin.raise_epoch(7).await.unwrap();
    admin.set_passwords(7, &operator, &rules, true).await.unwrap();
    drop(admin);
    let target = |auth| place(&link, "pod-1", &member, (&plan, &users, auth));
    target(&before);
    until(&link, |state| !state.processes.answers()).await;
    target(&after);
    until(&link, |state| state.processes.answers()).await;

    // Users that are opened later have the new passwords as well.
    open(&link, &run_id, 8, &plan.user_rules(&after, "main-0")).await;
    assert!(vote(&link, &run_id, "shop/a").await.is_some());
}
