//! The operator's admin connection to a member.

mod exchange;
mod observation;
mod users;

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Pipeline, ToRedisArgs, Value, cmd};
use redlock_engine::voting::{Opened, RESTORE_COUNTER, open, unfit_reason};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::acl::{CLOSED, OPERATOR_USER, UserRule};
use super::tls::Fingerprint;
use super::{Endpoint, Machine, Stream, wire};
use crate::redlock::{ClockSample, FencingToken, MemberError, RunId, TOKEN_KEY, Unfit};
use crate::time::Clock;
use exchange::exchange;

pub use observation::{Keys, Observation};
pub use users::Users;

/// The key of the operator's epoch on a member.
///
/// A leader raises it before any other command, and a leader with a lower epoch cannot open users.
pub const EPOCH_KEY: &str = "#operator-epoch";

/// The operator's admin connection to one process.
///
/// It never reconnects, so it cannot outlive its process. A check on it is therefore valid for the process that it then opens
/// (docs/dev/rules.md). If a failure leaves the state of the connection unknown, it refuses all later commands. The caller then has to connect
/// and check again.
pub struct AdminConnection {
    stream: Box<dyn Stream>,
    clock: Arc<dyn Clock>,
    deadline: Duration,
    run_id: RunId,
    certificate: Option<Fingerprint>,
    broken: bool,
}

