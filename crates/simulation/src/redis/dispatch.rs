//! Executes one request, with checks in the order of Redis.

use super::core::Core;
use super::resp::{Reply, Request};
use super::script;
use super::server::{ConnectionId, Server};
use super::table::{Command, TABLE};

const NOAUTH: &str = "NOAUTH Authentication required.";
pub(super) const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
pub(super) const READONLY: &str = "READONLY You can't write against a read only replica.";
const LOADING: &str = "LOADING Redis is loading the dataset in memory";
const BUSY: &str = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";

/// Commands that Redis executes immediately even between MULTI and EXEC.
const NEVER_QUEUED: [&str; 6] = ["exec", "discard", "multi", "watch", "quit", "reset"];

impl Server {
    /// Executes one request and writes its reply.
    pub(super) fn execute(&mut self, connection: ConnectionId, request: Request) {
        let checked = self.core.borrow_mut().check(connection, &request);
        let reply = match checked {
            Err(error) => Some(self.core.borrow_mut().reject(connection, &request, error)),
            Ok(command) => {
                let mut core = self.core.borrow_mut();
                match &mut core.client(connection).queue {
                    Some(queue) if !NEVER_QUEUED.contains(&command.name) => {
                        queue.push(request);
                        Some(Reply::Status("QUEUED".to_owned()))
                    }
                    _ => {
                        drop(core);
                        self.call(connection, command, &request)
                    }
                }
            }
        };
        let mut core = self.core.borrow_mut();
        if let Some(reply) = reply {
            core.answer_last(connection, &reply);
        }
        core.fail_watchers();
    }

