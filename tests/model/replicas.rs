//! The end of a hold, and its continuation: two operator replicas that renew the same hold as their `Holds` let them, its
//! status with versions, and a client outside. The members appear as one register that checks its owner and expires: what
//! the model of exclusion shows of them.

use std::time::Duration;

use super::{
    check::{Rules, holds, violated},
    core::{granted, renewed, ticks},
};

use kube::runtime::reflector::ObjectRef;
use redlock_operator::{
    api::HeldQuorum,
    lock::{
        model::hold::{Hold, Terms},
        replica::holds::Holds,
    },
    redlock::{Extend, LockKey, Nonce, Votes},
    time::{Boottime, UnixMillis},
};

const TTL: u8 = 2;
const NONCE: Nonce = Nonce::from_bytes([1; 10]);
const NOW: Boottime = Boottime::new(Duration::from_secs(1_000));

#[derive(Clone)]
struct Replicas {
    /// A hold is renewed only on a validity that the replica knows.
    continuity: bool,
    /// A hold that ends is sealed, and over when its seal has run out.
    seal: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Owner {
    #[default]
    Nobody,
    Hold,
    Sealed,
    Other,
}

/// A replica's entry in `Holds`, and the renewal that it has under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Replica {
    /// Ticks of validity that it knows of; `None` if it renews nothing.
    knows: Option<u8>,
    /// Ticks since the renewal began, and whether the key was extended.
    renewal: Option<(u8, bool)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    owner: Owner,
    ttl: u8,
    /// Status names the holder, and says until when.
    held: bool,
    valid: u8,
    ending: bool,
    /// The ending replica has a confirmed seal, of so many ticks.
    sealed: Option<u8>,
    /// The first leader has died, and the other replica leads.
    other_leads: bool,
    replicas: [Replica; 2],
    /// The other client's validity.
    other: u8,
    /// It was granted the lock after the hold.
    superseded: bool,
    /// The leader has declared the hold ended.
    over: bool,
    /// A replica took a renewal for good after that.
    revived: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    Begin(usize),
    Execute(usize),
    Settle(usize),
    Publish,
    LateSet,
    OtherAcquires,
    OtherReleases,
    LeaderDies,
    Learn,
    End,
    Seal,
    Free,
}

fn hold(valid: u8) -> Hold {
    let terms = Terms {
        lock: ObjectRef::new("lock").within("ns"),
        uid: "uid".into(),
        quorum: HeldQuorum { namespace: "ns".into(), name: "main".into(), uid: "q".into() },
        key: LockKey::new("key"),
        nonce: NONCE,
        ttl: ticks(TTL),
        renew_interval: ticks(1),
    };
    Hold::new(terms, NOW + ticks(valid), UnixMillis(0), UnixMillis(0), NOW)
}

thread_local! {
    static TABLE: Holds = Holds::default();
}

/// With a table that has this one hold.
fn in_table<T>(knows: u8, use_it: impl FnOnce(&Holds) -> T) -> T {
    TABLE.with(|table| {
        table.forget("uid");
        table.adopt(hold(knows), true);
        use_it(table)
    })
}

impl Replicas {
    fn leader(world: &World) -> usize {
        usize::from(world.other_leads)
    }

    /// Whether the table gives the hold out for renewal.
    fn may_begin(&self, knows: u8) -> bool {
        !self.continuity || in_table(knows, |table| table.take_due(NOW).len() == 1)
    }

    /// What the table knows after the renewal.
    fn settled(&self, knows: u8, (elapsed, extended): (u8, bool)) -> Option<u8> {
        let earned = if self.continuity { renewed(TTL, elapsed, knows) } else { granted(TTL, elapsed) };
        let outcome = match earned {
            _ if !extended => Extend::Refused { refusals: 2 },
            Some(earned) => Extend::Renewed {
                started: NOW,
                valid_until: NOW + ticks(earned),
                votes: Votes { yes: 3, of: 3 },
                missing: Vec::new(),
                others: Vec::new(),
            },
            None => Extend::TooLate,
        };
        let known = in_table(knows, |table| {
            table.settle("uid", &NONCE, outcome, (NOW, UnixMillis(0)), NOW);
            table.get("uid", &NONCE).unwrap()
        });
        known.is_valid(NOW).then(|| u8::try_from(known.valid_until.since(NOW).as_secs()).unwrap())
    }