/// Why a change of a member failed. In every case the next decision starts from a new observation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ActError {
    /// The member has no address.
    #[error("the member has no address")]
    NoAddress,
    /// Another process answers. It was not changed.
    #[error("another process answers")]
    OtherProcess,
    /// The process does not obey the epoch of this leader, so nothing was changed. Another leader has raised its own.
    #[error("another operator leads")]
    Deposed,
    /// The process already obeys a higher epoch than that of this leader.
    #[error("the member obeys a later operator epoch, {0}")]
    Outdated(i64),
    /// The process must not vote in its current state.
    #[error("the process must not vote: {0}")]
    Unfit(&'static str),
    /// The member failed.
    #[error(transparent)]
    Member(#[from] MemberError),
}

impl AdminConnection {
    /// Connects as the endpoint's user, and reads the identity of the process.
    ///
    /// On a managed member the user should be [`OPERATOR_USER`]. `deadline` bounds the connect, and later every operation.
    ///
    /// # Errors
    /// If there is no connection or no answer in time. `Busy` and `Loading` mean that the process is alive.
    pub async fn connect(
        endpoint: &Endpoint,
        machine: impl Into<Machine>,
        deadline: Duration,
    ) -> Result<Self, MemberError> {
        let mut admin = Self::open_connection(endpoint, machine.into(), deadline).await?;
        // Redis then ends other connections first when it runs out of memory for its clients. An external master can refuse this, which
        // does no harm. The first answer can also refuse the connection.
        if let Err(error) = admin.ask(cmd("CLIENT").arg("NO-EVICT").arg("ON")).await
            && (admin.broken || matches!(error, MemberError::Unreachable(_)))
        {
            return Err(error);
        }
        let info = admin.ask(cmd("INFO").arg("server")).await?;
        let info = wire::text(&info).ok_or_else(wire::unexpected)?;
        // An earlier version refuses the next request.
        if let Some(unfit @ Unfit::Old(_)) = unfit_reason(info.as_bytes()) {
            return Err(MemberError::Unfit(unfit));
        }
        admin.run_id = wire::identity(&info, "run_id").map(RunId::from).ok_or_else(wire::unexpected)?;
        Ok(admin)
    }

    async fn open_connection(
        endpoint: &Endpoint,
        Machine { clock, network }: Machine,
        deadline: Duration,
    ) -> Result<Self, MemberError> {
        let connected = async {
            let Opened { mut stream, certificate } = open(endpoint, &*network).await?;
            if !endpoint.username.is_empty() {
                let mut login = Pipeline::new();
                login.cmd("AUTH").arg(&endpoint.username).arg(endpoint.password.expose());
                accepted(exchange(&mut *stream, &login).await?)?;
            }
            let certificate = certificate.as_ref().map(Fingerprint::of);
            Ok(Self { stream, clock, deadline, run_id: RunId::new(""), certificate, broken: false })
        };
        let late = |_| MemberError::Unreachable("connecting took too long".to_owned());
        timeout(deadline, connected).await.map_err(late)?
    }

    /// The process of this connection. It does not change.
    pub const fn run_id(&self) -> &RunId {
        &self.run_id
    }

    /// The certificate of the process when this connection was opened; `None` without TLS.
    pub const fn certificate(&self) -> Option<Fingerprint> {
        self.certificate
    }

    /// Resolves when the connection has ended, because the process or the network failed.
    pub async fn disconnected(&mut self) {
        // Redis sends nothing without a request, so an unexpected byte also ends the connection.
        let _end = self.stream.read_u8().await;
    }

    /// Reads the state of the process, and which of these users are open.
    ///
    /// # Errors
    /// If there is no answer in time.
    pub async fn observe(&mut self, users: &[&str]) -> Result<Observation, MemberError> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("INFO").arg(&["server", "replication", "memory", "clients", "keyspace"]);
        pipeline.cmd("TIME").cmd("GET").arg(EPOCH_KEY).cmd("GET").arg(TOKEN_KEY);
        for user in users {
            pipeline.cmd("ACL").arg("GETUSER").arg(user);
        }
        let sent = self.clock.boottime();
        let answers = self.ask_all(&pipeline).await?;
        let received = self.clock.boottime();
        let [info, time, epoch, counter, acls @ ..] = answers.as_slice() else { return Err(wire::unexpected()) };
        let time = wire::time(time)?;
        let info = wire::text(info).ok_or_else(wire::unexpected)?;
        let field = |name| wire::info_field(&info, name).unwrap_or_default();
        let open = users.iter().zip(acls).filter(|(_, acl)| is_open(acl)).map(|(user, _)| (*user).to_owned());
        let (epoch, counter): (Option<i64>, Option<i64>) = (wire::read(epoch)?, wire::read(counter)?);
        let counter = counter.and_then(FencingToken::new);
        Ok(Observation {
            run_id: self.run_id.clone(),
            version: field("redis_version").to_owned(),
            valkey_version: wire::info_field(&info, "valkey_version").map(str::to_owned),
            unfit: unfit_reason(info.as_bytes()),
            replication_id: wire::identity(&info, "master_replid").unwrap_or_default().to_owned(),
            open_users: open.collect(),
            epoch,
            counter,
            clock: ClockSample { time, sent, received },
            is_full: observation::is_full(&info),
            keys: Keys::read(&info, u64::from(epoch.is_some()) + u64::from(counter.is_some())),
        })
    }

    /// Raises the operator's epoch, which is a new leader's first command on each member.
    ///
    /// It never lowers the epoch. It accepts the current epoch.
    ///
    /// # Errors
    /// If there is no answer in time. Then it is unknown whether the epoch was raised.
    pub async fn raise_epoch(&mut self, epoch: i64) -> Result<(), ActError> {
        loop {
            if let Some(higher) = self.watch_epoch().await?.filter(|current| *current > epoch) {
                self.ask(&cmd("UNWATCH")).await?;
                return Err(ActError::Outdated(higher));
            }
            let mut set = cmd("SET");
            set.arg(EPOCH_KEY).arg(epoch);
            // If a watched key changed, another leader raised the epoch in between. Then the loop reads it again.
            if self.transaction(vec![set, kill(OPERATOR_USER)]).await? {
                return Ok(());
            }
        }
    }

    /// Raises the token counter to `token` if it is lower, and returns the result.
    ///
    /// Call it before the opening and only after the rejoin delay, because grants can be in progress until then.
    ///
    /// # Errors
    /// If there is no answer in time.
    pub async fn restore_counter(&mut self, token: FencingToken) -> Result<FencingToken, MemberError> {
        let script = RESTORE_COUNTER;
        let answer = self.ask(cmd("EVAL").arg(script).arg(1).arg(TOKEN_KEY).arg(token.get())).await?;
        FencingToken::new(wire::read(&answer)?).ok_or_else(wire::unexpected)
    }

    /// Opens users, if the member still has this epoch.
    ///
    /// The check of the epoch keeps a late request of a former leader from opening a member. Never repeat this on another connection without a new
    /// check of the process.
    ///
    /// If the process has a user only with other passwords, this ends the connections of that user. They belong to an earlier client with the
    /// same name.
    ///
    /// # Errors
    /// If there is no answer in time. Then it is unknown whether the users of this process are open.
    pub async fn open(&mut self, epoch: i64, users: &[UserRule]) -> Result<(), ActError> {
        let mut rules: Vec<Cmd> = users.iter().map(|user| acl("SETUSER", user.set_user(true))).collect();
        rules.extend(self.of_others(users).await?.iter().map(|user| kill(user)));
        self.guarded(epoch, rules).await
    }

    /// Closes users, if the member still has this epoch. This acts on their connections immediately.
    ///
    /// It also ends the operator's other connections, so that an earlier request cannot open the users again.
    ///
    /// # Errors
    /// If there is no answer in time. Then it is unknown whether the users are closed.
    pub async fn close(&mut self, epoch: i64, users: &[UserRule]) -> Result<(), ActError> {
        self.close_all(epoch, users, &[]).await
    }

    /// Ends a script that has made a member BUSY.
    ///
    /// It opens a separate connection, because a busy process does not return its identity.
    ///
    /// # Errors
    /// As [`AdminConnection::script_kill`], and if there is no connection.
    pub async fn kill_busy_script(
        endpoint: &Endpoint,
        machine: impl Into<Machine>,
        deadline: Duration,
    ) -> Result<(), MemberError> {
        Self::open_connection(endpoint, machine.into(), deadline).await?.script_kill().await
    }

    /// Ends a running script.
    ///
    /// # Errors
    /// If there is no answer in time, if no script runs (`NOTBUSY`), or if the script wrote data and cannot be ended (`UNKILLABLE`).
    pub async fn script_kill(&mut self) -> Result<(), MemberError> {
        self.ask(cmd("SCRIPT").arg("KILL")).await.map(drop)
    }

    /// Executes the commands only if the member has this epoch.
    async fn guarded(&mut self, epoch: i64, commands: Vec<Cmd>) -> Result<(), ActError> {
        if self.watch_epoch().await? != Some(epoch) {
            self.ask(&cmd("UNWATCH")).await?;
            return Err(ActError::Deposed);
        }
        if self.transaction(commands).await? { Ok(()) } else { Err(ActError::Deposed) }
    }

    async fn watch_epoch(&mut self) -> Result<Option<i64>, MemberError> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("WATCH").arg(EPOCH_KEY).cmd("GET").arg(EPOCH_KEY);
        self.ask_all(&pipeline).await?.get(1).map_or_else(|| Err(wire::unexpected()), wire::read)
    }

    /// Runs the commands in MULTI and EXEC. False means that a watched key changed and nothing was executed.
    async fn transaction(&mut self, commands: Vec<Cmd>) -> Result<bool, MemberError> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("MULTI");
        for command in commands {
            pipeline.add_command(command);
        }
        pipeline.cmd("EXEC");
        match self.ask_all(&pipeline).await?.pop() {
            Some(Value::Nil) => Ok(false),
            Some(Value::Array(answers)) => accepted(answers).map(|_| true),
            _ => Err(wire::unexpected()),
        }
    }

    async fn ask(&mut self, command: &Cmd) -> Result<Value, MemberError> {
        let mut pipeline = Pipeline::new();
        pipeline.add_command(command.clone());
        self.ask_all(&pipeline).await?.pop().ok_or_else(wire::unexpected)
    }

    /// Sends the commands, and waits for all answers.
    ///
    /// Every operation has `&mut self`, so that no other command comes between WATCH and EXEC. A dropped future or a deadline leaves the state
    /// unknown, so `broken` is set until the answers arrive.
    pub(super) async fn ask_all(&mut self, pipeline: &Pipeline) -> Result<Vec<Value>, MemberError> {
        if self.broken {
            return Err(MemberError::Unreachable("connection given up".to_owned()));
        }
        self.broken = true;
        let exchanged = timeout(self.deadline, exchange(&mut *self.stream, pipeline)).await;
        let answers = exchanged.map_err(|_| MemberError::TimedOut)??;
        self.broken = false;
        accepted(answers)
    }
}

