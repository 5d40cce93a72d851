use redlock_client::test_util::FakeMembers;
use tokio::time::timeout;

use super::super::arguments::tests::parsed;
use super::super::progress::tests::recorded;
use super::*;

/// Direct locks on fake members, and the sender of their client.
async fn connected(args: &LockArgs, members: &FakeMembers) -> (Direct, watch::Sender<Client>) {
    let attempts = broadcast::Sender::new(ATTEMPTS);
    let (builder, _) = builder(args, &Members::Urls(members.urls()), attempts.clone()).unwrap();
    let client = watch::Sender::new(builder.connect_on(members.machine()).await.unwrap());
    (Direct { client: client.subscribe(), attempts, follower: None }, client)
}

/// An agent answers with the last reason, so a reason must not outlast its cause.
#[tokio::test(start_paused = true)]
async fn a_waiting_lock_reports_each_new_reason() {
    let members = FakeMembers::start(3);
    for member in members.iter() {
        member.set("a/b", "another holder", WITHOUT_END);
    }
    let args = parsed(&["--lock", "a/b", "--direct", "--admit-at-once"]);
    let (direct, _client) = connected(&args, &members).await;
    let (mut progress, mut reasons) = recorded(&args.lock);
    let (_end, mut signals) = Signals::of_one_wait();
    let script = async {
        let (why, is_certain) = reasons.recv().await.unwrap();
        assert!(why.contains("held by another") && is_certain, "{why}");
        members.iter().for_each(|member| member.freeze());
        let (why, is_certain) = reasons.recv().await.unwrap();
        assert!(why.contains("no majority") && !is_certain, "{why}");
        members.iter().for_each(|member| member.thaw());
        assert!(reasons.recv().await.unwrap().1, "the other holder is there again");
    };
    tokio::select! {
        taken = take(&direct, &args, &mut signals, &mut progress) => panic!("{:?}", taken.err()),
        scripted = timeout(30 * REFRESH, script) => scripted.unwrap(),
    }
}

/// The attempt takes the free slot.
#[tokio::test(start_paused = true)]
async fn a_held_slot_is_no_other_holder_while_one_is_free() {
    let members = FakeMembers::start(3);
    members.iter().for_each(|member| member.set("a/b#0", "another holder", WITHOUT_END));
    let args = parsed(&["--lock", "a/b", "--direct", "--admit-at-once", "--slots", "2"]);
    let (direct, _client) = connected(&args, &members).await;
    let (mut progress, mut reasons) = recorded(&args.lock);
    let (_end, mut signals) = Signals::of_one_wait();
    // The first slot of an attempt is random.
    for _ in 0..16 {
        let held = take(&direct, &args, &mut signals, &mut progress).await.unwrap_or_else(|error| panic!("{error:?}"));
        held.release_one().await.unwrap();
    }
    assert_eq!(reasons.try_recv().ok(), None);
    members.iter().for_each(|member| member.set("a/b#1", "a second one", WITHOUT_END));
    assert!(timeout(REFRESH, take(&direct, &args, &mut signals, &mut progress)).await.is_err());
    assert!(reasons.try_recv().unwrap().0.contains("held by another"), "no slot is free");
}

/// An agent answers with the newest text. The user gets a line for each kind of reason only.
#[tokio::test]
async fn a_new_text_of_the_same_reason_reaches_the_listener() {
    let args = parsed(&["--lock", "a/b"]);
    let (attempts, mut received) = broadcast::channel(ATTEMPTS);
    for refusals in [2, 3, 3] {
        attempts.send(("a/b".to_owned(), NotAcquired::HeldByOther { refusals, longest: None })).unwrap();
    }
    drop(attempts);
    let (mut progress, mut reasons) = recorded(&args.lock);
    timeout(REFRESH / 20, report(&mut received, &args, &mut progress)).await.unwrap_err();
    let texts: Vec<_> = std::iter::from_fn(|| reasons.try_recv().ok()).collect();
    assert!(matches!(&texts[..], [first, second] if first != second), "{texts:?}");
}

#[test]
fn a_place_is_independent_of_the_order_of_members() {
    let of = |urls: &[&str]| addresses(&Members::Urls(urls.iter().map(|url| (*url).to_owned()).collect())).unwrap();
    assert_eq!(of(&["redis://u:p@b:1", "redis://a:2/"]), "a:2,b:1");
    assert_eq!(of(&["redis://a:2", "redis://x:y@b:1"]), "a:2,b:1");
    assert_eq!(of(&["redis://x:y@a:2/0", "rediss://b:1/0"]), "a:2,b:1");
    assert_eq!(of(&["redis://a", "redis://[fd00::7]/0"]), of(&["redis://a:6379", "redis://[fd00::7]:6379"]));
}
