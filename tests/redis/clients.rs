//! Lock clients that the package registries here do not have.
//!
//! Their commands and the order come from the sources of the libraries, which the comments name. The test sends them
//! as a user of `spec.clients`. docs/clients.md describes the needs of each library.

use crate::quorum::{LEADER, Quorum, fresh_value};
use crate::server::{PREFIX, Server, as_text, client, locker, password};
use redis::aio::MultiplexedConnection;
use redlock_operator::redlock::{Acquire, KeyState};
use std::time::Duration;

/// Commands and their expected replies.
///
/// In a command `{key}`, `{value}`, `{other}` and the names of scripts are placeholders for one argument each, and
/// `{sha:SCRIPT}` for the hash of a script.
type Steps = &'static [(&'static str, &'static str)];

/// The commands of one library.
struct Dialect {
    name: &'static str,
    login: &'static str,
    /// The key that it uses for the lock `job`, within the client's prefix.
    key: &'static str,
    /// Commands that it sends on connect.
    connect: Steps,
    /// Commands that it sends on connect unless it is configured otherwise, and that are refused.
    ///
    /// docs/clients.md has the configuration that disables them.
    refused: &'static [&'static str],
    /// Commands of the first attempt, on a free lock.
    ///
    /// `taken` has those of a later attempt, on a lock of another client.
    take: Steps,
    taken: Steps,
    /// Empty if the library cannot extend a lock.
    extend: Steps,
    release: Steps,
    /// Commands that try to release a lock of another client.
    ///
    /// All libraries send them after a failed attempt, or after their own lock expired.
    release_others: Steps,
}

/// The scripts, each with the Redis commands of its source in their order.
const SCRIPTS: &[(&str, &str)] = &[
    ("{release}", "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('del', KEYS[1])"),
    (
        "{take-or-renew}",
        "local free = redis.call('exists', KEYS[1]) == 0 and ARGV[3] == 'yes' \
         if free or redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) end",
    ),
    ("{left}", "local value = redis.call('get', KEYS[1]) return {value, redis.call('pttl', KEYS[1])}"),
    (
        "{take-over}",
        "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end \
         return redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3], 'nx')",
    ),
    (
        "{renew-or-take}",
        "local current = redis.call('get', KEYS[1]) \
         if current == false then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) and 1 or 0 end \
         if current ~= ARGV[1] then return -1 end return redis.call('pexpire', KEYS[1], ARGV[2])",
    ),
];

const EVAL_RELEASE: Steps = &[("EVAL {release} 1 {key} {value}", "1")];
const EVAL_RELEASE_OTHERS: Steps = &[("EVAL {release} 1 {key} {value}", "0")];
const SHA_RELEASE: Steps = &[("EVALSHA {sha:{release}} 1 {key} {value}", "1")];
const SHA_RELEASE_OTHERS: Steps = &[("EVALSHA {sha:{release}} 1 {key} {value}", "0")];
/// The first release of StackExchange.Redis.
///
/// It loads a script and sends the text once. Later releases use the hash (StackExchange/StackExchange.Redis,
/// src/StackExchange.Redis/RedisDatabase.cs, `ScriptEvalMessage`).
const STACK_EXCHANGE_RELEASE: Steps =
    &[("SCRIPT LOAD {release}", "{sha:{release}}"), ("EVAL {release} 1 {key} {value}", "1")];
/// Refused commands in the handshake of StackExchange.Redis.
///
/// They are in src/StackExchange.Redis/ServerEndPoint.cs, `HandshakeAsync`, `AutoConfigureAsync` and `GetTracerMessage`. The
/// library treats a refused ECHO as a failed login. If ECHO is disabled, it sends PING.
const STACK_EXCHANGE_REFUSED: &[&str] = &[
    "CLIENT SETNAME worker",
    "CLIENT ID",
    "CONFIG GET timeout",
    "CONFIG GET slave-read-only",
    "CONFIG GET databases",
    "INFO replication",
    "INFO server",
    "CLUSTER NODES",
    "GET __Booksleeve_TieBreak",
    "SUBSCRIBE __Booksleeve_MasterChanged",
    "ECHO unique-id",
];

/// The common commands of most libraries, which log in and run the published algorithm.
const PLAIN: Dialect = Dialect {
    name: "",
    login: "AUTH {user} {password}",
    key: "job",
    connect: &[],
    refused: &[],
    take: &[("SET {key} {value} NX PX 9000", "OK")],
    taken: &[("SET {key} {value} NX PX 9000", "nil")],
    extend: &[],
    release: EVAL_RELEASE,
    release_others: EVAL_RELEASE_OTHERS,
};
/// PLAIN over StackExchange.Redis.
const STACK_EXCHANGE: Dialect = Dialect {
    connect: &[("PING", "PONG")],
    refused: STACK_EXCHANGE_REFUSED,
    take: &[("SET {key} {value} EX 9 NX", "OK")],
    taken: &[("SET {key} {value} PX 9500 NX", "nil")],
    release: STACK_EXCHANGE_RELEASE,
    release_others: SHA_RELEASE_OTHERS,
    ..PLAIN
};

