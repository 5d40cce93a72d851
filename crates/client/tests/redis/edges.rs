//! Dropped guards, ends of clients and runtimes, suspended machines, and callbacks that panic.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use redlock_client::test_util::{FakeMember, FakeMembers};
use redlock_client::{Client, Event, Guard, NotAcquired};
use redlock_engine::redlock::BoxFuture;
use redlock_engine::time::{Boottime, Clock, Monotonic, UnixMillis};
use redlock_engine::voting::{Connect, Machine, Stream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{LONG, TTL, acquired, connected, is_free};

/// A release after a hold of this length is announced.
const ANNOUNCED: Duration = Duration::from_millis(120);

#[tokio::test]
async fn a_guard_is_dropped_on_a_thread_without_a_runtime() {
    let members = FakeMembers::start(3);
    let client = connected(&members).await;
    let guard = acquired(&client, "k").await;
    sleep(ANNOUNCED).await;
    thread::spawn(move || drop(guard)).join().expect("it does not panic");
    is_free(&members, "k", LONG).await;
}

#[tokio::test]
async fn a_caller_that_waits_is_dropped_on_a_thread_without_a_runtime() {
    let members = FakeMembers::start(3);
    let refusals = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refusals);
    let builder = Client::builder(members.urls()).admit_at_once().on_event(move |event| {
        if matches!(event, Event::NotAcquired { .. }) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let client = builder.connect_on(members.machine()).await.unwrap();
    let guard = acquired(&client, "k").await;
    let waiter = client.clone();
    let mut waiting = Box::pin(async move { waiter.lock("k").ttl(TTL).wait(LONG).acquire().await });
    // The waiter is refused, and announces that it waits.
    while refusals.load(Ordering::Relaxed) < 2 {
        assert!(timeout(Duration::from_millis(5), waiting.as_mut()).await.is_err());
    }
    thread::spawn(move || drop(waiting)).join().expect("it does not panic");
    assert!(guard.is_held());
}

#[tokio::test]
async fn nothing_is_granted_after_a_client_was_closed() {
    for _ in 0..20 {
        let members = FakeMembers::start(3);
        let client = connected(&members).await;
        let mut attempts = JoinSet::new();
        for number in 0..20 {
            let client = client.clone();
            attempts.spawn(async move {
                sleep(Duration::from_micros(50 * number)).await;
                client.lock(format!("k{number}")).ttl(TTL).try_acquire().await.ok()
            });
        }
        sleep(Duration::from_micros(300)).await;
        client.close(LONG).await.unwrap();
        let held: usize = (0..20).map(|number| members.holders(&format!("k{number}"))).sum();
        assert_eq!(held, 0, "no key is left after close");
        let guards = attempts.join_all().await;
        assert!(!guards.iter().flatten().any(Guard::is_held), "no guard holds a lock");
        assert_eq!(client.lock("k").ttl(TTL).try_acquire().await.err(), Some(NotAcquired::Closed));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_closed_ends_the_waiting() {
    let members = FakeMembers::start(3);
    let (holder, client) = (connected(&members).await, connected(&members).await);
    let _guard = acquired(&holder, "k").await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let client = client.clone();
        waiting.push(tokio::spawn(async move { client.lock("k").ttl(TTL).wait(10 * TTL).acquire().await.err() }));
    }
    sleep(Duration::from_millis(300)).await;
    client.close(LONG).await.unwrap();
    for waiting in waiting {
        let ended = timeout(Duration::from_millis(10), waiting).await.expect("the wait ends with the client");
        assert_eq!(ended.unwrap(), Some(NotAcquired::Closed));
    }
}

#[tokio::test(start_paused = true)]
async fn a_callback_that_panics_ends_no_renewal() {
    let members = FakeMembers::start(3);
    let builder = Client::builder(members.urls()).admit_at_once().on_event(|event| match event {
        Event::Acquired { .. } | Event::Renewed { .. } => panic!("a defect of the callback"),
        _ => {}
    });
    let client = builder.connect_on(members.machine()).await.unwrap();
    let guard = acquired(&client, "k").await;
    sleep(3 * TTL).await;
    assert!(guard.is_held());
}

/// The members' clocks can run faster than that of the client.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_left_lasts_on_the_fastest_clock() {
    let members = FakeMembers::start(3);
    let client = connected(&members).await;
    let guard = acquired(&client, "k").await;
    guard.leave(Duration::from_secs(60)).await.unwrap();
    // The drift allowance is one percent.
    sleep(Duration::from_millis(60_500)).await;
    assert_eq!(members.holders("k"), 3);
    sleep(Duration::from_millis(1_000)).await;
    assert_eq!(members.holders("k"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_cannot_be_left() {
    let members = FakeMembers::start(3);
    let client = connected(&members).await;
    let guard = acquired(&client, "k").await;
    members.iter().for_each(|member| member.delete("k"));
    let lost = guard.lost().await;
    assert_eq!(guard.leave(Duration::ZERO).await, Err(lost));
}

#[tokio::test(start_paused = true)]
async fn each_hold_ends_with_one_event() {
    let (members, ends) = (FakeMembers::start(3), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&ends);
    let builder = Client::builder(members.urls()).admit_at_once().on_event(move |event| {
        let is_end = matches!(event, Event::Released { .. } | Event::Lost { .. });
        counted.fetch_add(usize::from(is_end), Ordering::Relaxed);
    });
    let client = builder.connect_on(members.machine()).await.unwrap();
    let lost = client.lock("lost").ttl(TTL).try_acquire().await.unwrap();
    members.iter().for_each(|member| member.delete("lost"));
    lost.lost().await;
    drop(lost);
    assert_eq!(ends.load(Ordering::Relaxed), 1, "the loss");
    let closed = client.lock("closed").ttl(TTL).try_acquire().await.unwrap();
    client.close(LONG).await.unwrap();
    drop(closed);
    assert_eq!(ends.load(Ordering::Relaxed), 2, "the release by the client");
}

#[tokio::test(start_paused = true)]
async fn a_release_wakes_a_waiter_of_the_same_client() {
    let members = FakeMembers::start(3);
    let builder = Client::builder(members.urls()).admit_at_once().retry(LONG);
    let client = builder.connect_on(members.machine()).await.unwrap();
    let guard = acquired(&client, "k").await;
    let task = tokio::spawn(async move { client.lock("k").ttl(TTL).wait(LONG).acquire().await });
    // The pause of the waiter is several seconds by then.
    sleep(LONG / 2).await;
    let _ = guard.release().await;
    let woken = timeout(Duration::from_millis(50), task).await.expect("the release is a hint");
    assert!(woken.unwrap().unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn an_unfinished_check_of_other_slots_is_repeated() {
    let members = FakeMembers::start(3);
    let (frozen, is_first) = (members.clone(), AtomicBool::new(true));
    let builder = Client::builder(members.urls()).admit_at_once().on_event(move |event| {
        // The check follows the first grant.
        if matches!(event, Event::Acquired { .. }) && is_first.swap(false, Ordering::Relaxed) {
            frozen[..2].iter().for_each(FakeMember::freeze);
        }
    });
    let client = builder.connect_on(members.machine()).await.unwrap();
    let task = tokio::spawn(async move { client.lock("k").ttl(TTL).wait(LONG).refuse_other_slots().acquire().await });
    sleep(Duration::from_millis(500)).await;
    assert!(!task.is_finished(), "there is time left");
    members[..2].iter().for_each(FakeMember::thaw);
    let guard = task.await.unwrap().unwrap();
    assert!(guard.is_held() && members.holders("k") >= 2);
}

/// A clock whose boot time jumps by these seconds, as after a suspend.
struct SuspendedClock(Arc<dyn Clock>, AtomicU64);

impl Clock for SuspendedClock {
    fn boottime(&self) -> Boottime {
        self.0.boottime() + Duration::from_secs(self.1.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Monotonic {
        self.0.monotonic()
    }

    fn wall(&self) -> UnixMillis {
        self.0.wall()
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_renewed_soon_after_a_suspend() {
    let members = FakeMembers::start(3);
    let Machine { clock, network } = members.machine();
    let clock = Arc::new(SuspendedClock(clock, AtomicU64::new(0)));
    let machine = Machine { clock: Arc::clone(&clock) as Arc<dyn Clock>, network };
    let client = Client::builder(members.urls()).admit_at_once().connect_on(machine).await.unwrap();
    let guard = acquired(&client, "k").await;
    sleep(Duration::from_millis(100)).await;
    clock.1.store(TTL.as_secs() * 3 / 4, Ordering::Relaxed);
    assert!(guard.is_held(), "a quarter of the time to live is left");
    // On tokio's clock the renewal would be due after a third of the time to live.
    sleep(TTL * 3 / 10).await;
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn extreme_settings_cause_no_panic() {
    let members = FakeMembers::start(1);
    let builder = Client::builder(members.urls()).admit_at_once().retry(Duration::MAX).node_timeout(Duration::MAX);
    let client = builder.connect_on(members.machine()).await.unwrap();
    let guard = timeout(LONG, client.election("k").campaign()).await.expect("its counter is restored").unwrap();
    assert!(guard.is_held());
}

/// A network that panics on request.
struct Defective(Machine, Arc<AtomicBool>);

impl Connect for Defective {
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        assert!(!self.1.load(Ordering::Relaxed), "a defect of the network");
        self.0.network.connect(address)
    }
}

#[tokio::test(start_paused = true)]
async fn connections_that_ended_by_a_panic_have_their_own_error() {
    let members = FakeMembers::start(3);
    let panics = Arc::new(AtomicBool::new(false));
    let machine = members.machine();
    let clock = Arc::clone(&machine.clock);
    let network = Arc::new(Defective(machine, Arc::clone(&panics)));
    let client = Client::builder(members.urls()).admit_at_once().connect_on(Machine { clock, network }).await.unwrap();
    assert!(client.lock("k").ttl(TTL).try_acquire().await.is_ok());
    panics.store(true, Ordering::Relaxed);
    members[0].restart();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(client.lock("k").ttl(TTL).wait(LONG).acquire().await.err(), Some(NotAcquired::Broken));
}

#[cfg(feature = "blocking")]
mod blocking {
    use super::*;
    use crate::{builder, servers, urls};

    #[test]
    fn the_last_handle_waits_for_the_release_also_in_async_code() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let servers = runtime.block_on(servers(3));
        let connect = || redlock_client::blocking::Client::connect(builder(urls(&servers))).unwrap();
        for _ in 0..5 {
            let client = connect();
            let guard = client.lock("k").ttl(TTL).wait(LONG).acquire().unwrap();
            thread::sleep(ANNOUNCED);
            drop(client);
            drop(guard);
            for server in &servers {
                assert!(!runtime.block_on(server.has("k")));
            }
        }
        let client = connect();
        runtime.block_on(async move { drop(client) });
    }
}
