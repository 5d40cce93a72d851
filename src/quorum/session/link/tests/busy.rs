//! Clients that keep a member busy or full, with the operator's link to it.

use redis::Pipeline;

use super::watches::{EPOCH, busy, client, connect, led};
use super::*;
use crate::redis_member::Strain;

const ENDLESS: &str = "while true do end";

async fn until_true(what: &str, link: &MemberLink, is_true: impl Fn(&MemberLink) -> bool) {
    let reached = async {
        while !is_true(link) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(3 * PATIENCE, reached).await.unwrap_or_else(|_| panic!("{what}: {:?}", link.view()));
}

fn is_shut_out(link: &MemberLink, strain: Strain) -> bool {
    link.shut_out().iter().any(|shut_out| shut_out.user == "billing-e1" && shut_out.strain == strain)
}

async fn votes_again(link: &MemberLink) {
    let run_id = link.view().sight.unwrap().run_id;
    assert!(vote(link, &run_id, "k").await.is_some());
    until(link, |view| view.observation.as_ref().is_some_and(|seen| seen.open_users == ["locker-e1"])).await;
}

#[tokio::test]
async fn who_sends_many_endless_scripts_at_once_is_shut_out_when_they_have_been_ended() {
    let (member, link, _end, auth) = led().await;
    let mut sender = client(&member, &auth).await;
    tokio::spawn(async move {
        let mut scripts = Pipeline::new();
        for _ in 0..20 {
            scripts.cmd("EVAL").arg(ENDLESS).arg(1).arg("shop/k");
        }
        drop(scripts.query_async::<()>(&mut sender).await);
        // Whoever has gone cannot be told any more.
        std::future::pending::<()>().await;
    });
    until_true("shut out", &link, |link| is_shut_out(link, Strain::Time)).await;
    assert_eq!(
        link.shut_out_in_words(),
        ["Client billing used most of the time of main-0, so the operator refuses it there for a minute"]
    );
    assert!(!link.is_stuck());
    votes_again(&link).await;
}

#[tokio::test]
async fn a_sender_who_does_not_wait_for_answers_and_comes_again_is_shut_out() {
    let (member, link, _end, auth) = led().await;
    let sends = tokio::spawn(async move {
        loop {
            // The operator closes its connections with its scripts, also one that has just begun.
            let Ok(mut sender) = connect(&member, &auth).await else { continue };
            let mut scripts = Pipeline::new();
            for _ in 0..10 {
                scripts.cmd("EVAL").arg(ENDLESS).arg(0);
            }
            // Far less than the scripts take: they run on after this connection.
            drop(tokio::time::timeout(Duration::from_millis(500), scripts.query_async::<()>(&mut sender)).await);
        }
    });
    until_true("shut out", &link, |link| is_shut_out(link, Strain::Time)).await;
    sends.abort();
}

#[tokio::test]
async fn who_sends_the_next_endless_script_as_soon_as_one_was_ended_is_shut_out() {
    let (member, link, _end, auth) = led().await;
    let mut sender = client(&member, &auth).await;
    let sends = tokio::spawn(async move {
        loop {
            let ended = redis::cmd("EVAL").arg(ENDLESS).arg(1).arg("shop/k").exec_async(&mut sender).await;
            if ended.is_err_and(|error| error.code() == Some("NOPERM") || error.is_connection_dropped()) {
                return;
            }
        }
    });
    until_true("shut out", &link, |link| is_shut_out(link, Strain::Time)).await;
    tokio::time::timeout(PATIENCE, sends).await.expect("it gets no further").unwrap();
    votes_again(&link).await;
}

#[tokio::test]
async fn a_member_whose_script_cannot_be_ended_is_stuck_after_some_seconds_and_not_at_once() {
    let (member, link, _end, auth) = led().await;
    let began = SystemClock.monotonic();
    busy(client(&member, &auth).await, "redis.call('SET', KEYS[1], 'v') while true do end");
    until_true("stuck", &link, MemberLink::is_stuck).await;
    assert!(SystemClock.monotonic().since(began) >= Duration::from_secs(5));
    assert!(link.is_seen() && link.shut_out().is_empty());
}

#[tokio::test]
async fn a_new_leader_raises_its_epoch_on_a_member_that_a_client_keeps_full() {
    let (member, _former, former_end, auth) = led().await;
    // The leader before is gone, and can help nobody.
    drop(former_end);
    let (plan, users) = plan();
    let (link, _end) = linked(&member, &plan, &users, &auth).await;
    let mut sender = client(&member, &auth).await;
    let is_full = Arc::new(tokio::sync::Notify::new());
    let full = is_full.clone();
    let fills = tokio::spawn(async move {
        // First quickly, then to the brim: a large argument counts only while it is received.
        let mut size = 900_000;
        for number in 0.. {
            let (key, value) = (format!("shop/{number}"), "v".repeat(size));
            let set = redis::cmd("SET").arg(key).arg(value).arg("PX").arg(6_000).exec_async(&mut sender).await;
            match set.map_err(|error| error.code().map(str::to_owned)) {
                Err(Some(code)) if code == "OOM" && size > 1_000 => size = 1_000,
                Err(Some(code)) if code == "OOM" => is_full.notify_one(),
                Err(_) => return,
                Ok(()) => {}
            }
        }
    });
    let run_id = link.view().sight.unwrap().run_id;
    tokio::time::timeout(PATIENCE, full.notified()).await.expect("it fills the member");
    let raises = async {
        loop {
            match link.admin_session(&run_id).await.unwrap().raise_epoch(EPOCH + 1).await {
                Ok(()) => return,
                Err(error) => assert_eq!(error, ActError::Member(MemberError::OutOfMemory)),
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(2 * PATIENCE, raises).await.expect("it leads");
    tokio::time::timeout(PATIENCE, fills).await.expect("it gets no further").unwrap();
    assert!(is_shut_out(&link, Strain::Memory));
}

#[tokio::test]
async fn scripts_that_somebody_has_loaded_by_the_thousand_are_thrown_away_and_the_lockers_are_loaded_again() {
    let (member, link, _end, auth) = led().await;
    let run_id = link.view().sight.unwrap().run_id;
    assert!(vote(&link, &run_id, "a").await.is_some());
    let mut sender = client(&member, &auth).await;
    for batch in 0..40 {
        let mut scripts = Pipeline::new();
        for number in 0..50 {
            let text = format!("local x = '{batch}-{number}-{}' return x", "s".repeat(9_000));
            scripts.cmd("SCRIPT").arg("LOAD").arg(text).ignore();
        }
        scripts.query_async::<()>(&mut sender).await.unwrap();
    }
    until(&link, |view| {
        view.observation.as_ref().is_some_and(|seen| !seen.load.is_full_of_scripts() && seen.load.scripts > 0)
    })
    .await;
    let votes = async {
        let mut number = 0;
        while vote(&link, &run_id, &format!("b{number}")).await.is_none() {
            number += 1;
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, votes).await.expect("it loads its scripts again");
    assert!(link.shut_out().is_empty(), "nobody knows who it was");
}
