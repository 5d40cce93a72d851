//! Random histories of operators that share masters, against what the record is for.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Values of maxTTL, in seconds.
const TTLS: [u64; 3] = [2, 10, 30];

#[derive(Clone, Debug)]
enum Happening {
    Pass(u64),
    /// An operator reads the record of a member, if it reaches it.
    Look(usize, usize),
    Restart(usize),
    /// An operator loses or regains its connection to a member.
    Cut(usize, usize, bool),
    /// All replicas of an operator end, and new ones start.
    Forget(usize),
    /// An administrator raises maxTTL.
    Raise(usize, u64),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (1_u64..6).prop_map(Happening::Pass),
        20 => (0..3_usize, 0..3_usize).prop_map(|(operator, member)| Happening::Look(operator, member)),
        1 => (0..3_usize).prop_map(Happening::Restart),
        1 => (0..3_usize, 0..3_usize, any::<bool>()).prop_map(|(operator, member, cut)| Happening::Cut(operator, member, cut)),
        1 => (0..3_usize).prop_map(Happening::Forget),
        1 => (0..3_usize, prop::sample::select(TTLS.to_vec())).prop_map(|(operator, ttl)| Happening::Raise(operator, ttl)),
    ]
}

/// One claim in a record, as the script stores it.
#[derive(Clone)]
struct Kept {
    claim: Claim,
    at: u64,
}

struct Operator {
    agreement: Agreement,
    list: &'static str,
    /// maxTTL as specified, and as in force.
    wanted: u64,
    published: u64,
    /// The processes that it has observed, and the time of the first observation.
    seen: BTreeMap<usize, (RunId, u64)>,
    admitted: BTreeMap<usize, RunId>,
    cut: [bool; 3],
    /// Whether its claim has stood on every member at some moment.
    joined: bool,
}

struct World {
    now: u64,
    operators: Vec<Operator>,
    /// The number of the process of each member, and its record.
    processes: [(u32, BTreeMap<String, Kept>); 3],
}

fn delay(ttl: u64) -> u64 {
    ttl + 1
}

impl Operator {
    fn new(list: &'static str) -> Self {
        let agreement = of(&MEMBERS);
        let (seen, admitted) = (BTreeMap::new(), BTreeMap::new());
        Self { agreement, list, wanted: 2, published: 1, seen, admitted, cut: [false; 3], joined: false }
    }

    fn fence(&self) -> u64 {
        self.wanted.max(self.published)
    }

    fn claim(&self, index: usize) -> Claim {
        Claim {
            uid: index.to_string(),
            name: index.to_string(),
            list: self.list.into(),
            generation: self.wanted.try_into().unwrap(),
            lives: lives(Duration::from_secs(delay(self.fence()))),
            ..claim(self.fence())
        }
    }

    fn place(&mut self, index: usize) {
        self.agreement.set_claim(Some(self.claim(index)));
        for (member, member_name) in MEMBERS.iter().enumerate() {
            self.agreement.admitted(&name(member_name), self.admitted.get(&member).cloned());
        }
    }

    fn votes_at(&self, member: usize, run_id: &RunId, now: u64) -> bool {
        let name = name(MEMBERS[member]);
        self.admitted.get(&member) == Some(run_id)
            && self.agreement.allows_votes(at(now))
            && self.agreement.counts(&name, run_id, at(now))
    }
}

impl World {
    fn new() -> Self {
        let operators = vec![Operator::new(LIST), Operator::new(LIST), Operator::new("a:1 b:1 x:1")];
        Self { now: 0, operators, processes: Default::default() }
    }

    fn run_id(&self, member: usize) -> RunId {
        run(&format!("{}{}", MEMBERS[member], self.processes[member].0))
    }

    fn happens(&mut self, happening: &Happening) {
        match *happening {
            Happening::Pass(seconds) => self.now += seconds,
            Happening::Look(operator, member) => self.observe(operator, member),
            Happening::Restart(member) => self.processes[member] = (self.processes[member].0 + 1, BTreeMap::new()),
            Happening::Cut(operator, member, cut) => self.operators[operator].cut[member] = cut,
            Happening::Forget(index) => {
                let operator = &mut self.operators[index];
                (operator.agreement, operator.seen) = (of(&MEMBERS), BTreeMap::new());
                operator.place(index);
            }
            Happening::Raise(index, ttl) => {
                let operator = &mut self.operators[index];
                operator.wanted = operator.wanted.max(ttl);
                operator.place(index);
            }
        }
    }

