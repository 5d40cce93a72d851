//! Operators that share masters have to agree, and tell each other by a record on each of them (`docs/safety.md`, rule 8). Pure:
//! what one replica knows of the records, and what follows from it: whether votes count, whether its claim may be made, and
//! which time to live may be used.
//!
//! Two kinds of knowledge are kept. A *conflict* is somebody with whom we share no member list, or somebody who uses a longer time to live than our
//! fences wait for: as long as one is known, on whatever member, nobody votes and no claim is made or renewed. A *standing* claim of
//! our own on a member is what lets its votes count, for as long as it is renewed.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::ResourceExt;

use super::{
    effective::{self, SHORTEST},
    lists::Lists,
    plan,
};
use crate::{
    api::{Announced, RedisQuorum},
    redis_member::{Claim, OtherClaim, RecordLook, relied_on, share},
    redlock::{MemberName, RunId},
    time::Boottime,
};

mod seat;

pub use seat::Role;
use seat::{Look, Seat};

/// A member's votes count for so long after its record was last seen to hold our claim.
pub const FRESH: Duration = Duration::from_secs(5);

/// Added to twice the rejoin delay. See [`lives`].
const MARGIN: Duration = Duration::from_secs(10);

/// Who has renewed a claim last believes in it for less time than the record says it: what stands last is the record.
const BELIEVED_SHORTER: Duration = MARGIN;

/// How long a claim counts that is not renewed any more: votes count for [`FRESH`] after it was renewed last, and what was promised
/// with them lives for less than the rejoin delay. Twice that, and a margin, so that a member's clock may run fast, and an
/// operator may be restarted, meanwhile.
#[must_use]
pub fn lives(rejoin_delay: Duration) -> Duration {
    rejoin_delay.saturating_mul(2).saturating_add(MARGIN)
}

/// How far a change is, in the order in which claims of one membership epoch replace each other.
fn phase(lists: &Lists) -> i64 {
    match (lists.is_joint(), lists.announced) {
        (true, None) => 0,
        (true, Some(Announced::BothLists)) => 1,
        (true, Some(Announced::NewList)) => 2,
        (false, _) => 3,
    }
}

/// What a quorum has to say of itself; `None` while the settings that its fences rest on are not published.
#[must_use]
pub fn claim_of(quorum: &RedisQuorum) -> Option<Claim> {
    let published = effective::Effective::published(quorum)?;
    let (current, lists) = (effective::current(quorum), Lists::of(quorum));
    Some(Claim {
        uid: quorum.uid()?,
        name: format!("{}/{}", quorum.namespace().unwrap_or_default(), quorum.name_any()),
        list: plan::shared_lists(quorum),
        newest: lists.is_joint() && lists.announced == Some(Announced::NewList),
        epoch: lists.epoch,
        phase: phase(&lists),
        generation: quorum.metadata.generation.unwrap_or_default(),
        fence: current.max_ttl,
        used: published.max_ttl,
        lives: lives(current.rejoin_delay()),
        joined: false,
    })
}

/// Why nobody votes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// No member list in common.
    List(OtherClaim),
    /// A longer time to live than our fences wait for.
    Longer(OtherClaim),
}

/// How things stand, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There are no external members.
    NotShared,
    /// Somebody disagrees.
    Conflict(Conflict),
    /// Before the first vote every external member has to hold our claim. These do not yet.
    Joining(Vec<MemberName>),
    /// Our claim stands. What others said, if there are any.
    Agreed(Vec<OtherClaim>),
}

/// What one replica knows.
#[derive(Clone, Debug)]
pub struct Accord {
    claim: Option<Claim>,
    seats: BTreeMap<MemberName, Seat>,
    /// The lists in force, those of our own members included.
    lists: Vec<Vec<MemberName>>,
    /// Our claim has stood on every external member, and has not lapsed since: until then, unless it is renewed.
    joined_until: Option<Boottime>,
}

