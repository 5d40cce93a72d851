//! Members in memory.
//!
//! They do what the Lua scripts do, on tokio's paused clock, with delays, freezes and restarts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::redlock::{
    Answers, BoxFuture, Command, Elector, Electorate, FencingToken, KeyState, LockMember, MemberError, MemberName,
    Reply, RunId, StoredValue,
};
use crate::time::{Boottime, Clock, TokioClock, UnixMicros};

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
    pub(super) keys: BTreeMap<String, (String, Boottime)>,
    pub(super) counter: i64,
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
            keys: BTreeMap::new(),
            counter: 0,
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
        state.keys.clear();
        state.counter = 0;
    }

    pub(super) fn value(&self, key: &str) -> Option<String> {
        let now = self.clock.boottime();
        self.state().keys.get(key).filter(|(_, until)| *until > now).map(|(value, _)| value.clone())
    }

    pub(super) fn ttl(&self, key: &str) -> Duration {
        let now = self.clock.boottime();
        self.state().keys.get(key).map_or(Duration::ZERO, |(_, until)| until.since(now))
    }

    pub(super) fn set(&self, key: &str, value: &str, ttl: Duration) {
        let until = self.clock.boottime() + ttl;
        self.state().keys.insert(key.to_owned(), (value.to_owned(), until));
    }

    pub(super) fn time(&self) -> UnixMicros {
        UnixMicros(self.clock.wall().0 * 1_000)
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each command")]
    fn execute(&self, command: &Command) -> Reply {
        let (now, time) = (self.clock.boottime(), self.time());
        let mut state = self.state();
        state.executed += 1;
        state.keys.retain(|_, (_, until)| *until > now);
        let Some(key) = command.key() else { return Reply::Raised };
        let key = key.as_str().to_owned();
        let held = state.keys.get(&key).cloned();
        let holder = held.as_ref().map_or(KeyState::Missing, |(value, until)| KeyState::String {
            value: StoredValue::new(value),
            remaining: Some(until.since(now)),
        });
        let ours = |value: &str| held.as_ref().is_some_and(|(held, _)| held == value);
        match command {
            Command::Acquire { .. } | Command::Repair { .. } if held.is_some() => match command {
                Command::Acquire { .. } => Reply::Refused { holder, time: Some(time) },
                _ => Reply::Done(false),
            },
            Command::Acquire { not_after: Some(last), .. } if time > *last => Reply::Failed(MemberError::TimedOut),
            Command::Acquire { value, ttl, token, .. } => {
                state.keys.insert(key, (value.expose().to_owned(), now + *ttl));
                state.counter += i64::from(*token);
                let number = if *token { state.counter } else { 0 };
                Reply::Acquired { token: FencingToken::new(number).unwrap(), time: Some(time) }
            }
            Command::Repair { not_after, .. } if time > *not_after => Reply::Done(false),
            Command::Repair { value, px, until, .. } => {
                let left = u64::try_from(until.0 - time.0).unwrap_or(0);
                let ttl = (*px).min(Duration::from_micros(left));
                state.keys.insert(key, (value.expose().to_owned(), now + ttl));
                Reply::Done(!ttl.is_zero())
            }
            Command::RaiseCounter { value, .. } | Command::Seal { value, .. } if !ours(value.expose()) => match command
            {
                Command::Seal { sealed, .. } if ours(sealed.expose()) => {
                    Reply::Sealed { remaining: holder.remaining().unwrap() }
                }
                _ => Reply::NotOurs,
            },
            Command::RaiseCounter { token, .. } => {
                state.counter = state.counter.max(token.get());
                Reply::Raised
            }
            Command::Seal { sealed, lock_delay, least, .. } => {
                let until = (held.unwrap().1 + *lock_delay).max(now + *least);
                state.keys.insert(key, (sealed.expose().to_owned(), until));
                Reply::Sealed { remaining: until.since(now) }
            }
            Command::Extend { value, ttl, .. } if ours(value.expose()) => {
                let until = held.unwrap().1.max(now + *ttl);
                state.keys.insert(key, (value.expose().to_owned(), until));
                Reply::Extended { time: Some(time) }
            }
            Command::Extend { .. } => Reply::Refused { holder, time: Some(time) },
            Command::Release { value, .. } => {
                let ours = ours(value.expose());
                if ours {
                    state.keys.remove(&key);
                }
                Reply::Done(ours)
            }
            Command::Announce { .. } => Reply::Announced(0),
            Command::Restore { .. } | Command::Inspect { .. } => Reply::State(holder),
        }
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