    fn observe(&mut self, index: usize, member: usize) {
        let (run_id, now) = (self.run_id(member), self.now);
        let operator = &mut self.operators[index];
        let member_name = name(MEMBERS[member]);
        operator.place(index);
        if operator.cut[member] {
            operator.agreement.missed(&member_name, "cut off");
            return;
        }
        let known = operator.seen.entry(member).or_insert_with(|| (run_id.clone(), now));
        if known.0 != run_id {
            *known = (run_id.clone(), now);
        }
        if operator.admitted.get(&member).is_some_and(|admitted| *admitted != run_id) {
            operator.admitted.remove(&member);
        }
        if now >= known.1 + delay(operator.fence()) {
            operator.admitted.insert(member, run_id.clone());
        }
        operator.place(index);
        let Some((claim, write)) = operator.agreement.question(&member_name, &run_id, at(now)) else { return };
        let state = script(&mut self.processes[member].1, &claim, write, now);
        operator.agreement.read(&member_name, &run_id, &claim, &state, at(now));
        let everywhere = self.processes.iter().all(|(_, record)| record.contains_key(&index.to_string()));
        operator.joined |= everywhere || operator.agreement.agreed_ttl(at(now)).is_some();
        let agreed = operator.agreement.agreed_ttl(at(now)).unwrap_or_default().as_secs();
        operator.published = operator.wanted.min(operator.published.max(agreed)).max(operator.published);
    }

    /// The basis of two operators' votes at one process.
    fn check(&self) {
        for (member, member_name) in MEMBERS.iter().enumerate() {
            let run_id = self.run_id(member);
            let voters: Vec<_> = self.operators.iter().filter(|one| one.votes_at(member, &run_id, self.now)).collect();
            assert!(voters.iter().all(|one| one.joined), "a vote before its claim stood everywhere at {}", self.now);
            for one in &voters {
                for other in &voters {
                    assert_eq!(one.list, other.list, "two lists at {} at {}", member_name, self.now);
                    assert!(
                        one.published <= other.fence(),
                        "{} s are used at {}, where fences wait for {} s",
                        one.published,
                        member_name,
                        other.fence()
                    );
                }
            }
        }
    }
}

/// The effect of `quorum.lua`. The tests in tests/redis run the script itself.
fn script(record: &mut BTreeMap<String, Kept>, claim: &Claim, write: bool, now: u64) -> RecordState {
    record.retain(|_, kept| kept.at + kept.claim.lives.as_secs() > now);
    let own = record.get(&claim.uid).filter(|kept| kept.claim.list == claim.list);
    let stood = own.is_some_and(|kept| kept.claim.joined);
    let others: Vec<OtherClaim> = record
        .values()
        .filter(|kept| kept.claim.uid != claim.uid)
        .map(|kept| OtherClaim {
            uid: kept.claim.uid.clone(),
            name: kept.claim.name.clone(),
            list: kept.claim.list.clone(),
            ttl: kept.claim.ttl,
            left: Duration::from_secs(kept.at + kept.claim.lives.as_secs() - now),
        })
        .collect();
    let agrees = others.iter().all(|other| (&other.list, other.ttl) == (&claim.list, claim.ttl));
    let state = RecordState { stood, others, epoch: 2, ..RecordState::default() };
    if !write || !agrees {
        return state;
    }
    let claim = Claim { joined: stood || claim.joined, ..claim.clone() };
    record.insert(claim.uid.clone(), Kept { claim, at: now });
    RecordState { kept: true, ..state }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn votes_of_a_process_serve_a_single_list_within_the_fence(
        happenings in prop::collection::vec(happening(), 1..400)
    ) {
        let mut world = World::new();
        for happening in &happenings {
            world.happens(happening);
            world.check();
        }
    }
}

#[test]
fn operators_that_agree_vote_and_reach_the_longest_ttl() {
    let mut world = World::new();
    for second in 0..120 {
        if second == 40 {
            world.happens(&Happening::Raise(0, 30));
            world.happens(&Happening::Raise(1, 30));
        }
        for operator in 0..2 {
            (0..3).for_each(|member| world.observe(operator, member));
        }
        world.check();
        world.now += 1;
    }
    for operator in &world.operators[..2] {
        assert!(operator.agreement.allows_votes(at(world.now)));
        assert_eq!(operator.published, 30);
    }
}

/// A master restarts, and an operator with a shorter maxTTL reaches it before the first operator.
#[test]
fn a_newcomer_with_another_max_ttl_never_votes_with_the_first() {
    let mut world = World::new();
    world.happens(&Happening::Raise(0, 30));
    let seconds = |world: &mut World, count: u64, looks: &[(usize, usize)]| {
        for _ in 0..count {
            looks.iter().for_each(|(operator, member)| world.observe(*operator, *member));
            world.check();
            world.now += 1;
        }
    };
    let all = |operator: usize| [(operator, 0), (operator, 1), (operator, 2)];
    seconds(&mut world, 40, &all(0));
    assert_eq!(world.operators[0].published, 30);
    for cut in
        [Happening::Cut(0, 0, true), Happening::Restart(0), Happening::Cut(1, 1, true), Happening::Cut(1, 2, true)]
    {
        world.happens(&cut);
    }
    seconds(&mut world, 5, &[all(1), all(0)].concat());
    assert!(world.processes[0].1.contains_key("1"), "the newcomer has claimed there");
    for heal in [Happening::Cut(0, 0, false), Happening::Cut(1, 1, false), Happening::Cut(1, 2, false)] {
        world.happens(&heal);
    }
    seconds(&mut world, 40, &[all(0), all(1)].concat());
    assert!(world.operators[0].agreement.allows_votes(at(world.now)));
    assert!(!world.operators[1].agreement.allows_votes(at(world.now)));
}
