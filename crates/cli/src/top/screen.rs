//! The terminal, the watches and the signals of the full-screen view.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{BoxStream, FuturesUnordered};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource, ResourceExt as _};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::view::{Action, Name, View};
use crate::change;
use crate::cluster::Cluster;
use crate::cluster::objects::{LockObject, QuorumObject};
use redlock_api::STEP_DOWN_ANNOTATION;

/// Time between two frames. Bars and countdowns move with each frame.
const FRAME: Duration = Duration::from_millis(250);
/// Time between two checks of the keyboard's thread whether the receiver still exists.
const POLL: Duration = Duration::from_millis(100);

/// The terminal in full-screen mode. It is restored on drop, and before a panic is reported.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> anyhow::Result<Self> {
        Ok(Self(ratatui::try_init()?))
    }
}

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
    let mut screen = Screen::open()?;
    let mut keys = keyboard();
    let mut acts = FuturesUnordered::new();
    let mut frames = interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(event) = locks.next() => {
                let is_complete = matches!(event, Ok(watcher::Event::InitDone));
                view.outage = apply(event, &mut view.locks, &mut new_locks);
                view.is_loaded |= is_complete;
                continue;
            }
            Some(event) = quorums.next() => {
                view.outage = apply(event, &mut view.quorums, &mut new_quorums);
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
    let asked = async {
        let user = change::user(cluster).await?;
        change::annotate(cluster, &lock, &json!({STEP_DOWN_ANNOTATION: format!("{user}: redlock top")})).await
    };
    match asked.await {
        Ok(()) => format!("The holder of {} was asked to step down.", lock.lock()),
        Err(problem) => format!("error: {}", problem.what),
    }
}

type Events<K> = BoxStream<'static, Result<watcher::Event<K>, watcher::Error>>;

fn watch<K>(cluster: &Cluster, namespace: Option<&str>) -> Events<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let api = match namespace {
        Some(namespace) => Api::<K>::namespaced(cluster.client.clone(), namespace),
        None => Api::all(cluster.client.clone()),
    };
    watcher(api, watcher::Config::default()).default_backoff().boxed()
}

/// Applies one event of a watch. Returns the reason if the objects are not current.
fn apply<K: Resource>(
    event: Result<watcher::Event<K>, watcher::Error>,
    objects: &mut BTreeMap<Name, K>,
    new: &mut BTreeMap<Name, K>,
) -> Option<String> {
    let name = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
    match event {
        Ok(watcher::Event::Init) => new.clear(),
        Ok(watcher::Event::InitApply(object)) => drop(new.insert(name(&object), object)),
        Ok(watcher::Event::InitDone) => *objects = std::mem::take(new),
        Ok(watcher::Event::Apply(object)) => drop(objects.insert(name(&object), object)),
        Ok(watcher::Event::Delete(object)) => drop(objects.remove(&name(&object))),
        Err(error) => return Some(format!("the watch was interrupted and begins again: {error}")),
    }
    None
}

/// Receives pressed keys from a thread.
///
/// The thread ends when the receiver is dropped or the terminal is gone.
fn keyboard() -> mpsc::Receiver<KeyEvent> {
    let (keys, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        while !keys.is_closed() {
            match event::poll(POLL) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(_) => return,
            }
            match event::read() {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                    if keys.blocking_send(key).is_err() {
                        return;
                    }
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
