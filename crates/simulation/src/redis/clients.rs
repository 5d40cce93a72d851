//! Connections: transactions, and CLIENT.

use super::core::{Client, Core};
use super::number::integer;
use super::resp::Reply;
use super::server::ConnectionId;

impl Core {
    /// MULTI, EXEC, DISCARD, WATCH and UNWATCH.
    pub(super) fn session(&mut self, connection: ConnectionId, name: &str, request: &[Vec<u8>]) -> Option<Reply> {
        let now = self.millis();
        let in_transaction = self.client(connection).queue.is_some();
        Some(match name {
            "multi" if in_transaction => Reply::error("ERR MULTI calls can not be nested"),
            "multi" => {
                self.client(connection).queue = Some(Vec::new());
                Reply::ok()
            }
            "discard" if !in_transaction => Reply::error("ERR DISCARD without MULTI"),
            "discard" => {
                self.forget_transaction(connection);
                Reply::ok()
            }
            "watch" if in_transaction => Reply::error("ERR WATCH inside MULTI is not allowed"),
            "watch" => {
                for key in &request[1..] {
                    self.keys.get(key, now);
                }
                self.fail_watchers();
                self.client(connection).watched.extend(request[1..].iter().cloned());
                Reply::ok()
            }
            "unwatch" => {
                let client = self.client(connection);
                client.watched.clear();
                client.watch_failed = false;
                Reply::ok()
            }
            "quit" => {
                let client = self.client(connection);
                client.input.clear();
                client.closed = true;
                Reply::ok()
            }
            "reset" => {
                let authenticated = self.is_open();
                self.forget_transaction(connection);
                let client = self.client(connection);
                client.user = "default".to_owned();
                client.authenticated = authenticated;
                client.name.clear();
                Reply::Status("RESET".to_owned())
            }
            _ => return None,
        })
    }

    pub(super) fn client_command(
        &mut self,
        connection: ConnectionId,
        name: &str,
        request: &[Vec<u8>],
    ) -> Option<Reply> {
        let now = self.now;
        Some(match name {
            "client|id" => Reply::Int(self.client(connection).id),
            "client|getname" => match self.client(connection).name.as_str() {
                "" => Reply::Nil,
                name => Reply::text(name),
            },
            "client|setname" => {
                if request[2].iter().any(|byte| !(b'!'..=b'~').contains(byte)) {
                    return Some(Reply::error(
                        "ERR Client names cannot contain spaces, newlines or special characters.",
                    ));
                }
                self.client(connection).name = String::from_utf8_lossy(&request[2]).into_owned();
                Reply::ok()
            }
            "client|info" => Reply::text(self.client(connection).line(now) + "\n"),
            "client|list" if request.len() == 2 => {
                let open = self.clients.values().filter(|client| !client.closed);
                Reply::text(open.map(|client| client.line(now) + "\n").collect::<String>())
            }
            "client|no-evict" => match request[2].to_ascii_lowercase().as_slice() {
                b"on" | b"off" => Reply::ok(),
                _ => Reply::error("ERR syntax error"),
            },
            "client|kill" => self.kill(connection, &request[2..]),
            _ => return None,
        })
    }

    /// `CLIENT KILL <filter> <value> ...`.
    ///
    /// No connection matches an address, because connections have none here.
    fn kill(&mut self, connection: ConnectionId, words: &[Vec<u8>]) -> Reply {
        if words.len() == 1 {
            return Reply::error("ERR No such client");
        }
        let (mut user, mut id, mut skip_me, mut nobody) = (None, None, true, false);
        let (pairs, rest) = words.as_chunks::<2>();
        if !rest.is_empty() {
            return Reply::error("ERR syntax error");
        }
        for [filter, value] in pairs {
            let text = String::from_utf8_lossy(value).into_owned();
            match (filter.to_ascii_lowercase().as_slice(), text.to_ascii_lowercase().as_str()) {
                (b"user", _) if self.users.contains_key(&text) => user = Some(text),
                (b"user", _) => return Reply::error(format!("ERR No such user '{text}'")),
                (b"id", _) => match integer(value).filter(|id| *id > 0) {
                    Some(number) => id = Some(number),
                    None => return Reply::error("ERR client-id should be greater than 0"),
                },
                (b"type", "normal") => {}
                (b"type", "master" | "replica" | "slave" | "pubsub") | (b"addr" | b"laddr", _) => nobody = true,
                (b"type", _) => return Reply::error(format!("ERR Unknown client type '{text}'")),
                (b"skipme", "yes") => skip_me = true,
                (b"skipme", "no") => skip_me = false,
                _ => return Reply::error("ERR syntax error"),
            }
        }
        let own = self.client(connection).id;
        let condition = |client: &Client| {
            !nobody
                && user.as_ref().is_none_or(|user| *user == client.user)
                && id.is_none_or(|id| id == client.id)
                && !(skip_me && client.id == own)
        };
        Reply::Int(self.kill_where(connection, condition))
    }
}

impl Client {
    fn line(&self, now: i64) -> String {
        let queued = self.queue.as_ref().map_or(-1, |queue| i64::try_from(queue.len()).unwrap_or(-1));
        let age = (now - self.since).div_euclid(1_000_000);
        format!(
            "id={} addr=127.0.0.1:{} name={} age={age} flags={} db=0 multi={queued} user={} resp=2",
            self.id,
            10_000 + self.id,
            self.name,
            if self.queue.is_some() { 'x' } else { 'N' },
            self.user
        )
    }
}
