//! Cases without a comparison with a real server: frozen, busy and restarted processes, stepped clocks.

use super::{Config, ConnectionId, Server};
use redlock_operator::redis_member::Secret;
use redlock_operator::redis_member::acl::{UserRule, users_acl};

/// A time of the member's clock, in microseconds.
const START: i64 = 1_767_225_600_000_000;
const SECOND: i64 = 1_000_000;

fn open_server() -> Server {
    Server::new(Config { acl: None, port: 6379, seed: 1 }, START).unwrap()
}

fn guarded_config() -> Config {
    let password = Secret::new("horse");
    let acl = users_acl(std::slice::from_ref(&password), &[UserRule::locker(7, &password)]);
    Config { acl: Some(acl), port: 6379, seed: 1 }
}

/// Sends an inline request.
fn ask(server: &mut Server, connection: ConnectionId, request: &str, now: i64) -> String {
    server.feed(connection, format!("{request}\r\n").as_bytes(), now);
    output(server, connection)
}

fn output(server: &mut Server, connection: ConnectionId) -> String {
    String::from_utf8(server.take_output(connection)).unwrap().replace("\r\n", " ").trim().to_owned()
}

#[test]
fn a_key_ends_by_the_members_clock_despite_its_steps() {
    let mut server = open_server();
    let connection = server.connect(START);
    assert_eq!(ask(&mut server, connection, "SET k v NX PX 30000", START), "+OK");
    assert_eq!(ask(&mut server, connection, "SET endless v", START), "+OK");
    let keyspace = ask(&mut server, connection, "INFO keyspace", START);
    assert!(keyspace.contains("db0:keys=2,expires=1,avg_ttl="), "{keyspace}");
    assert_eq!(ask(&mut server, connection, "PTTL k", START + SECOND), ":29000");
    assert_eq!(ask(&mut server, connection, "PTTL k", START - 3_600 * SECOND), ":3630000", "an hour back");
    assert_eq!(ask(&mut server, connection, "GET k", START + 30 * SECOND), "$1 v", "the last millisecond");
    assert_eq!(ask(&mut server, connection, "GET k", START + 30 * SECOND + 1_000), "$-1");
    assert_eq!(ask(&mut server, connection, "GET k", START), "$-1", "an expired key that was found stays deleted");
}

#[test]
fn a_restarted_process_has_no_data_and_is_closed() {
    let mut server = Server::new(guarded_config(), START).unwrap();
    let (first, admin) = (server.run_id(), server.connect(START));
    assert_eq!(ask(&mut server, admin, "AUTH operator horse", START), "+OK");
    assert_eq!(ask(&mut server, admin, "ACL SETUSER locker-e7 +set", START), "+OK");
    let locker = server.connect(START);
    assert_eq!(ask(&mut server, locker, "AUTH locker-e7 horse", START), "+OK");
    assert_eq!(ask(&mut server, locker, "SET k v PX 30000", START), "+OK");
    assert_eq!(server.strings(START).len(), 1);
    server.restart(guarded_config(), START + SECOND).unwrap();
    assert_ne!(server.run_id(), first);
    assert!(server.is_closed(locker) && server.is_closed(admin));
    assert_eq!(ask(&mut server, locker, "PING", START), "", "bytes on a dead connection are lost");
    assert!(server.strings(START).is_empty());
    let locker = server.connect(START + SECOND);
    assert_eq!(ask(&mut server, locker, "AUTH locker-e7 horse", START + SECOND), "+OK");
    assert!(ask(&mut server, locker, "SET k v PX 30000", START + SECOND).starts_with("-NOPERM"));
    // The same seed gives the same run IDs.
    let mut again = Server::new(guarded_config(), START).unwrap();
    assert_eq!(again.run_id(), first);
    again.restart(guarded_config(), START).unwrap();
    assert_eq!(again.run_id(), server.run_id());
}

#[test]
fn a_file_that_redis_does_not_start_with_is_refused() {
    for acl in ["user default off\nuser x +nothing", "user x on\nuser x off", "users x on", "user x on +client|setinfo"]
    {
        let config = Config { acl: Some(acl.to_owned()), port: 6379, seed: 1 };
        assert!(Server::new(config, START).is_err(), "{acl}");
    }
}

