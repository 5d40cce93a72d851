//! Random valid requests.

use super::{Arguments, to_arguments};

/// SplitMix64.
pub(super) struct Chance(u64);

const KEYS: [&str; 6] = ["a", "shop/a", "shop/b", "#token", "#operator-epoch", "lock"];
const VALUES: [&str; 6] = ["v", "w", "1", "7", "4294967400", "not/plain\"\\"];
/// A time to live in milliseconds that ends before the next request.
///
/// No other argument equals it.
const SHORT: &str = "4";
const COMMANDS: [&str; 22] = [
    "ping",
    "get",
    "set",
    "del",
    "exists",
    "pexpire",
    "pttl",
    "type",
    "scan",
    "incr",
    "eval",
    "evalsha",
    "info",
    "time",
    "watch",
    "multi",
    "exec",
    "acl|setuser",
    "client|kill",
    "config|set",
    "client",
    "acl",
];
const CATEGORIES: [&str; 9] =
    ["all", "read", "write", "fast", "slow", "dangerous", "connection", "transaction", "scripting"];

macro_rules! script {
    ($($name:literal),+) => {
        concat!($(include_str!(concat!("../../../../../crates/engine/src/voting/scripts/", $name, ".lua"))),+)
    };
}

/// The product's scripts, and some scripts of clients.
pub(super) const SCRIPTS: [&str; 12] = [
    script!("holder", "acquire"),
    script!("holder", "guard", "acquire"),
    script!("holder", "extend"),
    script!("holder", "guard", "extend"),
    script!("raise_counter"),
    script!("repair"),
    script!("seal"),
    script!("release"),
    script!("holder", "inspect"),
    script!("restore_counter"),
    include_str!("../../../../../src/redis_member/scripts/quorum.lua"),
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
];

/// Whether the request creates a key that lives for a few milliseconds.
pub(super) fn ends_soon(request: &[Vec<u8>]) -> bool {
    request.iter().any(|word| word == SHORT.as_bytes())
}

