//! The terminal, the watches and the signals of the full-screen view.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream, FuturesUnordered};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Resource, ResourceExt as _};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::view::{Action, Name, View};
use crate::change;
use crate::cluster::Cluster;
use crate::cluster::objects::{LockObject, QuorumObject};
use redlock_api::STEP_DOWN_ANNOTATION;
use redlock_api::requests::Namespaced;
use redlock_api::watches::{Reconnect, WATCH_SECONDS};

/// Time between two frames. Bars and countdowns move with each frame.
const FRAME: Duration = Duration::from_millis(250);
/// Time between two checks of the keyboard's thread whether the receiver still exists.
const POLL: Duration = Duration::from_millis(100);

/// The terminal in full-screen mode. It is restored on drop, and before a panic is reported.
struct Screen(DefaultTerminal);

impl Drop for Screen {
    fn drop(&mut self) {
        // A failure means that the terminal is gone, and then needs no restoration.
        let _ = ratatui::try_restore();
    }
}

/// Shows the view until the user leaves it or a signal ends it.
pub(super) async fn run(
    cluster: &Cluster,
    namespace: Option<&str>,
    quorums: Option<&str>,
    mut view: View,
) -> anyhow::Result<()> {
    let mut locks = watch::<LockObject>(cluster, namespace);
    let mut quorums = watch::<QuorumObject>(cluster, quorums);
    let (mut new_locks, mut new_quorums) = (BTreeMap::new(), BTreeMap::new());
    let mut end = std::pin::pin!(end_signal()?);
    let mut screen = Screen(ratatui::try_init()?);
    let mut keys = keyboard();
    let mut acts = FuturesUnordered::new();
    let mut frames = interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(event) = locks.next() => {
                view.is_loaded |= matches!(event, Ok(watcher::Event::InitDone));
                apply(event, &mut view.locks, &mut new_locks, &mut view.lock_outage);
                continue;
            }
            Some(event) = quorums.next() => {
                apply(event, &mut view.quorums, &mut new_quorums, &mut view.quorum_outage);
                continue;
            }
            Some(result) = acts.next(), if !acts.is_empty() => view.notice = Some(result),
            key = keys.recv() => match key.map(|key| view.on_key(key, cluster.now())) {
                None | Some(Action::Quit) => return Ok(()),
                Some(Action::StepDown(lock)) => acts.push(step_down(cluster, lock)),
                Some(Action::Draw) => {}
            },
            _ = frames.tick() => {}
            () = &mut end => return Ok(()),
        }
        screen.0.draw(|frame| view.draw(frame, cluster.now()))?;
    }
}

/// Asks a holder to step down. Returns the result as a sentence.
async fn step_down(cluster: &Cluster, lock: Box<LockObject>) -> String {
    match change::annotate(cluster, &lock, STEP_DOWN_ANNOTATION, "redlock top").await {
        Ok(()) => format!("The holder of {} was asked to step down.", lock.lock()),
        Err(problem) => format!("error: {}", problem.what),
    }
}

type WatchEvent<K> = Result<watcher::Event<K>, watcher::Error>;

/// Watches the objects.
///
/// After an error it begins with a new list, which shows the end of the outage. A resumed watch reports nothing until an object changes.
fn watch<K>(cluster: &Cluster, namespace: Option<&str>) -> BoxStream<'static, WatchEvent<K>>
where
    K: Namespaced + Send + 'static,
{
    let api = cluster.api::<K>(namespace);
    let until_error = move || {
        let events = watcher(api.clone(), watcher::Config::default().timeout(WATCH_SECONDS)).boxed();
        stream::unfold(Some(events), async |events| {
            let mut events = events?;
            let event = events.next().await?;
            let rest = event.is_ok().then_some(events);
            Some((event, rest))
        })
    };
    stream::repeat_with(until_error).flatten().backoff(Reconnect::default()).boxed()
}

/// Applies one event of a watch, and updates the reason why the objects are not current.
fn apply<K: Resource>(
    event: WatchEvent<K>,
    objects: &mut BTreeMap<Name, K>,
    new: &mut BTreeMap<Name, K>,
    outage: &mut Option<String>,
) {
    let name = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
    let mut reason = None;
    match event {
        Ok(watcher::Event::Init) => return new.clear(),
        Ok(watcher::Event::InitApply(object)) => return drop(new.insert(name(&object), object)),
        Ok(watcher::Event::InitDone) => *objects = std::mem::take(new),
        Ok(watcher::Event::Apply(object)) => drop(objects.insert(name(&object), object)),
        Ok(watcher::Event::Delete(object)) => drop(objects.remove(&name(&object))),
        Err(error) => reason = Some(format!("the watch was interrupted and begins again: {error}")),
    }
    *outage = reason;
}

/// Receives pressed keys from a thread.
///
/// The thread ends when the receiver is dropped or the terminal is gone.
fn keyboard() -> mpsc::Receiver<KeyEvent> {
    let (keys, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        while !keys.is_closed() {
            match event::poll(POLL).and_then(|has_event| has_event.then(event::read).transpose()) {
                Ok(Some(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                    let _ = keys.blocking_send(key);
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    });
    receiver
}

/// A future that is ready when a signal ends this process. The call installs the handlers.
#[cfg(unix)]
fn end_signal() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let kinds = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit()];
    let mut signals = kinds.into_iter().map(signal).collect::<std::io::Result<Vec<_>>>()?;
    Ok(async move {
        let received = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
        futures::future::select_all(received).await;
    })
}

/// A future that is ready when Ctrl-C ends this process.
#[cfg(not(unix))]
fn end_signal() -> std::io::Result<impl Future<Output = ()>> {
    Ok(async { drop(tokio::signal::ctrl_c().await) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fake::{failure, is_watch, list};

    #[test]
    fn an_outage_of_one_watch_outlasts_events_of_the_other_one() {
        let (mut view, mut locks, mut quorums) = (View::default(), BTreeMap::new(), BTreeMap::new());
        let failed = Err(watcher::Error::NoResourceVersion);
        apply(failed, &mut view.locks, &mut locks, &mut view.lock_outage);
        apply(Ok(watcher::Event::InitDone), &mut view.quorums, &mut quorums, &mut view.quorum_outage);
        apply(Ok(watcher::Event::Init), &mut view.locks, &mut locks, &mut view.lock_outage);
        assert!(view.lock_outage.is_some() && view.quorum_outage.is_none());
        apply(Ok(watcher::Event::InitDone), &mut view.locks, &mut locks, &mut view.lock_outage);
        assert_eq!(view.lock_outage, None, "the new list is complete");
    }

    #[tokio::test(start_paused = true)]
    async fn an_interrupted_watch_begins_with_a_new_list() {
        let cluster = Cluster::answering(|request| match is_watch(request) {
            true => failure(500, "InternalError"),
            false => list(&[]),
        });
        let mut events = watch::<LockObject>(&cluster, Some("shop"));
        for _ in 0..2 {
            assert!(matches!(events.next().await, Some(Ok(watcher::Event::Init))));
            assert!(matches!(events.next().await, Some(Ok(watcher::Event::InitDone))));
            assert!(matches!(events.next().await, Some(Err(watcher::Error::WatchStartFailed(_)))));
        }
    }
}