#[test]
fn a_thawed_process_executes_requests_of_closed_connections() {
    let mut server = open_server();
    let (patient, gone, cut) = (server.connect(START), server.connect(START), server.connect(START));
    server.freeze();
    assert_eq!(ask(&mut server, patient, "GET a", START), "");
    assert_eq!(ask(&mut server, gone, "SET a ghost PX 30000", START), "");
    assert_eq!(ask(&mut server, cut, "SET b lost", START), "");
    server.close(gone);
    server.cut(cut);
    let late = server.connect(START + SECOND);
    assert_eq!(ask(&mut server, late, "PTTL a", START + SECOND), "");
    server.thaw(START + 40 * SECOND);
    assert_eq!(output(&mut server, patient), "$-1", "this connection sent the first request");
    assert_eq!(output(&mut server, late), ":30000", "the time to live begins with the execution");
    assert!(server.is_closed(gone));
    assert_eq!(ask(&mut server, patient, "EXISTS a b", START + 40 * SECOND), ":1");
}

#[test]
fn a_killed_connection_loses_requests_and_replies() {
    let mut server = open_server();
    let (admin, other) = (server.connect(START), server.connect(START));
    server.freeze();
    assert_eq!(ask(&mut server, admin, "CLIENT KILL TYPE normal", START), "");
    assert_eq!(ask(&mut server, other, "SET k v", START), "");
    server.thaw(START);
    assert_eq!(output(&mut server, admin), ":1");
    assert!(server.is_closed(other) && !server.is_closed(admin));
    assert_eq!(output(&mut server, other), "");
    assert_eq!(ask(&mut server, admin, "EXISTS k", START), ":0");
}

#[test]
fn an_endless_script_keeps_the_process_busy_until_it_is_killed() {
    let mut server = open_server();
    let (endless, other) = (server.connect(START), server.connect(START));
    server.feed(endless, b"*3\r\n$4\r\nEVAL\r\n$17\r\nwhile true do end\r\n$1\r\n0\r\nPING\r\n", START);
    assert!(server.is_busy());
    assert!(ask(&mut server, other, "GET k", START).starts_with("-BUSY"));
    assert_eq!(output(&mut server, endless), "");
    assert_eq!(ask(&mut server, other, "SCRIPT KILL", START), "+OK");
    let answers = output(&mut server, endless);
    assert!(answers.starts_with("-ERR Script killed by user") && answers.ends_with("+PONG"), "{answers}");
    assert!(ask(&mut server, other, "SCRIPT KILL", START).starts_with("-NOTBUSY"));

    let code = "redis.call('set','k','v') while true do end";
    server.feed(endless, format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{code}\r\n$1\r\n0\r\n", code.len()).as_bytes(), START);
    assert!(ask(&mut server, other, "SCRIPT KILL", START).starts_with("-UNKILLABLE"));
    server.restart(server.config().clone(), START).unwrap();
    assert!(!server.is_busy());
}

#[test]
fn loading_full_and_replica_processes_answer_with_errors() {
    let mut server = open_server();
    let connection = server.connect(START);
    server.set_loading(true);
    assert!(ask(&mut server, connection, "GET k", START).starts_with("-LOADING"));
    assert!(ask(&mut server, connection, "INFO server", START).starts_with('$'));
    server.set_loading(false);
    assert_eq!(ask(&mut server, connection, "SET k v", START), "+OK");
    server.set_out_of_memory(true);
    assert!(ask(&mut server, connection, "SET k v", START).starts_with("-OOM"));
    assert_eq!(ask(&mut server, connection, "DEL k", START), ":1");
    server.set_out_of_memory(false);
    server.set_replica(true);
    assert!(ask(&mut server, connection, "SET k v", START).starts_with("-READONLY"));
    assert!(ask(&mut server, connection, "INFO replication", START).contains("role:slave"));
    server.set_replica(false);
    server.set_busy(true);
    assert!(ask(&mut server, connection, "SCRIPT KILL", START).starts_with("-UNKILLABLE"));
    assert!(server.not_modelled().is_empty());
    assert!(server.user("default").unwrap().starts_with("on nopass"));
}

#[test]
fn requests_without_a_model_are_refused_and_recorded() {
    let mut server = open_server();
    let connection = server.connect(START);
    assert!(ask(&mut server, connection, "LPUSH list v", START).starts_with("-ERR"));
    assert_eq!(server.not_modelled(), ["LPUSH list"]);
}