impl Accord {
    /// For these external members, which vote.
    #[must_use]
    pub fn new(external: impl IntoIterator<Item = MemberName>) -> Self {
        let seats: BTreeMap<_, _> = external.into_iter().map(|name| (name, Seat::default())).collect();
        let lists = vec![seats.keys().cloned().collect()];
        Self { claim: None, seats, lists, joined_until: None }
    }

    /// The external members that there are from now on, and the lists in force. What is known of those that stay is kept.
    pub fn set_members(&mut self, external: impl IntoIterator<Item = (MemberName, Role)>, lists: Vec<Vec<MemberName>>) {
        self.lists = lists;
        let mut former = std::mem::take(&mut self.seats);
        for (name, role) in external {
            let seat = former.remove(&name).unwrap_or_default();
            self.seats.insert(name, Seat { role, ..seat });
        }
    }

    /// Our claim from now on; `None` while the settings that fences rest on are not known.
    pub fn set_claim(&mut self, claim: Option<Claim>) {
        let goes_on = |one: &Claim, other: &Claim| share(&one.list, &other.list);
        if !self.claim.as_ref().zip(claim.as_ref()).is_some_and(|(old, new)| goes_on(old, new)) {
            // What stood was said of other lists.
            self.joined_until = None;
            self.seats.values_mut().for_each(|seat| seat.look = None);
        }
        self.claim = claim;
    }

    /// The process that the status admits, if one.
    pub fn admitted(&mut self, member: &MemberName, run_id: Option<RunId>) {
        if let Some(seat) = self.seats.get_mut(member) {
            seat.admitted = run_id;
        }
    }

    /// What to ask this process for: our claim, and up to which time to live it is to be made, if it may be made.
    ///
    /// A newcomer claims only where the process has waited for its admission: whoever was there before has renewed its own claim by
    /// then, which the process forgot when it started. Nobody claims before every other member was asked or did not answer.
    #[must_use]
    pub fn question(&self, member: &MemberName, run_id: &RunId, now: Boottime) -> Option<(Claim, Option<Duration>)> {
        let seat = self.seats.get(member).filter(|seat| seat.role != Role::Leaver)?;
        let claim = self.claim.clone()?;
        let is_admitted = seat.admitted.as_ref() == Some(run_id);
        let is_joined = self.is_joined(now);
        // It is read off processes that are admitted only; and on a member that joins everybody is a newcomer.
        let claim = Claim { joined: is_joined && is_admitted, ..claim };
        let waited = is_admitted || (is_joined && seat.role == Role::Voter);
        let others_tried = self.needed().all(|(name, seat)| seat.tried || name == member);
        let may = waited && others_tried && self.conflict(now).is_none();
        Some((claim, may.then(|| self.allowed(now))))
    }

    /// A look at a member's record. Whether what follows from all of them has changed.
    pub fn saw(&mut self, member: &MemberName, run_id: &RunId, look: &RecordLook, now: Boottime) -> bool {
        let before = self.summary(now);
        let Some(seat) = self.seats.get_mut(member) else { return false };
        let same_process = seat.look.as_ref().is_some_and(|last| last.run_id == *run_id);
        if same_process {
            seat.others.clear();
        } else {
            seat.others.retain(|_, (_, until)| *until > now);
        }
        for other in &look.others {
            // When it ends is kept beside it, so that the same claim is the same at every look.
            let known = (OtherClaim { left: Duration::ZERO, ..other.clone() }, now + other.left);
            seat.others.insert(other.uid.clone(), known);
        }
        let trouble = self.claim.as_ref().filter(|claim| look.epoch > claim.epoch).map(|claim| {
            format!("its record knows of a later change of the members (epoch {}, here {})", look.epoch, claim.epoch)
        });
        let recovered = seat.trouble != trouble;
        (seat.tried, seat.trouble) = (true, trouble);
        seat.look = Some(Look {
            run_id: run_id.clone(),
            at: now,
            kept: look.kept,
            stood: look.stood,
            list: look.list.clone(),
            newest: look.newest,
            epoch: look.epoch,
        });
        // Alone it joins where its claim stands on every one. A claim of ours that stands on a majority has not lapsed, whoever made it,
        // so nobody need join anew.
        let goes_on = self.is_joined(now) && self.on_majorities(now, |look| look.kept.is_some());
        if goes_on || self.kept_everywhere(now).is_some() || self.on_majorities(now, |look| look.stood) {
            self.joined_until = self.claim.as_ref().map(|claim| now + claim.lives.saturating_sub(BELIEVED_SHORTER));
        }
        recovered || before != self.summary(now)
    }

