use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::api::RedisQuorumStatus;
use crate::tests::monotonic as at;

mod epochs;
mod external;
mod phases;

const DELAY: Duration = Duration::from_secs(10);

fn name(index: usize) -> String {
    format!("main-{index}")
}

/// The step of a change that is not joint, while these members do not vote.
fn awaits(members: &[String]) -> ChangeStep {
    ChangeStep::Wait(Until::NewMembersVote { members: listed(members) })
}

/// A quorum in the state of its status, and the observations of a leader.
struct World {
    quorum: RedisQuorum,
    now: u64,
    /// The running process, by index.
    up: [bool; 9],
    /// The members on which the operator's user of the next epoch is open.
    next_open: BTreeSet<String>,
    closed_since: Option<u64>,
    incomplete_locks: Vec<String>,
    busy: Option<Until>,
}

impl World {
    /// A number of admitted members, without a change.
    fn settled(members: i32) -> Self {
        let mut quorum = RedisQuorum::new("main", Default::default());
        quorum.spec.members = members;
        let mut world = Self {
            quorum,
            now: 100,
            up: [true; 9],
            next_open: BTreeSet::new(),
            closed_since: None,
            incomplete_locks: Vec::new(),
            busy: None,
        };
        let lists = world.lists();
        let status = world.quorum.status.get_or_insert_default();
        (status.membership_epoch, status.voters) = (Some(1), lists.voters.clone());
        lists.voters.iter().for_each(|name| world.admit(name));
        assert_eq!(world.step(), ChangeStep::Nothing);
        world
    }

    /// A change to another number, after this number of steps with all members.
    fn changing(from: i32, to: i32, steps: usize) -> Self {
        let mut world = Self::settled(from);
        world.quorum.spec.members = to;
        world.admit_all();
        world.act_times(steps);
        world
    }

    fn lists(&self) -> Lists {
        Lists::of(&self.quorum)
    }

    fn status(&mut self) -> &mut RedisQuorumStatus {
        self.quorum.status.get_or_insert_default()
    }

    /// Admits a member like the fence, under the current epoch.
    fn admit(&mut self, name: &str) {
        let epoch = self.lists().epoch;
        self.forget(name);
        let record = json!({"name": name, "state": "Admitted", "runID": format!("{name} at {}", self.now), "podUID": "p",
            "admittedAt": "2026-01-01T00:00:00.000Z", "epoch": epoch});
        self.status().members.push(serde_json::from_value(record).unwrap());
    }

    fn admit_all(&mut self) {
        for name in self.lists().members() {
            if record_named(&self.quorum, &name).run_id.is_none() {
                self.admit(&name);
            }
        }
    }

    /// Fences a member. With `unconfirmed`, the previous process can still run.
    fn fence(&mut self, name: &str, unconfirmed: bool) {
        let epoch = self.quorum.member(name).and_then(|member| member.epoch);
        self.forget(name);
        let mut record = json!({"name": name, "state": "Fenced", "runID": "next", "epoch": epoch});
        if unconfirmed {
            record["predecessor"] = json!({"runID": "before", "podUID": "p"});
        }
        self.status().members.push(serde_json::from_value(record).unwrap());
    }

    fn forget(&mut self, name: &str) {
        self.status().members.retain(|member| member.name != name);
        self.next_open.remove(name);
    }

    fn step(&self) -> ChangeStep {
        let lists = self.lists();
        let input = |name: &String| {
            let index: usize = name.trim_start_matches("main-").parse().unwrap();
            MemberSummary {
                votes: record_named(&self.quorum, name).admitted && self.up[index],
                ready_for_next: self.next_open.contains(name),
                closed: is_closed(&self.quorum, name, &lists),
                name: name.clone(),
                ..MemberSummary::default()
            }
        };
        let members: Vec<_> = lists.members().iter().map(input).collect();
        decide(&Input {
            now: at(self.now),
            lists: &lists,
            members: &members,
            incomplete_locks: &self.incomplete_locks,
            busy: self.busy.as_ref(),
            left_behind: &[],
            former_closed_since: self.closed_since.map(at),
            rejoin_delay: DELAY,
        })
    }

    /// Executes one step.
    fn act(&mut self) -> ChangeStep {
        let step = self.step();
        match &step {
            ChangeStep::Nothing | ChangeStep::Wait(_) | ChangeStep::Unclosed(_) => {}
            ChangeStep::OpenNext(names) => self.next_open.extend(names.iter().cloned()),
            ChangeStep::Switch => {
                let lists = self.lists();
                lists.switch(self.status());
                self.next_open.clear();
            }
            ChangeStep::Close(names) => {
                let epoch = self.lists().epoch;
                for member in self.status().members.iter_mut().filter(|member| names.contains(&member.name)) {
                    member.epoch = Some(epoch);
                }
            }
            ChangeStep::WaitUntil(until) => self.now = until.since_boot().as_secs(),
            ChangeStep::Finish => self.status().former_voters.clear(),
        }
        self.closed_since = former_is_closed(&self.quorum).then(|| self.closed_since.unwrap_or(self.now));
        step
    }

    fn act_times(&mut self, times: usize) {
        for _ in 0..times {
            let _ = self.act();
        }
    }

    /// All steps to the end, by name.
    fn run(&mut self) -> Vec<String> {
        let mut steps = Vec::new();
        for _ in 0..20 {
            let step = self.act();
            if matches!(step, ChangeStep::Nothing | ChangeStep::Wait(_)) {
                break;
            }
            let text = format!("{step:?}");
            steps.push(text.split('(').next().unwrap_or_default().to_owned());
        }
        steps
    }
}

const WHOLE: [&str; 5] = ["OpenNext", "Switch", "Close", "WaitUntil", "Finish"];

