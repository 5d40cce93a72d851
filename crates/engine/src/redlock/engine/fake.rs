//! Members in memory, on tokio's paused clock, with delays, freezes and restarts.

#[path = "../../../../../tests/support/master.rs"]
mod master;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::redlock::{
    Answers, BoxFuture, Command, Elector, Electorate, FencingToken, KeyState, LockMember, MemberError, MemberName,
    Reply, RunId, StoredValue,
};
use crate::time::{Boottime, Clock, TokioClock, UnixMicros};

use master::Master;

struct Request {
    commands: Vec<Command>,
    sent: Boottime,
    due: tokio::time::Sleep,
    answer: oneshot::Sender<Result<Answers, MemberError>>,
}

pub(super) struct State {
    pub(super) run_id: RunId,
    pub(super) delay: Duration,
    pub(super) down: Option<MemberError>,
    pub(super) master: Master,
    /// All enqueued commands, in order.
    pub(super) log: Vec<Command>,
    /// The number of executed commands.
    pub(super) executed: usize,
}

pub(super) struct Fake {
    name: MemberName,
    clock: TokioClock,
    state: Mutex<State>,
    frozen: watch::Sender<bool>,
    queue: mpsc::UnboundedSender<Request>,
}

impl Fake {
    pub(super) fn new(name: &str, clock: TokioClock) -> Arc<Self> {
        let (queue, mut requests) = mpsc::unbounded_channel::<Request>();
        let state = State {
            run_id: RunId::new(format!("run of {name}")),
            delay: Duration::from_millis(1),
            down: None,
            master: Master::default(),
            log: Vec::new(),
            executed: 0,
        };
        let fake = Arc::new(Self {
            name: name.into(),
            clock,
            state: Mutex::new(state),
            frozen: watch::channel(false).0,
            queue,
        });
        let (member, mut frozen) = (Arc::downgrade(&fake), fake.frozen.subscribe());
        tokio::spawn(async move {
            while let Some(Request { commands, sent, due, answer }) = requests.recv().await {
                due.await;
                frozen.wait_for(|frozen| !frozen).await.unwrap();
                let Some(fake) = member.upgrade() else { return };
                let replies: Vec<_> = commands.iter().map(|command| fake.execute(command)).collect();
                let run_id = fake.state().run_id.clone();
                let _ =
                    answer.send(Ok(Answers { run_id, sent, received: fake.clock.boottime(), replies: replies.into() }));
            }
        });
        fake
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }

    /// Restarts the process with empty memory.
    pub(super) fn restart(&self) {
        let mut state = self.state();
        state.run_id = RunId::new(format!("{} again", state.run_id));
        state.master = Master::default();
    }

    /// The value of a key, and its last millisecond.
    fn key(&self, key: &str) -> Option<(String, i64)> {
        let now = self.clock.wall().0;
        self.state().master.keys.get(key).filter(|(_, last)| now <= *last).cloned()
    }

    pub(super) fn value(&self, key: &str) -> Option<String> {
        self.key(key).map(|(value, _)| value)
    }

    pub(super) fn ttl(&self, key: &str) -> Duration {
        let left = |(_, last): (String, i64)| u64::try_from(last - self.clock.wall().0).unwrap();
        Duration::from_millis(self.key(key).map_or(0, left))
    }

    pub(super) fn set(&self, key: &str, value: &str, ttl: Duration) {
        let last = self.clock.wall().0 + i64::try_from(ttl.as_millis()).unwrap();
        self.state().master.keys.insert(key.to_owned(), (value.to_owned(), last));
    }

    pub(super) fn time(&self) -> UnixMicros {
        UnixMicros(self.clock.wall().0 * 1_000)
    }

    fn execute(&self, command: &Command) -> Reply {
        let time = self.time();
        let mut state = self.state();
        state.executed += 1;
        state.master.execute(command, time)
    }
}

impl LockMember for Fake {
    fn name(&self) -> &MemberName {
        &self.name
    }

    fn send(&self, commands: Vec<Command>) -> BoxFuture<'static, Result<Answers, MemberError>> {
        let mut state = self.state();
        state.log.extend(commands.iter().cloned());
        if let Some(error) = state.down.clone() {
            return Box::pin(async move { Err(error) });
        }
        let (answer, answered) = oneshot::channel();
        let due = tokio::time::sleep(state.delay);
        let _ = self.queue.send(Request { commands, sent: self.clock.boottime(), due, answer });
        Box::pin(async move { answered.await.unwrap() })
    }
}

/// A quorum of fakes, and an electorate that admits all of them.
pub(super) struct Quorum {
    pub(super) clock: Arc<TokioClock>,
    pub(super) members: Vec<Arc<Fake>>,
    pub(super) electorate: Electorate,
}

impl Quorum {
    pub(super) fn of(size: usize) -> Self {
        let clock = Arc::new(TokioClock::new());
        let members: Vec<_> = (0..size).map(|n| Fake::new(&format!("m{n}"), *clock)).collect();
        let electorate = Electorate::single(electors(&members));
        Self { clock, members, electorate }
    }

    pub(super) fn set_counters(&self, counters: impl IntoIterator<Item = i64>) {
        for (member, counter) in self.members.iter().zip(counters) {
            member.state().master.counter = counter;
        }
    }

    pub(super) fn holders(&self, key: &str, value: &str) -> usize {
        self.members.iter().filter(|member| member.value(key).as_deref() == Some(value)).count()
    }
}

pub(super) fn electors(members: &[Arc<Fake>]) -> Vec<Elector> {
    members
        .iter()
        .map(|fake| Elector {
            member: Arc::clone(fake) as Arc<dyn LockMember>,
            admitted: Some(fake.state().run_id.clone()),
        })
        .collect()
}