    /// The member did not answer, or its record cannot be read. Whether that is news; never of a member of our own.
    pub fn missed(&mut self, member: &MemberName, trouble: &str) -> bool {
        let Some(seat) = self.seats.get_mut(member) else { return false };
        let known = seat.trouble.as_deref() == Some(trouble);
        (seat.tried, seat.trouble) = (true, Some(trouble.to_owned()));
        !known
    }

    /// Whether votes of members count at all.
    #[must_use]
    pub fn may_vote(&self, now: Boottime) -> bool {
        !self.is_shared() || (self.is_joined(now) && self.conflict(now).is_none())
    }

    /// Whether external members vote.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.seats.values().any(|seat| seat.role == Role::Voter)
    }

    /// Whether the votes of this process count, if votes count at all: a member of our own, or one that holds our claim.
    #[must_use]
    pub fn counts(&self, member: &MemberName, run_id: &RunId, now: Boottime) -> bool {
        let Some(seat) = self.seats.get(member) else { return true };
        seat.stands(run_id, now).zip(self.claim.as_ref()).is_some_and(|(look, claim)| look.is_so(claim))
    }

    /// Whether a majority of each list has an admitted process with such a record, as of a moment ago. Our own members have none.
    fn on_majorities(&self, now: Boottime, is_such: impl Fn(&Look) -> bool) -> bool {
        let has = |name: &&MemberName| {
            let Some(seat) = self.seats.get(*name) else { return true };
            let look =
                seat.look.as_ref().filter(|look| look.is_fresh(now) && seat.admitted.as_ref() == Some(&look.run_id));
            look.is_some_and(&is_such)
        };
        self.is_shared() && self.lists.iter().all(|list| list.iter().filter(has).count() > list.len() / 2)
    }

    /// The longest time to live that may be brought into force: every external member says so at this moment. `None` while one
    /// of them does not.
    #[must_use]
    pub fn settled(&self, now: Boottime) -> Option<Duration> {
        self.kept_everywhere(now).filter(|_| self.is_shared() && self.may_vote(now))
    }

    /// For people.
    #[must_use]
    pub fn standing(&self, now: Boottime) -> Standing {
        if !self.is_shared() {
            return Standing::NotShared;
        }
        if let Some(conflict) = self.conflict(now) {
            return Standing::Conflict(conflict);
        }
        // At first nothing is in force: that is waited for, too.
        let nothing_yet = |claim: &Claim| claim.used <= SHORTEST && claim.used < claim.fence;
        let begins = self.claim.as_ref().is_some_and(nothing_yet) && self.settled(now).is_none();
        if begins || !self.is_joined(now) {
            let open = self.needed().filter(|(_, seat)| seat.kept(now).is_none());
            return Standing::Joining(open.map(|(name, _)| name.clone()).collect());
        }
        let by_uid: BTreeMap<_, _> = self.others(now).map(|other| (&other.uid, other)).collect();
        Standing::Agreed(by_uid.into_values().cloned().collect())
    }

    /// Why the record of a member could not be read at the last attempt.
    #[must_use]
    pub fn trouble(&self, member: &MemberName) -> Option<&str> {
        self.seats.get(member)?.trouble.as_deref()
    }

    /// The epoch that the record of this process was last seen to know.
    #[must_use]
    pub fn epoch_at(&self, member: &MemberName, run_id: &RunId) -> Option<i64> {
        let look = self.seats.get(member)?.look.as_ref()?;
        (look.run_id == *run_id).then_some(look.epoch)
    }

    /// Whether the record of this process was seen a moment ago to say of our lists what there is to say now.
    #[must_use]
    pub fn is_told(&self, member: &MemberName, run_id: &RunId, now: Boottime) -> bool {
        let (Some(seat), Some(claim)) = (self.seats.get(member), &self.claim) else { return false };
        let says = |look: &Look| (&look.list, look.newest, look.epoch) == (&claim.list, claim.newest, claim.epoch);
        seat.stands(run_id, now).is_some_and(says)
    }

    /// Those who do not count our newest list, or are about to give it up, each once.
    #[must_use]
    pub fn behind(&self, now: Boottime) -> Vec<OtherClaim> {
        let Some(newest) = self.claim.as_ref().and_then(|claim| relied_on(&claim.list, true).next()) else {
            return Vec::new();
        };
        let counts_it = |other: &OtherClaim| relied_on(&other.list, other.newest).any(|list| list == newest);
        let behind = self.others(now).filter(|other| !counts_it(other));
        behind.map(|other| (&other.uid, other)).collect::<BTreeMap<_, _>>().into_values().cloned().collect()
    }

    /// Who keeps our claim from being made on this member, which does not vote yet.
    #[must_use]
    pub fn refused_by(&self, member: &MemberName, now: Boottime) -> Option<&OtherClaim> {
        let seat = self.seats.get(member).filter(|seat| seat.role == Role::Learner)?;
        let claim = self.claim.as_ref()?;
        let live = seat.others.values().filter(|(_, until)| *until > now).map(|(other, _)| other);
        live.into_iter().find(|other| !share(&claim.list, &other.list) || other.uses > claim.fence)
    }

    /// Our own claim.
    #[must_use]
    pub fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }

    fn is_joined(&self, now: Boottime) -> bool {
        self.joined_until.is_some_and(|until| now < until)
    }

    fn others(&self, now: Boottime) -> impl Iterator<Item = &OtherClaim> {
        let voters = self.seats.values().filter(|seat| seat.role == Role::Voter);
        let known = voters.flat_map(|seat| seat.others.values());
        known.filter(move |(_, until)| *until > now).map(|(other, _)| other)
    }

    fn conflict(&self, now: Boottime) -> Option<Conflict> {
        let claim = self.claim.as_ref()?;
        let judged = self.others(now).filter_map(|other| {
            if !share(&other.list, &claim.list) {
                Some(Conflict::List(other.clone()))
            } else if other.uses > claim.fence {
                Some(Conflict::Longer(other.clone()))
            } else {
                None
            }
        });
        // Always the same one, so that what is published does not flicker.
        judged.min_by(|one, other| one.other().uid.cmp(&other.other().uid))
    }

    /// What everybody's fences wait for, as far as is known.
    fn allowed(&self, now: Boottime) -> Duration {
        let own = self.claim.as_ref().map_or(Duration::ZERO, |claim| claim.fence);
        self.others(now).map(|other| other.fence).fold(own, Duration::min)
    }

    fn kept_everywhere(&self, now: Boottime) -> Option<Duration> {
        let kept: Option<Vec<_>> = self.needed().map(|(_, seat)| seat.kept(now)).collect();
        kept?.into_iter().min()
    }

    /// All of these have to hold our claim before the first vote; while no external member votes, those that shall.
    fn needed(&self) -> impl Iterator<Item = (&MemberName, &Seat)> {
        let role = if self.is_shared() { Role::Voter } else { Role::Learner };
        self.seats.iter().filter(move |(_, seat)| seat.role == role)
    }

    fn summary(&self, now: Boottime) -> (Standing, Option<Duration>) {
        (self.standing(now), self.settled(now))
    }
}

impl Conflict {
    /// With whom.
    #[must_use]
    pub const fn other(&self) -> &OtherClaim {
        match self {
            Self::List(other) | Self::Longer(other) => other,
        }
    }
}

#[cfg(test)]
mod tests;
