//! INFO and CONFIG.

use super::core::Core;
use super::glob;
use super::number::integer;
use super::resp::Reply;

/// The memory of a process without keys.
const USED: i64 = 1_000_000;

type Section = (&'static str, Vec<(&'static str, String)>);

impl Core {
    /// The requested sections, in the order of Redis.
    pub(super) fn info(&mut self, wanted: &[Vec<u8>]) -> Reply {
        let wanted: Vec<String> =
            wanted.iter().map(|name| String::from_utf8_lossy(name).to_ascii_lowercase()).collect();
        let all =
            wanted.is_empty() || wanted.iter().any(|name| matches!(name.as_str(), "all" | "default" | "everything"));
        let mut text = String::new();
        for (name, fields) in self.sections() {
            if !all && !wanted.contains(&name.to_ascii_lowercase()) {
                continue;
            }
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            text.push_str(&format!("# {name}\r\n"));
            for (field, value) in fields {
                text.push_str(&format!("{field}:{value}\r\n"));
            }
        }
        Reply::text(text)
    }

    fn sections(&mut self) -> Vec<Section> {
        let now = self.millis();
        let setting = |name: &str| self.settings.get(name).cloned().unwrap_or_default();
        let (policy, limit) = (setting("maxmemory-policy"), setting("maxmemory"));
        let (appends, connected) =
            (setting("appendonly"), self.clients.values().filter(|client| !client.closed).count());
        let keyspace = self.keyspace_line(now);
        let keys = self.keys.all(now).len();
        // Redis computes its uptime from the member's wall clock, which can step.
        let uptime = self.now.div_euclid(1_000_000) - self.started.div_euclid(1_000_000);
        let flag = |on: bool| u8::from(on).to_string();
        vec![
            (
                "Server",
                vec![
                    ("redis_version", "7.0.15".to_owned()),
                    ("redis_mode", "standalone".to_owned()),
                    ("process_id", "1".to_owned()),
                    ("run_id", self.run_id.clone()),
                    ("tcp_port", self.port.to_string()),
                    ("server_time_usec", self.now.to_string()),
                    ("uptime_in_seconds", uptime.to_string()),
                    ("uptime_in_days", (uptime / 86_400).to_string()),
                ],
            ),
            ("Clients", vec![("connected_clients", connected.to_string()), ("blocked_clients", "0".to_owned())]),
            (
                "Memory",
                vec![
                    ("used_memory", (USED + 200 * i64::try_from(keys).unwrap_or(0)).to_string()),
                    ("maxmemory", limit),
                    ("maxmemory_policy", policy),
                ],
            ),
            ("Persistence", vec![("loading", flag(self.loading)), ("aof_enabled", flag(appends == "yes"))]),
            (
                "Replication",
                vec![
                    ("role", if self.replica { "slave" } else { "master" }.to_owned()),
                    ("connected_slaves", "0".to_owned()),
                    ("master_replid", self.run_id.chars().rev().collect()),
                ],
            ),
            ("Keyspace", keyspace.into_iter().map(|line| ("db0", line)).collect()),
        ]
    }

    /// The line of INFO with the number of keys and their times to live.
    ///
    /// The average is exact here. Redis estimates it.
    fn keyspace_line(&mut self, now: i64) -> Option<String> {
        let entries = self.keys.all(now);
        let ends: Vec<i64> = entries.values().filter_map(|entry| entry.end).map(|end| end - now).collect();
        let average = ends.iter().sum::<i64>().checked_div(i64::try_from(ends.len()).unwrap_or(0)).unwrap_or(0);
        (!entries.is_empty()).then(|| format!("keys={},expires={},avg_ttl={average}", entries.len(), ends.len()))
    }

    pub(super) fn config(&mut self, name: &str, request: &[Vec<u8>]) -> Option<Reply> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).to_ascii_lowercase();
        match name {
            "config|get" => {
                let asked =
                    |setting: &str| request[2..].iter().any(|p| glob::matches(text(p).as_bytes(), setting.as_bytes()));
                let known = self.settings.iter().filter(|(setting, _)| asked(setting));
                Some(Reply::texts(known.flat_map(|(setting, value)| [setting, value])))
            }
            "config|set" => {
                let (pairs, rest) = request[2..].as_chunks::<2>();
                if !rest.is_empty() {
                    return Some(Reply::error("ERR wrong number of arguments for 'config|set' command"));
                }
                for [setting, value] in pairs {
                    let setting = text(setting);
                    // The state machine has no files, so it accepts any path.
                    let known = matches!(setting.as_str(), "tls-cert-file" | "tls-key-file" | "busy-reply-threshold");
                    if !known && !self.settings.contains_key(&setting) {
                        return None;
                    }
                    if setting == "maxmemory" {
                        let limit = integer(value)?;
                        self.out_of_memory = (1..USED).contains(&limit);
                    }
                    self.settings.insert(setting, String::from_utf8_lossy(value).into_owned());
                }
                Some(Reply::ok())
            }
            _ => None,
        }
    }
}
