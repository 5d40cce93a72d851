//! Takes one lock when the application wants it, tells the desk what it knows of it, and gives it back when nobody relies on it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::super::holding::{
    End, Held, LONGEST_SLEEP, LockArgs, NotHeld, Progress, Reason, Signals, Validity, Way, reserve,
};
use super::book::Hold;
use super::desk::{Desk, Order, now};
use crate::command::console;

/// After a try that failed; it doubles up to the second.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// What ends a wait.
const END: i32 = 15;

/// Until the agent is stopped, or the lock is neither wanted nor standing.
pub(super) async fn keep(desk: Arc<Desk>, way: Arc<Way>, lock: String) {
    let mut pause = PAUSE;
    loop {
        let Some(order) = wished(&desk, &lock).await else { return };
        match campaign(&desk, &way, &lock, &order.args).await {
            Ok(held) => {
                pause = PAUSE;
                follow(&desk, &lock, &order, held).await;
                continue;
            }
            Err(NotHeld::Signal(_)) => {
                desk.learns(&lock, |book, _| book.learns_not_held("the application does not ask for it"));
                continue;
            }
            Err(NotHeld::NotAcquired(why)) => learns(&desk, &lock, &Reason { why, is_known: true }),
            Err(NotHeld::NotAnswered(why)) => learns(&desk, &lock, &Reason { why, is_known: false }),
            Err(NotHeld::Failed(error)) => {
                console::report(format_args!("lock {lock}: {error:#}"));
                desk.learns(&lock, |book, _| book.learns_nothing(&format!("{error:#}")));
            }
        }
        desk.has_failed(&lock);
        wait(&desk, pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn learns(desk: &Desk, lock: &str, Reason { why, is_known }: &Reason) {
    desk.learns(lock, |book, _| if *is_known { book.learns_not_held(why) } else { book.learns_nothing(why) });
}

/// How the lock is wanted, as soon as it is. `None`: the agent does not care for it any more.
async fn wished(desk: &Desk, lock: &str) -> Option<Order> {
    let mut changes = desk.changes();
    loop {
        if let Some(order) = desk.wish(lock) {
            return Some(order);
        }
        if desk.forgets(lock) {
            return None;
        }
        desk.pause(lock, &mut changes).await;
    }
}

async fn wait(desk: &Desk, longest: Duration) {
    let mut changes = desk.changes();
    let stopped = async { while !desk.is_stopping() && changes.changed().await.is_ok() {} };
    let _ = timeout(longest, stopped).await;
}

/// Takes the lock, or gives up when it is not wanted any more.
async fn campaign(desk: &Desk, way: &Way, lock: &str, args: &LockArgs) -> Result<Held, NotHeld> {
    let (cancel, mut signals) = Signals::of_one_wait();
    let (told, mut said) = watch::channel(Reason::default());
    let mut progress = Progress::heard_by(&args.lock, told);
    let mut taking = pin!(way.take(args, &mut signals, &mut progress));
    let mut changes = desk.changes();
    let mut is_cancelled = false;
    loop {
        tokio::select! {
            biased;
            taken = &mut taking => return taken,
            Ok(()) = said.changed() => {
                let reason = said.borrow_and_update().clone();
                learns(desk, lock, &reason);
            }
            () = desk.pause(lock, &mut changes), if !is_cancelled => {
                if !desk.is_wanted(lock) {
                    is_cancelled = cancel.try_send(END).is_ok();
                }
            }
        }
    }
}

/// As long as the lock is held and wanted, and until nobody relies on it.
async fn follow(desk: &Desk, lock: &str, order: &Order, held: Held) {
    let kept_back = reserve(order.args.ttl.get());
    let most = order.args.max_hold.map(|most| now() + most.get());
    let mut validity = held.validity.clone();
    let mut changes = desk.changes();
    let mut is_known = true;
    let known = |why: String| Reason { why, is_known: true };
    let reason = loop {
        let Validity { until, end } = validity.borrow_and_update().clone();
        if let Some(end) = end {
            break known(text(&end));
        }
        let hold = Hold::new(held.token, held.holder.clone(), true, until, kept_back);
        desk.learns(lock, |book, now| book.learns_hold(&hold, now));
        if most.is_some_and(|most| most <= now()) {
            break known(text(&End::MaxHold));
        }
        if !desk.is_wanted(lock) {
            break known("the application does not want it any more, or does not ask".to_owned());
        }
        if !desk.look(lock, |book, now| book.serves(now)).unwrap_or(false) {
            let is_late = desk.look(lock, |book, _| book.has_lapsed()).unwrap_or(false);
            let why = if is_late { "it was not renewed in time" } else { "another instance has registered since" };
            break Reason { why: why.to_owned(), is_known: !is_late };
        }
        tokio::select! {
            changed = validity.changed(), if is_known => is_known = changed.is_ok(),
            () = desk.pause(lock, &mut changes) => {}
        }
    };
    console::report(format_args!("lock {lock}: token {} is given back: {}", held.token, reason.why));
    // From here on it is not told any more; what was told before is waited for.
    learns(desk, lock, &reason);
    desk.has_failed(lock);
    until_free(desk, lock, order).await;
    if let Err(error) = held.release_one().await {
        console::report(format_args!("lock {lock}: {error:#}"));
    }
}

/// Until no promise is valid any more, and the shortest time to hold has passed.
async fn until_free(desk: &Desk, lock: &str, order: &Order) {
    loop {
        let is_relied_on = desk.look(lock, |book, now| !book.is_out_of_use(now)).unwrap_or(false);
        let left = order.not_before.map(|least| least.since(now())).filter(|left| !left.is_zero());
        if !is_relied_on && left.is_none() {
            return;
        }
        let told = desk.look(lock, |book, now| book.next_change(now)).flatten();
        sleep(told.into_iter().chain(left).min().unwrap_or(PAUSE).min(LONGEST_SLEEP)).await;
    }
}

fn text(end: &End) -> String {
    match end {
        End::Lost(why) => format!("it was lost: {why}"),
        End::MaxHold => "it was held for as long as it may be".to_owned(),
    }
}