impl Chance {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(end).unwrap()).unwrap()
    }

    fn of<'a>(&mut self, some: &[&'a str]) -> &'a str {
        some[self.below(some.len())]
    }

    /// The number of requests to send at once.
    pub(super) fn burst(&mut self) -> usize {
        if self.below(4) == 0 { 1 + self.below(6) } else { 1 }
    }

    fn key(&mut self) -> &'static str {
        self.of(&KEYS)
    }

    fn ttl(&mut self) -> &'static str {
        if self.below(40) == 0 {
            return SHORT;
        }
        self.of(&["60000", "60000", "90000", "120000", "0", "-1", "x"])
    }

    pub(super) fn request(&mut self, connection: usize) -> Arguments {
        match self.below(20) {
            0..6 => self.plain(),
            6..12 => self.script(),
            12..15 => self.session(),
            15..17 if connection == 0 || connection == 3 => self.users(),
            17 if connection == 0 || connection == 3 => self.connections(),
            _ => self.plain(),
        }
    }

    fn plain(&mut self) -> Arguments {
        let (key, other, value, ttl) = (self.key(), self.key(), self.of(&VALUES), self.ttl());
        let word = |words_: &[&str]| to_arguments(words_);
        match self.below(24) {
            0 => word(&["SET", key, value]),
            1 => word(&["SET", key, value, "NX", "PX", ttl]),
            2 => word(&["SET", key, value, self.of(&["XX", "GET", "KEEPTTL", "NX", "foo"])]),
            3 => word(&["SET", key, value, "PX", ttl, self.of(&["XX", "GET", "KEEPTTL", "NX", "EX"])]),
            4 => word(&["set", key, value, "EX", self.of(&["60", "0", "9223372036854775807", "90"])]),
            5..8 => word(&["GET", key]),
            8 => word(&["DEL", key, other]),
            9 => word(&["EXISTS", key, other, key]),
            10 => word(&["PEXPIRE", key, ttl]),
            11 => word(&["PEXPIRE", key, ttl, self.of(&["GT", "LT", "NX", "XX", "foo"])]),
            12 => word(&["PTTL", key]),
            13 => word(&["TYPE", key]),
            14 => word(&["SCAN", "0", "COUNT", "1000"]),
            15 => word(&["SCAN", "0", "MATCH", self.of(&["shop/*", "#*", "?"]), "COUNT", "100"]),
            16 => word(&[self.of(&["INCR", "DECR", "GETDEL", "PERSIST"]), key]),
            17 => word(&["INCRBY", key, value]),
            18 => word(&["HSET", key, "f", value]),
            19 => word(&[self.of(&["HGET", "HEXISTS", "HDEL"]), key, "f"]),
            20 => word(&["HINCRBY", key, "f", value]),
            21 => word(&["INFO", self.of(&["server", "replication", "memory", "persistence", "clients", "nothing"])]),
            22 => word(&["TIME"]),
            _ => word(&[self.of(&["PING", "ECHO", "GET", "NOTHING", "CLIENT", "ACL"])]),
        }
    }

    /// A script with matching or other arguments.
    fn script(&mut self) -> Arguments {
        let number = self.below(SCRIPTS.len());
        let (key, value, ttl) = (self.key(), self.of(&VALUES), self.ttl());
        let hint = self.of(&["0", "5", "40", "5294967400"]);
        let uid = self.of(&["u1", "u2"]);
        let epoch = self.of(&["1", "2", "5"]);
        let mut arguments: Vec<String> = match number {
            0 => strings(&["2", key, "#token", value, ttl]),
            1 => strings(&["3", key, "#token", "#quorum", value, ttl, uid, epoch]),
            2 => strings(&["1", key, value, ttl]),
            3 => strings(&["2", key, "#quorum", value, ttl, uid, epoch]),
            4 => strings(&["2", key, "#token", value, hint]),
            5 => strings(&["1", key, value, ttl, self.of(&["9795284168000000", "1000"])]),
            6 => strings(&["1", key, value, self.of(&["w", "sealed"]), self.of(&["0", "9000"])]),
            10 => self.record(uid, epoch),
            9 => strings(&["1", "#token", hint]),
            _ => strings(&["1", key, value]),
        };
        if self.below(30) == 0 {
            arguments.truncate(self.below(4));
        }
        let code = SCRIPTS[number];
        let digest = ::redis::Script::new(code).get_hash().to_owned();
        let mut request = match self.below(12) {
            0..4 => to_arguments(["EVAL", code]),
            4..10 => to_arguments(["EVALSHA", &digest]),
            10 => return to_arguments(["SCRIPT", "LOAD", code]),
            _ => return to_arguments(["SCRIPT", "EXISTS", &digest]),
        };
        if self.below(800) == 0 {
            return to_arguments(["SCRIPT", "FLUSH"]);
        }
        request.extend(to_arguments(&arguments));
        request
    }

    fn record(&mut self, uid: &str, epoch: &str) -> Vec<String> {
        let list = self.of(&["m0 m1 m2", "m0 m1 m2|m3", "m3"]);
        let mut arguments = strings(&["1", "#quorum", uid, self.of(&["0", "1"]), "ns/name", list, epoch]);
        arguments.extend(strings(&[self.of(&["0", "1"]), self.of(&["1", "2"]), self.of(&["30000", "60000"]), "30000"]));
        arguments.extend(strings(&[self.of(&["0", "30000"]), "60000", self.of(&["0", "1"]), self.of(&["0", "1"])]));
        arguments
    }

    fn session(&mut self) -> Arguments {
        match self.below(16) {
            0..5 => to_arguments(["WATCH", self.key()]),
            5 => to_arguments(["UNWATCH"]),
            6..9 => to_arguments(["MULTI"]),
            9..14 => to_arguments(["EXEC"]),
            14 => to_arguments(["DISCARD"]),
            _ => to_arguments(["AUTH", self.of(&["anybody", "billing-e7", "default"]), self.of(&["horse", "wrong"])]),
        }
    }

    fn users(&mut self) -> Arguments {
        match self.below(12) {
            0..6 => {
                let mut request = to_arguments(["ACL", "SETUSER", "anybody"]);
                for _ in 0..1 + self.below(6) {
                    let rule = self.rule();
                    request.extend(to_arguments([rule]));
                }
                request
            }
            6..10 => {
                to_arguments(["ACL", "GETUSER", self.of(&["anybody", "billing-e7", "operator", "nobody", "default"])])
            }
            10 => to_arguments(["ACL", self.of(&["LIST", "USERS", "WHOAMI"])]),
            _ => to_arguments(["ACL", "DELUSER", self.of(&["anybody", "nobody"])]),
        }
    }

    fn rule(&mut self) -> String {
        let command = self.of(&COMMANDS);
        let category = self.of(&CATEGORIES);
        let sign = self.of(&["+", "+", "-"]);
        let key = self.of(&["*", "shop/*", "a", "#*", "[sl]*"]);
        match self.below(16) {
            0 => "reset".to_owned(),
            1..3 => "on".to_owned(),
            3 => {
                self.of(&["off", "nopass", "resetpass", "allkeys", "resetkeys", "allcommands", "nocommands"]).to_owned()
            }
            4..6 => ">horse".to_owned(),
            6 => {
                self.of(&["<horse", "#0", "foo", "~", "%R", "(", "+nothing", "+@nothing", "clearselectors"]).to_owned()
            }
            7..9 => format!("~{key}"),
            9 => format!("%{}~{key}", self.of(&["R", "W", "RW", "rw"])),
            10 => format!("{sign}@{category}"),
            11 => format!("({sign}{command} ~{key})"),
            _ => format!("{sign}{command}"),
        }
    }

    fn connections(&mut self) -> Arguments {
        match self.below(4) {
            0 => to_arguments(["CLIENT", "GETNAME"]),
            1 => to_arguments([
                "CLIENT",
                "KILL",
                "USER",
                self.of(&["anybody", "billing-e7", "operator"]),
                "SKIPME",
                "yes",
            ]),
            2 => to_arguments(["CLIENT", "KILL", "USER", self.of(&["anybody", "nobody"])]),
            _ => to_arguments(["CLIENT", "KILL", self.of(&["foo", "ID", "TYPE"]), self.of(&["x", "0", "99999"])]),
        }
    }
}

fn strings(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|word| (*word).to_owned()).collect()
}
