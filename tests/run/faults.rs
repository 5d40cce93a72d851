//! Whatever is killed or stopped: the command ends before the lock does.

use std::time::Duration;

use crate::processes::{LOCK, Place, now, signal, until};
use crate::servers::Servers;

/// A command that ignores SIGTERM, with a daemon in its own session and a child of the daemon.
const STUBBORN: &str = "
    trap '' TERM
    (setsid sh -c 'trap \"\" TERM; (setsid sleep 600 &) ; touch daemon; while :; do sleep 0.05; done' &)
    while [ ! -e daemon ]; do sleep 0.01; done
    echo $REDLOCK_FILE > file
    touch ready
    while :; do sleep 0.05; done";

#[test]
fn a_killed_run_takes_its_command_with_it() {
    let (servers, place) = (Servers::start(3), Place::new());
    let running = place.start(&servers, &[], STUBBORN);
    until("the command has its processes", || place.alive().len() >= 4);
    signal(running.pid(), "KILL");
    place.ends_before_the_lock(&servers);
    until("the lock has run out", || servers.with(LOCK) == 0);
    until("its files are gone", || !std::path::Path::new(&place.read("file")).exists());
}

#[test]
fn a_stopped_run_does_not_keep_its_command() {
    let (servers, place) = (Servers::start(3), Place::new());
    let running = place.start(&servers, &[], STUBBORN);
    signal(running.pid(), "STOP");
    place.ends_before_the_lock(&servers);
    until("the lock has run out", || servers.with(LOCK) == 0);
    signal(running.pid(), "CONT");
    running.ends_with(123);
}

#[test]
fn a_killed_guard_ends_its_command_and_releases_the_lock() {
    let (servers, place) = (Servers::start(3), Place::new());
    let running = place.start(&servers, &[], STUBBORN);
    signal(running.guard(), "KILL");
    place.ends_before_the_lock(&servers);
    let said = running.ends_with(125);
    assert!(said.contains("the guard of the command was killed"), "{said}");
    assert!(!servers.have_majority(LOCK));
}

/// A loss of the lock sends SIGTERM to the command, and so does a stop of its cgroup.
///
/// `systemctl stop` and a container runtime send SIGTERM to each process of the cgroup.
#[test]
fn a_command_has_its_grace_after_a_loss_and_a_stop() {
    let script = "trap 'sleep 0.1; touch cleaned; exit 7' TERM; touch ready; while :; do sleep 0.05; done";
    for (is_lost, code) in [(false, 7), (true, 123)] {
        let (servers, place) = (Servers::start(3), Place::new());
        let running = place.start(&servers, &["--grace", "1s"], script);
        match is_lost {
            true => servers.delete(LOCK),
            false => [running.guard(), running.pid()].into_iter().for_each(|pid| signal(pid, "TERM")),
        }
        running.ends_with(code);
        assert!(place.folder.join("cleaned").exists(), "lost: {is_lost}");
        assert!(!servers.have_majority(LOCK), "lost: {is_lost}");
    }
}

#[test]
fn a_stopped_guard_and_silent_members_leave_nothing_running() {
    let (servers, place) = (Servers::start(3), Place::new());
    let running = place.start(&servers, &[], STUBBORN);
    signal(running.guard(), "STOP");
    let end = now() + Duration::from_millis(servers.longest_left(LOCK));
    servers.freeze();
    place.ends_before(end);
    running.ends_with(123);
}

#[test]
fn a_command_ends_before_the_members_forget_the_lock() {
    let (servers, place) = (Servers::start(3), Place::new());
    let running = place.start(&servers, &[], STUBBORN);
    let end = now() + Duration::from_millis(servers.longest_left(LOCK));
    servers.freeze();
    place.ends_before(end);
    let said = running.ends_with(123);
    assert!(said.contains("lock shop/reindex was lost"), "{said}");
}

#[test]
fn a_lock_that_was_taken_away_ends_its_command() {
    let (servers, place) = (Servers::start(3), Place::new());
    let running = place.start(&servers, &[], STUBBORN);
    servers.delete(LOCK);
    running.ends_with(123);
    assert_eq!(place.alive(), Vec::<u32>::new());
}

#[test]
fn daemons_of_a_command_end_before_the_lock_is_released() {
    let (servers, place) = (Servers::start(3), Place::new());
    let script = "
        (setsid sh -c 'trap \"\" TERM; touch ready; while :; do sleep 0.05; done' &)
        while [ ! -e ready ]; do sleep 0.01; done
        exit 5";
    let running = place.start(&servers, &[], script);
    place.ends_before_the_lock(&servers);
    running.ends_with(5);
    assert!(!servers.have_majority(LOCK));
}

#[test]
fn a_stopped_command_ends_in_time() {
    let (servers, place) = (Servers::start(3), Place::new());
    let running = place.start(&servers, &[], "echo $$ > pid; touch ready; while :; do sleep 0.05; done");
    until("the pid is known", || !place.read("pid").is_empty());
    signal(place.read("pid").parse().unwrap(), "STOP");
    signal(running.pid(), "KILL");
    place.ends_before_the_lock(&servers);
}
