//! The environment of a command, and the exit codes of `redlock run`.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use crate::agent::client::get_unix;
use crate::claims::secret;
use crate::processes::{LOCK, Place, TTL, WORKS, WORKS_UNTIL_END, errors_of, now, signal, until};
use crate::servers::Servers;

#[test]
fn a_command_gets_its_lock_and_run_returns_its_exit_code() {
    let (servers, place) = (Servers::start(3), Place::new());
    let script = "echo $REDLOCK_LOCK $REDLOCK_TOKEN; cat $REDLOCK_FILE; exit 7";
    let output = place.output(&servers, &["--identity", "me"], &["sh", "-c", script]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let (first, file) = text.split_once('\n').unwrap();
    let (lock, token) = first.split_once(' ').unwrap();
    let file: Value = serde_json::from_str(file).unwrap();
    let token: i64 = token.parse().unwrap();
    assert_eq!((lock, &file["lock"]), (LOCK, &Value::from(LOCK)));
    assert_eq!((&file["fencingToken"], &file["holder"]), (&Value::from(token), &Value::from("me")));
    assert!(file["validForMs"].as_u64().unwrap() > 1_000, "{file}");
    assert!(!servers.have_majority(LOCK), "the lock was not released");
    let second = place.output(&servers, &[], &["sh", "-c", "echo $REDLOCK_TOKEN"]);
    assert!(String::from_utf8(second.stdout).unwrap().trim().parse::<i64>().unwrap() > token);
}

#[test]
fn the_socket_gives_the_remaining_validity_and_is_removed() {
    let (servers, place) = (Servers::start(3), Place::new());
    let running = place.start(&servers, &[], &format!("echo $REDLOCK_SOCKET > socket; {WORKS_UNTIL_END}"));
    let socket = place.read("socket");
    let ask = || get_unix(socket.as_ref(), "/leader").body;
    let deadline = || ask()["deadlineBoottimeMs"].as_u64().unwrap();
    let first = deadline();
    until("the lock is renewed", || deadline() > first);
    assert!(ask()["validForMs"].as_u64().unwrap() > 0);
    std::fs::write(place.folder.join("end"), "").unwrap();
    running.ends_with(0);
    assert!(UnixStream::connect(&socket).is_err());
}

#[test]
fn failed_commands_and_signals_have_the_exit_codes_of_env() {
    let (servers, place) = (Servers::start(3), Place::new());
    std::fs::write(place.folder.join("file"), "").unwrap();
    let code = |command: &[&str]| place.output(&servers, &[], command).status.code();
    assert_eq!(code(&["no-such-command"]), Some(127));
    assert_eq!(code(&["./file"]), Some(126));
    assert_eq!(code(&["sh", "-c", "kill -USR1 $$"]), Some(138));
    assert_eq!(code(&["true"]), Some(0));
}

#[test]
fn a_lock_that_is_taken_is_not_acquired() {
    let (servers, place, other) = (Servers::start(3), Place::new(), Place::new());
    let holder = other.start(&servers, &[], WORKS);
    let refused = |options: &[&str]| place.output(&servers, options, &["touch", "ran"]);
    let errors = errors_of(&refused(&["--try"]), 122);
    assert!(errors.contains("lock shop/reindex is taken"), "{errors}");
    assert_eq!(refused(&["--try", "--not-acquired-exit-code", "0"]).status.code(), Some(0));
    errors_of(&refused(&["--wait", "200ms"]), 122);
    // A user presses Ctrl-C while it waits.
    let mut waiting = place.command(&servers, &[], &["touch", "ran"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 64];
    assert!(waiting.stderr.as_mut().unwrap().read(&mut said).unwrap() > 0);
    signal(waiting.id(), "INT");
    assert_eq!(waiting.wait().unwrap().code(), Some(130));
    assert!(!place.folder.join("ran").exists());
    // The next command gets the lock after its release.
    signal(holder.pid(), "TERM");
    holder.ends_with(143);
    assert_eq!(refused(&[]).status.code(), Some(0));
}

/// Images can use signals like SIGWINCH to stop, so `run` must forward them, like tini.
///
/// The lock lasts until the command has ended.
/// SIGTSTP must not stop `run`, because a stopped program cannot renew its lock.
#[test]
fn signals_reach_the_command_and_the_lock_lasts() {
    for name in ["TERM", "WINCH"] {
        let (servers, place) = (Servers::start(3), Place::new());
        let running = place.start(&servers, &[], &format!("trap 'touch asked' {name}; {WORKS_UNTIL_END}; exit 3"));
        signal(running.pid(), name);
        until(&format!("the command was asked by {name}"), || place.folder.join("asked").exists());
        assert!(servers.have_majority(LOCK), "after {name}");
        signal(running.pid(), "TSTP");
        std::fs::write(place.folder.join("end"), "").unwrap();
        running.ends_with(3);
    }
}

/// `nohup` ignores SIGHUP, and a parent can ignore SIGCHLD.
#[test]
fn signals_that_were_ignored_at_the_start_cost_nothing() {
    let (servers, place) = (Servers::start(3), Place::new());
    let plain = place.command(&servers, &[], &["sh", "-c", &format!("{WORKS_UNTIL_END}; exit 7")]);
    let mut command = Command::new("env");
    command.arg("--ignore-signal=HUP").arg("--ignore-signal=CHLD").arg(plain.get_program()).args(plain.get_args());
    let mut child = command.current_dir(&place.folder).stdin(Stdio::null()).spawn().unwrap();
    until("the command runs", || place.folder.join("ready").exists());
    signal(child.id(), "HUP");
    std::fs::write(place.folder.join("end"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

/// `envFrom` with a prefix puts the members' passwords into the environment of `run`.
///
/// The command does not need them.
#[test]
fn a_command_does_not_get_the_passwords_of_the_members() {
    let (servers, place) = (Servers::start(3), Place::new());
    let mut command = place.command(&servers, &[], &["sh", "-c", "env | grep ^REDLOCK_ | cut -d= -f1 | sort"]);
    command.env("REDLOCK_MEMBERS_urls", "redis://u:secret@h").env("REDLOCK_MEMBERS_PORT", "tcp://10.0.0.1:6379");
    let output = command.env("REDLOCK_MEMBERS", servers.urls()).output().unwrap();
    let names = String::from_utf8(output.stdout).unwrap();
    assert!(names.contains("REDLOCK_TOKEN\n") && !names.contains("REDLOCK_MEMBERS"), "{names}");
}

/// An invalid command line has an exit code of `redlock`.
///
/// The usual code 2 can have another meaning in the user's program.
#[test]
fn options_that_cannot_be_read_are_an_error_of_redlock() {
    let place = Place::new();
    for wrong in [&["run", "--lock", "shop/a"][..], &["run", "--lcok", "a", "--", "true"], &["hold"], &["nothing"]] {
        assert_eq!(place.redlock(wrong).output().unwrap().status.code(), Some(125), "{wrong:?}");
    }
    assert_eq!(place.redlock(&["--version"]).output().unwrap().status.code(), Some(0));
}

#[test]
fn max_hold_ends_the_command() {
    let (servers, place) = (Servers::start(3), Place::new());
    errors_of(&place.output(&servers, &["--max-hold", "500ms"], &["sh", "-c", WORKS]), 124);
    assert!(!servers.have_majority(LOCK), "the lock was not released");
}

#[test]
fn a_nested_run_has_the_hold_of_the_outer_one() {
    let (servers, place) = (Servers::start(3), Place::new());
    let inner = format!("{} --lock {LOCK} --try -- sh -c 'echo $REDLOCK_TOKEN'", servers.run());
    let script = format!("echo $REDLOCK_TOKEN; {inner}; echo $REDLOCK_HELD");
    let output = place.output(&servers, &[], &["sh", "-c", &script]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], lines[1], "{text} {}", String::from_utf8_lossy(&output.stderr));
    // This run represents a daemon that outlived the outer run.
    let mut late = place.command(&servers, &[], &["touch", "ran"]);
    let late = late.env("REDLOCK_HELD", lines[2]).output().unwrap();
    assert!(errors_of(&late, 125).contains("has ended or does not answer"), "{late:?}");
    assert!(!place.folder.join("ran").exists());
}

/// Without the refusal the innermost run would wait for a lock that is released only after its own end.
#[test]
fn a_run_inside_two_others_does_not_wait_for_the_outer_lock() {
    let (servers, place) = (Servers::start(3), Place::new());
    let run = servers.run();
    let script = format!("{run} --lock shop/b -- {run} --lock {LOCK} -- true");
    let text = errors_of(&place.output(&servers, &[], &["sh", "-c", &script]), 125);
    assert!(text.contains("which holds shop/reindex, shop/b in this order"), "{text}");
}

/// A lock with the same name on other masters is another lock.
#[test]
fn a_run_inside_another_takes_the_same_name_at_another_place() {
    let (servers, others, place) = (Servers::start(3), Servers::start(3), Place::new());
    let holder = Place::new();
    let held = holder.start(&others, &[], WORKS);
    let script = format!("{} --lock {LOCK} --try -- touch ran", others.run());
    errors_of(&place.output(&servers, &[], &["sh", "-c", &script]), 122);
    assert!(!place.folder.join("ran").exists());
    drop(held);
}

/// A key and its slots have different keys on the members, so both commands would run.
#[test]
fn a_lock_with_another_number_of_slots_is_refused() {
    let (servers, place) = (Servers::start(3), Place::new());
    for (holders, others) in [(&["--slots", "2"][..], &[][..]), (&[], &["--slots", "2"])] {
        let holder = Place::new();
        let held = holder.start(&servers, holders, WORKS);
        let text = errors_of(&place.output(&servers, others, &["touch", "ran"]), 125);
        assert!(text.contains("another number of slots") && text.contains("--slots"), "{text}");
        assert!(!place.folder.join("ran").exists());
        signal(held.pid(), "TERM");
        let _ = held.end();
    }
    errors_of(&place.output(&servers, &["--slots", "2"], &["true"]), 0);
}

/// A rotation replaces the Secret, removes the old password, and breaks connections.
#[test]
fn a_lock_of_the_members_outlives_an_exchange_of_passwords() {
    let (servers, place) = (Servers::start(3), Place::new());
    servers.send_all("ACL SETUSER app on >old ~* &* +@all");
    let write = |password: &str| secret(&place, &servers.urls().replace("//", &format!("//app:{password}@")));
    let secret = &write("old");
    let mut run = place.redlock(&["run", "--direct", "--members-secret", secret, "--lock", LOCK, "--ttl", TTL, "--"]);
    run.args(["sh", "-c", WORKS_UNTIL_END]).stdin(Stdio::null());
    let running = place.started(run);
    write("new");
    // The command reads the Secret every two seconds.
    std::thread::sleep(Duration::from_secs(3));
    servers.send_all("ACL SETUSER app <old >new");
    servers.send_all("CLIENT KILL TYPE normal");
    let end = now() + 3 * Duration::from_secs(3);
    until("three times the ttl have passed", || now() >= end);
    std::fs::write(place.folder.join("end"), "").unwrap();
    running.ends_with(0);
}

#[test]
fn a_lock_of_the_members_is_held_until_the_command_is_stopped() {
    let (servers, place) = (Servers::start(3), Place::new());
    let urls = servers.urls();
    let mut hold =
        place.redlock(&["hold", "--direct", "--admit-at-once", "--members", &urls, "--lock", LOCK, "--ttl", TTL]);
    let mut child = hold.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.trim().parse::<i64>().unwrap() > 0, "{line}");
    assert!(servers.have_majority(LOCK));
    signal(child.id(), "TERM");
    assert!(child.wait().unwrap().success());
    assert_eq!(servers.with(LOCK), 0, "the lock was not released");
}

#[test]
fn masters_without_a_fence_vote_after_the_longest_lock() {
    let (servers, place) = (Servers::start(3), Place::new());
    let urls = servers.urls();
    let begun = now();
    let options = ["run", "--direct", "--wait-before-voting", "2s", "--members", &urls, "--lock", LOCK, "--ttl", "2s"];
    let output = place.redlock(&[&options[..], &["--", "echo", "ran"]].concat()).stdin(Stdio::null()).output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"ran\n"[..]), "{output:?}");
    assert!(now().since(begun) >= Duration::from_secs(2), "an earlier lock can still be valid");
}

#[test]
fn run_without_token_takes_a_lock_with_token_zero() {
    let (servers, place) = (Servers::start(3), Place::new());
    let output = place.output(&servers, &["--without-token"], &["sh", "-c", "echo $REDLOCK_TOKEN"]);
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"0\n"[..]), "{output:?}");
}

#[test]
fn a_grace_that_leaves_no_time_is_refused_before_any_lock() {
    let (servers, place) = (Servers::start(3), Place::new());
    let said = errors_of(&place.output(&servers, &["--grace", "2s"], &["true"]), 125);
    assert!(said.contains("--grace 2s is too long") && said.contains("at most 1450ms"), "{said}");
}

#[test]
fn input_and_output_are_those_of_the_command() {
    let (servers, place) = (Servers::start(3), Place::new());
    let mut command = place.command(&servers, &[], &["tr", "a-z", "A-Z"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"HELLO");
}