#[test]
fn any_number_changes_to_any_other_in_one_step() {
    for from in [1, 3, 5, 7, 9] {
        for to in [1, 3, 5, 7, 9] {
            let mut world = World::settled(from);
            world.quorum.spec.members = to;
            if from < to {
                let joining: Vec<_> =
                    (usize::try_from(from).unwrap()..usize::try_from(to).unwrap()).map(name).collect();
                assert_eq!(world.step(), awaits(&joining), "{from} to {to}");
            }
            world.admit_all();
            let steps = world.run();
            let lists = world.lists();
            if from == to {
                assert_eq!((steps.len(), lists.epoch), (0, 1));
            } else {
                assert_eq!(steps, WHOLE, "{from} to {to}");
                assert_eq!((lists.epoch, lists.is_settled()), (2, true));
                assert_eq!(lists.voters, (0..usize::try_from(to).unwrap()).map(name).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn several_changes_follow_each_other() {
    let mut world = World::settled(3);
    for (to, epoch) in [(5, 2), (7, 3), (3, 4), (5, 5), (3, 6)] {
        world.quorum.spec.members = to;
        world.admit_all();
        assert_eq!(world.run(), WHOLE);
        assert_eq!(world.lists().epoch, epoch);
        // The status drops a member that left. When it joins again, it counts as another member.
        let members = world.lists().members();
        world.status().members.retain(|member| members.contains(&member.name));
    }
}

#[test]
fn a_learner_has_no_vote_and_an_old_member_keeps_its_own() {
    let mut world = World::settled(1);
    world.quorum.spec.members = 3;
    let lists = world.lists();
    assert_eq!(lists.in_force().collect::<Vec<_>>(), [[name(0)]]);
    assert!(lists.is_learner(&name(1)) && !lists.counts(&name(1)) && lists.counts(&name(0)));
    assert!(lists.admits_clients(&name(0)) && !lists.admits_clients(&name(1)));
    world.admit_all();
    world.act_times(2);
    let lists = world.lists();
    assert_eq!(lists.in_force().map(<[String]>::len).collect::<Vec<_>>(), [3, 1]);
    assert!((0..3).all(|index| lists.counts(&name(index)) && !lists.admits_clients(&name(index))));
    world.run();
    assert!((0..3).all(|index| world.lists().admits_clients(&name(index))));
}

#[test]
fn a_change_begins_when_locks_are_on_all_members_without_update() {
    let mut world = World::changing(3, 5, 0);
    world.busy = Some(Until::RotationEnds);
    world.incomplete_locks = vec!["shop/job".into()];
    assert_eq!(world.run(), [""; 0]);
    assert_eq!(world.step(), ChangeStep::Wait(Until::RotationEnds));
    world.busy = Some(Until::UpdateEnds);
    assert_eq!(world.step(), ChangeStep::Wait(Until::UpdateEnds));
    world.busy = None;
    assert_eq!(world.step(), ChangeStep::Wait(Until::LocksComplete { locks: "shop/job".into() }));
    world.incomplete_locks.clear();
    world.up[1] = false;
    assert_eq!(world.step(), awaits(&[name(1)]));
    world.up[1] = true;
    assert!(matches!(world.act(), ChangeStep::OpenNext(_)));
    // It restarts before the switch, so the user of the next epoch must be opened again on its new process.
    world.admit(&name(2));
    assert_eq!(world.act(), ChangeStep::OpenNext(vec![name(2)]));
    assert_eq!(world.act(), ChangeStep::Switch);
}

#[test]
fn a_process_admitted_during_the_change_has_no_earlier_user() {
    let mut world = World::changing(3, 1, 2);
    world.fence(&name(0), false);
    assert!(is_closed(&world.quorum, &name(0), &world.lists()));
    world.admit(&name(0));
    assert_eq!(world.act(), ChangeStep::Close(vec![name(1), name(2)]));
    assert!(former_is_closed(&world.quorum));
}

#[test]
fn a_member_without_a_recorded_epoch_is_not_closed() {
    let mut world = World::settled(3);
    for member in &mut world.status().members {
        member.epoch = None;
    }
    world.quorum.spec.members = 5;
    world.admit_all();
    world.act_times(2);
    assert!(!former_is_closed(&world.quorum), "its users of the former list can be open");
    assert_eq!(world.act(), ChangeStep::Close((0..5).map(name).collect()));
    assert_eq!(world.run(), WHOLE[3..]);
}

#[test]
fn the_order_of_a_list_is_no_change() {
    let lists = Lists {
        epoch: 4,
        voters: vec!["a".into(), "b".into(), "c".into()],
        former: None,
        wanted: vec!["c".into(), "a".into(), "b".into()],
    };
    assert!(lists.is_settled());
    assert_eq!(describe(&lists, &ChangeStep::Nothing, &[]), None);
}

#[test]
fn every_phase_of_a_member_change_is_described() {
    let mut world = World::settled(1);
    world.quorum.spec.members = 3;
    let mut told = Vec::new();
    for _ in 0..8 {
        told.extend(describe(&world.lists(), &world.step(), &[]));
        world.admit_all();
        world.act_times(1);
    }
    told.dedup();
    let said = [
        "from 1 to 3 members: it begins when main-1, main-2 can vote",
        "from 1 to 3 members: it begins",
        "from 1 to 3 members: users of the former list are being closed on main-1, main-2, main-0",
        "from 1 to 3 members: locks of the former list expire, and then lock clients outside the operator are admitted again",
        "from 1 to 3 members: it ends",
    ];
    assert_eq!(told.len(), said.len(), "{told:#?}");
    for (told, said) in told.iter().zip(said) {
        assert!(told.starts_with(&said[..said.len().min(60)]), "{told} is not {said}");
    }
}