    fn apply(&self, world: &mut World, step: Step) -> bool {
        let leader = Self::leader(world);
        match step {
            Step::Tick => {
                world.ttl = world.ttl.saturating_sub(1);
                if world.ttl == 0 {
                    world.owner = Owner::Nobody;
                }
                (world.valid, world.other) = (world.valid.saturating_sub(1), world.other.saturating_sub(1));
                world.sealed = world.sealed.map(|left| left.saturating_sub(1));
                for replica in &mut world.replicas {
                    replica.knows = replica.knows.map(|left| left.saturating_sub(1));
                    replica.renewal = replica.renewal.map(|(elapsed, done)| ((elapsed + 1).min(TTL), done));
                }
            }
            Step::Begin(at) => {
                let replica = &mut world.replicas[at];
                if replica.renewal.is_some() || !replica.knows.is_some_and(|knows| self.may_begin(knows)) {
                    return false;
                }
                replica.renewal = Some((0, false));
            }
            Step::Execute(at) => {
                let Some((_, extended @ false)) = &mut world.replicas[at].renewal else { return false };
                if world.owner != Owner::Hold {
                    return false;
                }
                (*extended, world.ttl) = (true, TTL);
            }
            Step::Settle(at) => {
                let Replica { knows: Some(knows), renewal: Some(renewal) } = world.replicas[at] else { return false };
                let settled = self.settled(knows, renewal);
                world.revived |= world.over && settled.is_some();
                world.replicas[at] = Replica { knows: settled, renewal: None };
            }
            Step::Publish => {
                let Some(knows) = world.replicas[leader].knows.filter(|_| world.held && !world.ending) else {
                    return false;
                };
                world.valid = world.valid.max(knows);
            }
            Step::LateSet => {
                if world.owner != Owner::Nobody {
                    return false;
                }
                (world.owner, world.ttl) = (Owner::Hold, TTL);
            }
            Step::OtherAcquires => {
                if world.owner != Owner::Nobody || world.other > 0 {
                    return false;
                }
                (world.owner, world.ttl, world.other) = (Owner::Other, TTL, TTL);
                world.superseded = true;
            }
            Step::OtherReleases => {
                if world.owner != Owner::Other {
                    return false;
                }
                (world.owner, world.ttl, world.other) = (Owner::Nobody, 0, 0);
            }
            Step::LeaderDies => {
                (world.other_leads, world.replicas[0], world.sealed) = (true, Replica::default(), None);
            }
            Step::Learn => {
                if !world.held || world.ending {
                    world.replicas[1] = Replica::default();
                }
            }
            Step::End => {
                if !world.held || world.ending {
                    return false;
                }
                world.ending = true;
                world.replicas[leader] = Replica::default();
            }
            Step::Seal => {
                if !world.ending || !self.seal || world.sealed.is_some() {
                    return false;
                }
                if world.owner == Owner::Hold {
                    world.owner = Owner::Sealed;
                }
                world.sealed = Some(if world.owner == Owner::Sealed { world.ttl } else { 0 });
            }
            Step::Free => {
                let run_out = if self.seal { world.sealed == Some(0) } else { world.valid == 0 };
                if !world.ending || !run_out || world.valid > 0 {
                    return false;
                }
                (world.held, world.ending, world.sealed, world.over) = (false, false, None, true);
            }
        }
        true
    }
}

impl Rules for Replicas {
    type State = World;
    type Step = Step;

    /// The leader has granted and published; the other replica has adopted.
    fn starts(&self) -> Vec<World> {
        let replica = Replica { knows: Some(TTL), renewal: None };
        vec![World { owner: Owner::Hold, ttl: TTL, held: true, valid: TTL, replicas: [replica; 2], ..World::default() }]
    }

    fn steps(&self, _: &World, steps: &mut Vec<Step>) {
        steps.extend([Step::Tick, Step::Publish, Step::OtherAcquires, Step::OtherReleases, Step::LeaderDies]);
        steps.extend([Step::Learn, Step::End, Step::Seal, Step::Free]);
        steps.push(Step::LateSet);
        steps.extend([0, 1].into_iter().flat_map(|at| [Step::Begin(at), Step::Execute(at), Step::Settle(at)]));
    }

    fn take(&self, world: &World, step: Step) -> Option<World> {
        let mut next = *world;
        (self.apply(&mut next, step) && next != *world).then_some(next)
    }

    fn violation(&self, world: &World) -> Option<&'static str> {
        if world.held && world.valid > 0 && world.other > 0 {
            Some("two holders: the published one and another client")
        } else if world.held && world.valid > 0 && world.superseded {
            Some("a hold is published as valid again although another client had the lock in between")
        } else if world.revived {
            Some("a replica goes on with a hold that was declared ended")
        } else {
            None
        }
    }

    fn goal(&self, world: &World) -> bool {
        world.other_leads && world.superseded && world.over
    }

    fn tell(&self, step: Step) -> String {
        let name = |replica: usize| ["X", "Y"][replica];
        match step {
            Step::Tick => "a tick passes".into(),
            Step::Begin(r) => format!("replica {} begins to renew", name(r)),
            Step::Execute(r) => format!("the members extend for {}", name(r)),
            Step::Settle(r) => format!("{} settles its renewal", name(r)),
            Step::Publish => "the leader publishes the validity that it knows".into(),
            Step::LateSet => "the members execute a late duplicate of the first SET".into(),
            Step::OtherAcquires => "another client is granted the lock".into(),
            Step::OtherReleases => "the other client releases".into(),
            Step::LeaderDies => "X dies, Y leads".into(),
            Step::Learn => "Y learns the status".into(),
            Step::End => "the leader writes that the hold ends, and stops renewing".into(),
            Step::Seal => "the leader seals the hold".into(),
            Step::Free => "the leader declares the hold ended".into(),
        }
    }

    fn show(&self, world: &World) -> String {
        let known = world.replicas.map(|replica| replica.knows.map_or("nothing".into(), |knows| knows.to_string()));
        let status = match (world.held, world.ending) {
            (false, _) => "nobody".into(),
            (true, ending) => format!("valid for {}{}", world.valid, if ending { ", ending" } else { "" }),
        };
        format!("key {:?} {}; status {status}; X knows {}, Y {}", world.owner, world.ttl, known[0], known[1])
    }
}

#[test]
fn a_hold_ends_and_does_not_come_back() {
    holds("replicas, seal and continuity", Replicas { continuity: true, seal: true });
}

#[test]
fn without_a_seal() {
    violated("a hold that ends is not sealed", Replicas { continuity: true, seal: false });
}

#[test]
fn without_continuity() {
    violated("a replica renews on no validity that it knows", Replicas { continuity: false, seal: true });
}