opaque!(AdminConnection);

fn acl(action: &str, arguments: impl ToRedisArgs) -> Cmd {
    let mut command = cmd("ACL");
    command.arg(action).arg(arguments);
    command
}

/// Ends a user's connections with their pending requests, except this one.
fn kill(user: &str) -> Cmd {
    let mut command = cmd("CLIENT");
    command.arg(&["KILL", "USER", user, "SKIPME", "yes"]);
    command
}

/// The answers, if none of them is an error.
fn accepted(answers: Vec<Value>) -> Result<Vec<Value>, MemberError> {
    let failure = answers.iter().find_map(|answer| match answer {
        Value::ServerError(failure) => Some(wire::error(&failure.clone().into())),
        _ => None,
    });
    failure.map_or(Ok(answers), Err)
}

/// A field of an `ACL GETUSER` answer.
fn field<'a>(acl: &'a Value, name: &str) -> Option<&'a Value> {
    let Value::Array(fields) = acl else { return None };
    let (pairs, _) = fields.as_chunks::<2>();
    pairs.iter().find(|[key, _]| wire::text(key).as_deref() == Some(name)).map(|[_, value]| value)
}

/// Whether an `ACL GETUSER` answer has more rights than a closed user. An unclear answer means yes.
pub(super) fn is_open(acl: &Value) -> bool {
    if *acl == Value::Nil {
        return false;
    }
    let commands_closed = field(acl, "commands").and_then(wire::text).as_deref() == Some(CLOSED);
    let no_selectors = matches!(field(acl, "selectors"), Some(Value::Array(selectors)) if selectors.is_empty());
    !(commands_closed && no_selectors)
}
