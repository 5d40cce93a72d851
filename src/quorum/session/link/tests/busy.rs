//! Clients that keep a member busy or full, with the operator's link to it.

use redis::Pipeline;

use super::watches::{busy, client, led};
use super::*;
use crate::quorum::model::plan::external_members;
use crate::quorum::session::placement::place_claim;
use crate::redis_member::{Guard, Secret};
use crate::redlock::MemberError;

const ENDLESS: &str = "while true do end";

async fn until_true(what: &str, link: &MemberLink, mut is_true: impl FnMut(&MemberLink) -> bool) {
    let reached = found(3 * PATIENCE, || is_true(link).then_some(())).await;
    reached.unwrap_or_else(|| panic!("{what}: {:?}", link.state()));
}

async fn votes_again(link: &MemberLink) {
    let run_id = link.state().processes.last().unwrap().run_id.clone();
    let votes = async { while vote(link, &run_id, "k").await.is_none() {} };
    tokio::time::timeout(PATIENCE, votes).await.expect("it votes");
    until(link, |state| state.observation().is_some_and(|seen| seen.open_users.contains(&"locker-e1".to_owned())))
        .await;
}

#[tokio::test]
async fn endless_scripts_are_ended_in_turn_and_the_member_votes_again() {
    let (member, link, auth) = led().await;
    let mut sender = client(&member, &auth).await;
    let sent = tokio::spawn(async move {
        let mut scripts = Pipeline::new();
        for _ in 0..20 {
            scripts.cmd("EVAL").arg(ENDLESS).arg(1).arg("shop/k");
        }
        drop(scripts.query_async::<()>(&mut sender).await);
        sender
    });
    let _still_connected = tokio::time::timeout(3 * PATIENCE, sent).await.expect("all are ended").unwrap();
    assert!(!link.is_stuck());
    votes_again(&link).await;
}

/// Opens connections until the member has `maxclients` of them.
async fn filled(member: &Member, link: &MemberLink) -> Vec<std::net::TcpStream> {
    let mut idle = Vec::new();
    until_true("full", link, |link| {
        idle.push(std::net::TcpStream::connect(member.address()).unwrap());
        link.state().observation().is_some_and(|seen| seen.is_full)
    })
    .await;
    idle
}

#[tokio::test]
async fn a_member_that_refuses_connections_is_full() {
    let (member, link, auth) = led().await;
    let idle = filled(&member, &link).await;
    let run_id = link.state().processes.last().unwrap().run_id.clone();
    let refused = link.admin_session(&run_id).await.map(drop);
    assert!(
        matches!(&refused, Err(ActError::Member(error)) if *error != crate::redlock::MemberError::Refused),
        "{refused:?}"
    );
    drop((idle, auth));
}

#[tokio::test]
async fn a_member_with_an_unkillable_script_is_stuck_after_seconds() {
    let (member, link, auth) = led().await;
    let began = SystemClock.monotonic();
    busy(client(&member, &auth).await, "redis.call('SET', KEYS[1], 'v') while true do end");
    until_true("stuck", &link, MemberLink::is_stuck).await;
    assert!(SystemClock.monotonic().since(began) >= Duration::from_secs(5));
    assert!(link.answers());
}

/// A link to this process as an external master of another quorum.
fn external(link: &MemberLink, member: &Member, user: &str, password: Secret) -> Arc<MemberLink> {
    let masters = ["a", "b", "c"].map(|name| serde_json::json!({"name": name, "address": member.address()}));
    let spec = serde_json::json!({"members": 0, "external": masters});
    let quorum = RedisQuorum::new("far", serde_json::from_value(spec).unwrap());
    let plan = external_members(&quorum).into_iter().next().unwrap();
    let agreement = Arc::default();
    place_claim(&agreement, &quorum);
    let shared = Shared { agreement, quorum: ObjectRef::new("far").within("locks"), ..link.shared.clone() };
    let far = MemberLink::start(shared, plan);
    let user = Endpoint { address: member.address(), username: user.to_owned(), password, tls: None };
    far.place_external(Some(user), None, 1, Guard { uid: "far".to_owned(), epoch: 2, since: None });
    far
}

fn trouble(far: &MemberLink) -> Option<String> {
    far.shared.agreement.lock().trouble(&far.name).map(str::to_owned)
}

#[tokio::test]
async fn a_busy_external_master_is_not_awaited_and_is_reported() {
    let (member, link, auth) = led().await;
    busy(client(&member, &auth).await, "redis.call('SET', KEYS[1], 'v') while true do end");
    until_true("stuck", &link, MemberLink::is_stuck).await;

    let far = external(&link, &member, OPERATOR_USER, auth.password("main-0", OPERATOR_USER));
    until_true("reported", &far, |far| trouble(far).is_some()).await;
    assert_eq!(trouble(&far), Some(MemberError::Busy.to_string()));
}

/// The user can log in, and the master refuses the first read.
#[tokio::test]
async fn a_master_that_refuses_a_read_is_reported_and_rarely_retried() {
    let (member, link, auth) = led().await;
    let password = auth.password("main-0", OPERATOR_USER);
    let url = format!("redis://{OPERATOR_USER}:{}@{}/", password.expose(), member.address());
    let mut admin = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    let mut rule = redis::cmd("ACL");
    rule.arg(&["SETUSER", "blind", "on", ">secret", "~shop/*", "+@all"]).exec_async(&mut admin).await.unwrap();
    let connections = async |admin: &mut redis::aio::MultiplexedConnection| {
        let info: String = redis::cmd("INFO").arg("stats").query_async(admin).await.unwrap();
        let received = info.lines().find_map(|line| line.strip_prefix("total_connections_received:")).unwrap();
        received.trim().parse::<u64>().unwrap()
    };
    let before = connections(&mut admin).await;
    let far = external(&link, &member, "blind", Secret::new("secret"));
    until_true("reported", &far, |far| trouble(far).is_some_and(|text| text.contains("NOPERM"))).await;
    sleep(Duration::from_secs(2)).await;
    let made = connections(&mut admin).await - before;
    assert!(made < 30, "{made} connections in two seconds");
}

/// A member that is full when the operator starts has no connection to report that.
#[tokio::test]
async fn a_member_that_refuses_the_operator_is_full() {
    let (member, link, auth) = led().await;
    let idle = filled(&member, &link).await;
    let (plan, users) = plan();
    let other = started(&member, &plan, &users, &auth);
    until_true("full for another replica", &other, MemberLink::is_full).await;
    assert!(!other.answers());
    drop(idle);
}