    /// Runs a checked command.
    ///
    /// Returns `None` if a script does not end.
    fn call(&mut self, connection: ConnectionId, command: &Command, request: &[Vec<u8>]) -> Option<Reply> {
        match command.name {
            "eval" | "evalsha" => return self.run_script(connection, command.name == "evalsha", request),
            "exec" => return Some(self.exec(connection)),
            "script|kill" => return Some(self.kill_script()),
            "script|load" => return Some(self.scripts.load(&request[2])),
            "script|exists" => return Some(self.scripts.exist(&request[2..])),
            "script|flush" => {
                if request.len() > 3 || request.get(2).is_some_and(|mode| !script::is_flush_mode(mode)) {
                    return Some(Reply::error("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
                }
                self.scripts.flush();
                return Some(Reply::ok());
            }
            _ => {}
        }
        let reply = self.core.borrow_mut().run(connection, command, request);
        // The command can have changed keys that other connections watch.
        self.core.borrow_mut().fail_watchers();
        Some(reply)
    }

    fn run_script(&mut self, connection: ConnectionId, by_digest: bool, request: &[Vec<u8>]) -> Option<Reply> {
        self.core.borrow_mut().begin_script(connection);
        let reply = self.scripts.run(by_digest, request);
        let mut core = self.core.borrow_mut();
        if reply.is_none() {
            let has_written = core.running.has_written;
            core.busy = Some(super::core::Busy { of: Some(connection), has_written });
        }
        core.running.of = None;
        reply
    }

    fn kill_script(&mut self) -> Reply {
        let mut core = self.core.borrow_mut();
        let Some(busy) = core.busy else {
            return Reply::error("NOTBUSY No scripts in execution right now.");
        };
        if busy.has_written {
            return Reply::error(
                "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait \
                 the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
            );
        }
        core.busy = None;
        if let Some(of) = busy.of.filter(|of| core.clients.contains_key(of)) {
            core.answer(of, &Reply::error("ERR Script killed by user with SCRIPT KILL..."));
        }
        Reply::ok()
    }

    fn exec(&mut self, connection: ConnectionId) -> Reply {
        let (queue, queue_failed, watch_failed) = {
            let mut core = self.core.borrow_mut();
            core.expire_watched(connection);
            let client = core.client(connection);
            let Some(queue) = client.queue.take() else { return Reply::error("ERR EXEC without MULTI") };
            let failed = (client.queue_failed, client.watch_failed);
            core.forget_transaction(connection);
            (queue, failed.0, failed.1)
        };
        if queue_failed {
            return Reply::error("EXECABORT Transaction discarded because of previous errors.");
        }
        if watch_failed {
            return Reply::NilArray;
        }
        let mut replies = Vec::new();
        for request in queue {
            let Ok(command) = TABLE.of(&request) else { continue };
            let allowed = self.core.borrow().user(connection).check(command, &request);
            replies.push(match allowed {
                Err(refusal) => Reply::Error(refusal.to_exec()),
                Ok(()) => self.call(connection, command, &request).unwrap_or_else(|| {
                    self.core.borrow_mut().not_modelled.push("a script that does not end, in a transaction".to_owned());
                    Reply::Nil
                }),
            });
        }
        Reply::Array(replies)
    }
}

impl Core {
    /// Checks whether the request can be executed or queued.
    fn check(&mut self, connection: ConnectionId, request: &[Vec<u8>]) -> Result<&'static Command, String> {
        let command = TABLE.of(request)?;
        if matches!(command.name, "debug" | "module") || command.name.starts_with("module|") {
            return Err(format!("ERR {} command not allowed.", command.name.to_ascii_uppercase()));
        }
        let client = &self.clients[&connection];
        let in_transaction = client.queue.is_some();
        if !self.is_open() && !client.authenticated && !command.has("no_auth") {
            return Err(NOAUTH.to_owned());
        }
        if in_transaction && command.has("no_multi") {
            return Err("ERR Command not allowed inside a transaction".to_owned());
        }
        let user = &self.users[&client.user];
        user.check(command, request).map_err(|refusal| refusal.to_command(command.name))?;
        let queued = in_transaction && !NEVER_QUEUED.contains(&command.name);
        if self.out_of_memory && (command.has("denyoom") || queued) {
            return Err(OOM.to_owned());
        }
        if self.replica && command.has("write") {
            return Err(READONLY.to_owned());
        }
        if self.loading && !command.has("loading") {
            return Err(LOADING.to_owned());
        }
        if self.busy.is_some() && !command.has("allow_busy") {
            return Err(BUSY.to_owned());
        }
        Ok(command)
    }

    /// Returns the error of a refused command.
    ///
    /// A refused EXEC ends the transaction. Any other refused command makes it fail.
    fn reject(&mut self, connection: ConnectionId, request: &[Vec<u8>], error: String) -> Reply {
        let is_exec = request.first().is_some_and(|name| name.eq_ignore_ascii_case(b"EXEC"));
        if is_exec && request.len() == 1 {
            self.forget_transaction(connection);
            return Reply::Error(format!("EXECABORT Transaction discarded because of: {error}"));
        }
        let client = self.client(connection);
        client.queue_failed |= client.queue.is_some();
        Reply::Error(error)
    }

    /// Writes the reply to a command even if the command has closed the connection.
    fn answer_last(&mut self, connection: ConnectionId, reply: &Reply) {
        if let Some(client) = self.clients.get_mut(&connection) {
            reply.write(&mut client.output);
        }
    }

    /// Marks watched keys that have expired without a command as changed.
    fn expire_watched(&mut self, connection: ConnectionId) {
        let now = self.millis();
        for key in self.client(connection).watched.clone() {
            self.keys.get(&key, now);
        }
        self.fail_watchers();
    }

    pub(super) fn forget_transaction(&mut self, connection: ConnectionId) {
        let client = self.client(connection);
        client.queue = None;
        client.queue_failed = false;
        client.watched.clear();
        client.watch_failed = false;
    }

    /// Runs a command of a script, with the same permissions but with other error texts.
    pub(super) fn run_for_script(&mut self, request: &[Vec<u8>]) -> Reply {
        let command = match TABLE.of(request) {
            Ok(command) => command,
            Err(error) if error.contains("wrong number") => {
                return Reply::error("ERR Wrong number of args calling Redis command from script");
            }
            Err(_) => return Reply::error("ERR Unknown Redis command called from script"),
        };
        if command.has("noscript") {
            return Reply::error("ERR This Redis command is not allowed from script");
        }
        let Some(connection) = self.running.of else { return Reply::error("ERR no script runs") };
        if let Err(refusal) = self.user(connection).check(command, request) {
            return Reply::Error(refusal.to_script());
        }
        if self.replica && command.has("write") {
            return Reply::error(READONLY);
        }
        if command.has("denyoom") && self.script_lacks_memory() {
            return Reply::error(OOM);
        }
        self.running.has_written |= command.has("write");
        self.run(connection, command, request)
    }

    /// Runs a checked command.
    fn run(&mut self, connection: ConnectionId, command: &Command, request: &[Vec<u8>]) -> Reply {
        let name = command.name;
        let reply = match name {
            "auth" => Some(self.auth(connection, request)),
            "multi" | "discard" | "watch" | "unwatch" | "quit" | "reset" => self.session(connection, name, request),
            "info" => Some(self.info(&request[1..])),
            _ if name.starts_with("acl|") => self.acl(connection, name, request),
            _ if name.starts_with("client|") => self.client_command(connection, name, request),
            _ if name.starts_with("config|") => self.config(name, request),
            _ => self.data(name, request),
        };
        reply.unwrap_or_else(|| {
            let words: Vec<_> = request.iter().take(2).map(|word| String::from_utf8_lossy(word)).collect();
            self.not_modelled.push(words.join(" "));
            Reply::error(format!("ERR '{name}' is not modelled"))
        })
    }
}
