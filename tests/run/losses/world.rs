//! The parts that a lock needs, and their faults.

use std::{process::Stdio, sync::mpsc, thread, time::Duration};

use redlock_operator::time::Boottime;

use super::{
    judge,
    kinds::{Fault, Kind},
    lock::Hold,
};
use crate::{
    agent::client::Agent,
    api::{ApiServer, NONCE, Operator},
    claims::secret,
    cut::{Network, Passes},
    processes::{LOCK, Place, Running, TTL, signal, until},
    servers::{Servers, set, urls},
    shifted::WallClock,
};

/// The `ttl` of claims, in the status and on the members.
const CLAIM_TTL: &str = "4s";
const CLAIM_TTL_MILLIS: u64 = 4_000;
const RENEW_INTERVAL: Duration = Duration::from_millis(500);
/// The error of the API server's clock in seconds.
const WRONG: i64 = 30;
const AN_HOUR: i64 = 3_600;

/// A command with a child and with a daemon in its own session.
///
/// All of them ignore SIGTERM. Each process records repeatedly that it runs, with the time since the machine's start.
const LIVES: &str = r#"
    trap '' TERM
    beat='while :; do read up rest </proc/uptime; echo "$up" >>beats; sleep 0.05; done'
    (setsid sh -c "trap '' TERM; touch daemon; $beat" &)
    sh -c "$beat" &
    while [ ! -e daemon ] || [ ! -s beats ]; do sleep 0.01; done
    touch ready
    eval "$beat""#;

/// The operator's renewal of a key on the members.
struct Renewal {
    end: mpsc::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Renewal {
    fn start(ports: Vec<u16>) -> Self {
        let value = format!("{NONCE}{}", "f".repeat(20));
        set(&ports, LOCK, &value, CLAIM_TTL_MILLIS);
        let (end, ended) = mpsc::channel();
        let thread = thread::spawn(move || {
            while ended.recv_timeout(RENEW_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                set(&ports, LOCK, &value, CLAIM_TTL_MILLIS);
            }
        });
        Self { end, thread }
    }

    fn stop(self) {
        let _ = self.end.send(());
        self.thread.join().unwrap();
    }
}

pub(super) struct World {
    pub(super) servers: Servers,
    pub(super) place: Place,
    network: Network,
    clock: WallClock,
    /// The change of the wall clock in seconds, forwards or backwards.
    clock_is_set_by: i64,
    operator: Option<(ApiServer, std::sync::Mutex<Option<Renewal>>)>,
}

impl World {
    pub(super) fn new(kind: Kind, number: usize) -> Self {
        let (servers, place) = (Servers::start(3), Place::new());
        let network = Network::before(&servers.ports());
        let clock = WallClock::new(&place.folder);
        let sign = if number.is_multiple_of(2) { 1 } else { -1 };
        let operator = kind.holder.has_claim().then(|| {
            secret(&place, &urls(network.ports()));
            let renewal = Renewal::start(servers.ports());
            (ApiServer::start(Operator::Grants, sign * WRONG), std::sync::Mutex::new(Some(renewal)))
        });
        Self { servers, place, network, clock, clock_is_set_by: sign * AN_HOUR, operator }
    }

    /// `redlock` with these arguments and the options for the lock.
    fn redlock(&self, words: &[&str]) -> std::process::Command {
        let urls = urls(self.network.ports());
        let secret = self.place.folder.join("secret");
        let (secret, direct) =
            (secret.to_str().unwrap(), ["--direct", "--admit-at-once", "--members", &urls, "--ttl", TTL]);
        let claim = ["--members-secret", secret, "--ttl", CLAIM_TTL];
        let way = if self.operator.is_some() { &claim[..] } else { &direct[..] };
        let mut redlock = self.place.redlock(&[words, &["--lock", LOCK], way].concat());
        if let Some((api, _)) = &self.operator {
            redlock.env("KUBECONFIG", api.kubeconfig(&self.place.folder));
        }
        self.clock.of(&mut redlock);
        redlock.stdin(Stdio::null());
        redlock
    }

    pub(super) fn agent(&self) -> Agent {
        Agent::start(&mut self.redlock(&["agent", "--identity", "me"]))
    }

    fn run(&self, agent: Option<&Agent>) -> Running<'_> {
        let mut run = match agent {
            Some(agent) => agent.run(&self.place, &[], LIVES),
            None => {
                let mut run = self.redlock(&["run"]);
                run.args(["--", "sh", "-c", LIVES]);
                run
            }
        };
        self.clock.of(&mut run);
        self.place.started(run)
    }

    fn stop_renewing(&self) {
        let renewal = self.operator.as_ref().and_then(|(_, renewal)| renewal.lock().unwrap().take());
        if let Some(renewal) = renewal {
            renewal.stop();
        }
    }

    fn silence(&self, hold: &mut Hold<'_>) {
        self.stop_renewing();
        hold.silence();
    }

    /// Injects a fault that affects neither a command nor its guard.
    pub(super) fn force(&self, fault: Fault, agent: Option<&Agent>, hold: &mut Hold<'_>) {
        let tell = |name| agent.unwrap().signal(name);
        match fault {
            Fault::AgentKilled => tell("KILL"),
            Fault::AgentStopped => tell("STOP"),
            Fault::MinoritySilentAndAgentStopped => {
                hold.silence_one();
                tell("STOP");
            }
            Fault::MembersSilent => self.silence(hold),
            Fault::CutOff => self.network.let_pass(Passes::Nothing),
            Fault::AnswersLost => self.network.let_pass(Passes::RequestsOnly),
            Fault::ClockSet => {
                self.clock.set_by(self.clock_is_set_by);
                self.silence(hold);
            }
            Fault::NotRenewed => self.stop_renewing(),
            fault => unreachable!("{fault:?} is about a command"),
        }
        // Without its holder the lock must not be renewed.
        self.stop_renewing();
    }

    fn force_command(&self, fault: Fault, running: &Running<'_>, agent: Option<&Agent>, hold: &mut Hold<'_>) {
        match fault {
            Fault::RunKilled => signal(running.pid(), "KILL"),
            Fault::RunStopped => signal(running.pid(), "STOP"),
            Fault::GuardKilled => signal(running.guard(), "KILL"),
            Fault::GuardStoppedAndMembersSilent => {
                signal(running.guard(), "STOP");
                self.silence(hold);
            }
            Fault::MinoritySilentAndRunStopped => {
                hold.silence_one();
                signal(running.pid(), "STOP");
            }
            fault => return self.force(fault, agent, hold),
        }
        self.stop_renewing();
    }

    /// Forces the loss of a command's lock.
    pub(super) fn lose(&self, kind: Kind, after: Duration) -> Result<Duration, String> {
        let agent = kind.holder.has_agent().then(|| self.agent());
        let running = self.run(agent.as_ref());
        thread::sleep(after);
        let mut hold = Hold::of(&self.servers);
        self.force_command(kind.fault, &running, agent.as_ref(), &mut hold);
        until("the command has ended", || {
            hold.observe();
            self.place.alive().is_empty()
        });
        let judged = judge("it lived", self.last_beat(), hold.end());
        signal(running.pid(), "CONT");
        judged
    }

    /// The last time that a process of the command recorded.
    fn last_beat(&self) -> Boottime {
        let millis = |line: &str| Some(line.trim().replace('.', "").parse::<u64>().ok()? * 10);
        let beats = self.place.read("beats");
        let last = beats.lines().filter_map(millis).max().expect("it lived");
        Boottime::new(Duration::from_millis(last))
    }
}