const DIALECTS: &[Dialect] = &[
    // leandromoreira/redlock-rb, lib/redlock/client.rb and scripts.rb, over redis-client.
    Dialect {
        name: "redlock-rb",
        login: "HELLO 3 AUTH {user} {password}",
        take: &[
            ("EVALSHA {sha:{take-or-renew}} 1 {key} {value} 9000 yes", "NOSCRIPT"),
            ("SCRIPT LOAD {release}", "{sha:{release}}"),
            ("SCRIPT LOAD {take-or-renew}", "{sha:{take-or-renew}}"),
            ("SCRIPT LOAD {left}", "{sha:{left}}"),
            ("EVALSHA {sha:{take-or-renew}} 1 {key} {value} 9000 yes", "OK"),
        ],
        taken: &[("EVALSHA {sha:{take-or-renew}} 1 {key} {value} 9000 yes", "nil")],
        extend: &[("EVALSHA {sha:{take-or-renew}} 1 {key} {value} 20000 no", "OK")],
        release: SHA_RELEASE,
        release_others: SHA_RELEASE_OTHERS,
        ..PLAIN
    },
    // ronnylt/redlock-php, src/RedLock.php, over phpredis. The library itself does not log in.
    Dialect { name: "redlock-php", ..PLAIN },
    // php-lock/lock 2.3.0, src/mutex/RedisMutex.php, SpinlockMutex.php and PHPRedisMutex.php, with phpredis' OPT_PREFIX.
    Dialect { name: "PHPRedisMutex", key: "lock_job", ..PLAIN },
    // sbertrang/redis-distlock, lib/Redis/DistLock.pm, over Redis.pm.
    Dialect {
        name: "Redis::DistLock",
        connect: &[("SCRIPT LOAD {release}", "{sha:{release}}")],
        refused: &["INFO"],
        release: SHA_RELEASE,
        release_others: SHA_RELEASE_OTHERS,
        ..PLAIN
    },
    // jacket-code/redlock-cpp, redlock-cpp/redlock.cpp, over hiredis. The library itself does not log in. Its extension
    // writes another value to the key.
    Dialect {
        name: "Redlock-cpp",
        take: &[("set {key} {other} px 9000 nx", "OK")],
        taken: &[("set {key} {other} px 9000 nx", "nil")],
        extend: &[("EVAL {take-over} 1 {key} {other} {value} 20000", "OK")],
        ..PLAIN
    },
    // KidFashion/redlock-cs, src/redlock-cs/Redlock.cs, over StackExchange.Redis.
    Dialect { name: "Redlock-cs", ..STACK_EXCHANGE },
    // samcook/RedLock.net, RedLockNet.SERedis/RedLock.cs and Lua/*.lua, over StackExchange.Redis, with RedisKeyFormat "{0}".
    Dialect {
        name: "RedLock.net",
        extend: &[
            ("SCRIPT LOAD {renew-or-take}", "{sha:{renew-or-take}}"),
            ("EVAL {renew-or-take} 1 {key} {value} 20000", "1"),
        ],
        ..STACK_EXCHANGE
    },
    // StackExchange/StackExchange.Redis, src/StackExchange.Redis/RedisDatabase.cs, RedisTransaction.cs and Condition.cs:
    // LockTake, LockQuery, LockExtend and LockRelease.
    Dialect {
        name: "StackExchange.Redis",
        take: &[("SET {key} {value} EX 9 NX", "OK"), ("GET {key}", "{value}")],
        taken: &[("SET {key} {value} EX 9 NX", "nil")],
        // It uses EXPIRE for whole seconds, and PEXPIRE for other times.
        extend: &[
            ("WATCH {key}", "OK"),
            ("GET {key}", "{value}"),
            ("MULTI", "OK"),
            ("EXPIRE {key} 15", "QUEUED"),
            ("EXEC", "1"),
            ("WATCH {key}", "OK"),
            ("GET {key}", "{value}"),
            ("MULTI", "OK"),
            ("PEXPIRE {key} 20500", "QUEUED"),
            ("EXEC", "1"),
        ],
        release: &[
            ("WATCH {key}", "OK"),
            ("GET {key}", "{value}"),
            ("MULTI", "OK"),
            ("DEL {key}", "QUEUED"),
            ("EXEC", "1"),
        ],
        release_others: &[("WATCH {key}", "OK"), ("UNWATCH", "OK")],
        ..STACK_EXCHANGE
    },
];

/// One library's connection to one member.
struct Speaker {
    connection: MultiplexedConnection,
    dialect: &'static Dialect,
    key: String,
}

