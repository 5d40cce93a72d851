//! Forced losses of all kinds that docs/safety.md promises something for, many of them. What a command leaves behind tells when it lived.
//!
//! `LOSSES=200` forces so many (default 20).

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use redlock_operator::time::Boottime;

use crate::{
    agent::client::Agent,
    processes::{LOCK, Place, Running, now, signal, until},
    servers::Servers,
};

/// Losses at the same time.
const AT_ONCE: usize = 4;
/// Renewals come once in so many milliseconds, and faults at any time between two of them.
const RENEWED_EVERY: usize = 1_000;

/// A command with a child and with a daemon in a session of its own. None of them ends when it is asked to, and each writes down when
/// it lives, by the clock that members count with, too: that of the machine since it was started.
const LIVES: &str = r#"
    trap '' TERM
    beat='while :; do read up rest </proc/uptime; echo "$up" >>beats; sleep 0.05; done'
    (setsid sh -c "trap '' TERM; touch daemon; $beat" &)
    sh -c "$beat" &
    while [ ! -e daemon ] || [ ! -s beats ]; do sleep 0.01; done
    touch ready
    eval "$beat""#;

#[derive(Clone, Copy, Debug)]
enum Loss {
    RunKilled,
    RunStopped,
    GuardKilled,
    MembersSilent,
    GuardStoppedAndMembersSilent,
    MinorityFrozenAndRunStopped,
    AgentKilled,
    AgentStopped,
    AgentAndMembersSilent,
    RunOfAgentStopped,
}

impl Loss {
    const ALL: [Self; 10] = [
        Self::RunKilled,
        Self::RunStopped,
        Self::GuardKilled,
        Self::MembersSilent,
        Self::GuardStoppedAndMembersSilent,
        Self::MinorityFrozenAndRunStopped,
        Self::AgentKilled,
        Self::AgentStopped,
        Self::AgentAndMembersSilent,
        Self::RunOfAgentStopped,
    ];

    const fn has_agent(self) -> bool {
        matches!(self, Self::AgentKilled | Self::AgentStopped | Self::AgentAndMembersSilent | Self::RunOfAgentStopped)
    }

    /// Forces it; the end of the lock if nothing can renew it any more and nobody can ask for it.
    fn force(self, servers: &Servers, running: &Running<'_>, agent: Option<&Agent>) -> Option<Boottime> {
        let tell = |name| agent.unwrap().signal(name);
        match self {
            Self::RunKilled => signal(running.pid(), "KILL"),
            Self::RunStopped | Self::RunOfAgentStopped => signal(running.pid(), "STOP"),
            Self::GuardKilled => signal(running.guard(), "KILL"),
            Self::MembersSilent | Self::AgentAndMembersSilent => return Some(servers.silence(LOCK)),
            Self::GuardStoppedAndMembersSilent => {
                signal(running.guard(), "STOP");
                return Some(servers.silence(LOCK));
            }
            Self::MinorityFrozenAndRunStopped => {
                servers.freeze_some(1);
                signal(running.pid(), "STOP");
            }
            Self::AgentKilled => tell("KILL"),
            Self::AgentStopped => tell("STOP"),
        }
        None
    }
}

/// The last moment at which something of the command lived.
fn last_beat(place: &Place) -> Boottime {
    let millis = |line: &str| Some(line.trim().replace('.', "").parse::<u64>().ok()? * 10);
    let beats = place.read("beats");
    let last = beats.lines().filter_map(millis).max().expect("it lived");
    Boottime::new(Duration::from_millis(last))
}

fn lose(loss: Loss, after: Duration) -> Result<(), String> {
    let (servers, place) = (Servers::start(3), Place::new());
    let agent = loss.has_agent().then(|| Agent::direct(&place, &servers, &[]));
    let running = match &agent {
        Some(agent) => place.started(agent.run(&place, LIVES)),
        None => place.start(&servers, &[], LIVES),
    };
    // At any time between two renewals.
    thread::sleep(after);
    let silent = loss.force(&servers, &running, agent.as_ref());
    let mut end = silent.unwrap_or_else(now);
    until("the command has ended", || {
        if silent.is_none() {
            end = end.max(servers.end(LOCK));
        }
        place.alive().is_empty()
    });
    let last = last_beat(&place);
    signal(running.pid(), "CONT");
    if last > end { Err(format!("{loss:?} after {after:?}: it lived {:?} longer", last.since(end))) } else { Ok(()) }
}

#[test]
fn nothing_of_a_command_outlives_its_lock() {
    let losses = std::env::var("LOSSES").map_or(20, |count| count.parse().expect("LOSSES is a number"));
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= losses {
                        break;
                    }
                    let millis = number * 7919 % RENEWED_EVERY;
                    let after = Duration::from_millis(u64::try_from(millis).unwrap());
                    let lost = lose(Loss::ALL[number % Loss::ALL.len()], after);
                    failures.lock().unwrap().extend(lost.err());
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} of {losses} losses: {failures:#?}", failures.len());
}
