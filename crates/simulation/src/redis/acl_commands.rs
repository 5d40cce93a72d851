//! AUTH and ACL.

use super::acl::User;
use super::core::Core;
use super::resp::Reply;
use super::rules;
use super::server::ConnectionId;
use super::table::{CATEGORIES, TABLE};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Core {
    pub(super) fn auth(&mut self, connection: ConnectionId, request: &[Vec<u8>]) -> Reply {
        let (name, password) = match request {
            [_, password] => {
                if self.users["default"].nopass {
                    return Reply::error(
                        "ERR AUTH <password> called without any password configured for the default user. Are you \
                         sure your configuration is correct?",
                    );
                }
                ("default".to_owned(), password)
            }
            [_, name, password] => (text(name), password),
            _ => return Reply::error("ERR syntax error"),
        };
        if !self.users.get(&name).is_some_and(|user| user.accepts(password)) {
            return Reply::error("WRONGPASS invalid username-password pair or user is disabled.");
        }
        let client = self.client(connection);
        client.user = name;
        client.authenticated = true;
        Reply::ok()
    }

    pub(super) fn acl(&mut self, connection: ConnectionId, name: &str, request: &[Vec<u8>]) -> Option<Reply> {
        let argument = |at: usize| request.get(at).map(|word| text(word)).unwrap_or_default();
        Some(match name {
            "acl|whoami" => Reply::text(&self.client(connection).user),
            "acl|setuser" => self.set_user(&argument(2), &request[3..]),
            "acl|getuser" => self.users.get(&argument(2)).map_or(Reply::Nil, User::fields),
            "acl|list" => Reply::texts(self.users.iter().map(|(name, user)| format!("user {name} {}", user.line()))),
            "acl|users" => Reply::texts(self.users.keys()),
            "acl|deluser" => self.delete_users(connection, &request[2..]),
            "acl|dryrun" => self.dry_run(&argument(2), &request[3..]),
            "acl|cat" if request.len() == 2 => Reply::texts(CATEGORIES),
            "acl|log" => Reply::Array(Vec::new()),
            _ => return None,
        })
    }

    fn set_user(&mut self, name: &str, rules: &[Vec<u8>]) -> Reply {
        if name.contains([' ', '\0']) {
            return Reply::error("ERR Usernames can't contain spaces or null characters");
        }
        let rules: Vec<String> = rules.iter().map(|rule| text(rule)).collect();
        let before = self.users.get(name).cloned().unwrap_or_else(User::new);
        match rules::apply(&before, &rules) {
            Ok(user) => {
                self.users.insert(name.to_owned(), user);
                Reply::ok()
            }
            Err(error) => Reply::Error(error),
        }
    }

    fn delete_users(&mut self, connection: ConnectionId, names: &[Vec<u8>]) -> Reply {
        let mut deleted = 0;
        for name in names {
            let name = text(name);
            if name == "default" {
                return Reply::error("ERR The 'default' user cannot be removed");
            }
            if self.users.remove(&name).is_some() {
                deleted += 1;
                self.kill_where(connection, |client| client.user == name);
                for client in self.clients.values_mut().filter(|client| client.user == name) {
                    client.user = "default".to_owned();
                    client.authenticated = false;
                }
            }
        }
        Reply::Int(deleted)
    }

    fn dry_run(&self, name: &str, request: &[Vec<u8>]) -> Reply {
        let Some(user) = self.users.get(name) else { return Reply::error(format!("ERR User '{name}' not found")) };
        let command = match TABLE.of(request) {
            Ok(command) => command,
            Err(_) => return Reply::error(format!("ERR Command '{}' not found", text(&request[0]))),
        };
        match user.check(command, request) {
            Ok(()) => Reply::ok(),
            // ACL DRYRUN replies with the text of the error, without its code and with a capital letter.
            Err(refusal) => Reply::text(refusal.to_command(command.name).replacen("NOPERM this", "This", 1)),
        }
    }
}