impl Speaker {
    async fn connect(server: &Server, dialect: &'static Dialect) -> Self {
        let client = redis::Client::open(format!("redis://{}/", server.address())).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut speaker = Self { connection, dialect, key: format!("{PREFIX}{}", dialect.key) };
        let logged_in = speaker.send(dialect.login).await;
        assert!(!logged_in.starts_with("WRONG") && !logged_in.starts_with("NO"), "{}: {logged_in}", dialect.name);
        for command in dialect.refused {
            assert_eq!(speaker.send(command).await, "NOPERM", "{}: {command}", dialect.name);
        }
        speaker.go(dialect.connect).await;
        speaker
    }

    fn argument(&self, argument: &str) -> String {
        if let Some(script) = argument.strip_prefix("{sha:").and_then(|rest| rest.strip_suffix('}')) {
            return redis::Script::new(&self.argument(script)).get_hash().to_owned();
        }
        match argument {
            "{key}" => self.key.clone(),
            "{value}" => format!("the value of {}", self.dialect.name),
            "{other}" => format!("the first value of {}", self.dialect.name),
            "{user}" => client().name().to_owned(),
            "{password}" => password().expose().to_owned(),
            _ => SCRIPTS.iter().find(|(name, _)| *name == argument).map_or(argument, |(_, script)| script).to_owned(),
        }
    }

    /// Sends one command.
    ///
    /// Returns the reply as text, or the code of an error.
    async fn send(&mut self, command: &str) -> String {
        let words: Vec<String> = command.split(' ').map(|argument| self.argument(argument)).collect();
        as_text(redis::Cmd::new().arg(words.as_slice()).query_async(&mut self.connection).await)
    }

    async fn go(&mut self, steps: Steps) {
        for (command, expected) in steps {
            let expected = self.argument(expected);
            assert_eq!(self.send(command).await, expected, "{}: {command}", self.dialect.name);
        }
    }
}

#[tokio::test]
async fn clients_of_other_languages_and_the_operator_exclude_another() {
    for dialect in DIALECTS {
        let quorum = Quorum::of(3).await;
        let mut speakers = Vec::new();
        for server in &quorum.servers {
            speakers.push(Speaker::connect(server, dialect).await);
        }
        let key = speakers[0].key.clone();
        for speaker in &mut speakers {
            speaker.go(dialect.take).await;
        }
        let outcome = quorum.acquire(&key, &fresh_value()).await;
        let Acquire::HeldByOther { longest: Some(longest), occupants, .. } = outcome else {
            panic!("{}: {outcome:?}", dialect.name)
        };
        assert!(longest > Duration::from_secs(5) && longest <= Duration::from_secs(9), "{}: {longest:?}", dialect.name);
        let KeyState::String { value, .. } = &occupants[0].holder else { panic!("{}: {occupants:?}", dialect.name) };
        let values = ["{value}", "{other}"].map(|value| speakers[0].argument(value));
        assert!(values.contains(&value.expose().to_owned()), "{}: the value of the key", dialect.name);
        assert!(!format!("{occupants:?}").contains(value.expose()), "{}: a value is secret", dialect.name);
        for speaker in &mut speakers {
            speaker.go(dialect.extend).await;
            let left: i64 = speaker.send("PTTL {key}").await.parse().unwrap();
            let least = if dialect.extend.is_empty() { 5_000 } else { 15_000 };
            assert!(left > least, "{}: {left} ms left", dialect.name);
            let others = speaker.send("EVAL {release} 1 {key} somebody").await;
            assert_eq!(others, "0", "{}", dialect.name);
            speaker.go(dialect.release).await;
        }
        quorum.is_empty().await;

        let ours = fresh_value();
        quorum.granted_everywhere(&key, &ours).await;
        for speaker in &mut speakers {
            speaker.go(dialect.taken).await;
            speaker.go(dialect.release_others).await;
        }
        assert_eq!(quorum.release(&key, &ours).await, 3, "{}: a client changed the operator's key", dialect.name);
    }
}

#[tokio::test]
async fn clients_of_other_languages_stay_connected_to_a_fenced_member() {
    for dialect in DIALECTS {
        let quorum = Quorum::of(1).await;
        let mut speaker = Speaker::connect(&quorum.servers[0], dialect).await;
        speaker.go(dialect.take).await;
        let mut admin = quorum.servers[0].admin().await;
        admin.close(LEADER, &[locker(), client()]).await.unwrap();
        for (command, _) in dialect.taken.iter().chain(dialect.extend).chain(dialect.release) {
            let refused = if *command == "EXEC" { "EXECABORT" } else { "NOPERM" };
            assert_eq!(speaker.send(command).await, refused, "{}: {command}", dialect.name);
        }
        assert_eq!(speaker.send("PING").await, "PONG", "{}", dialect.name);
        assert_eq!(admin.open(LEADER, &[locker(), client()]).await, Ok(()));
        assert_ne!(speaker.send(dialect.taken[0].0).await, "NOPERM", "{}", dialect.name);
    }
}
