//! Operators that share masters have to agree, and tell each other by a record on each of them (`docs/safety.md`, rule 8). Pure:
//! what one replica knows of the records, and what follows from it: whether votes count, whether its claim may be made, and
//! which time to live may be used.
//!
//! Two kinds of knowledge are kept. A *conflict* is an operator with which we share no member list, or one that uses a longer time to live than our
//! fences wait for: as long as one is known, on whatever member, no votes count and no claim is made or renewed. A *standing* claim of
//! our own on a member is what lets its votes count, for as long as it is renewed.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::ResourceExt;

use super::effective::{self, SHORTEST};
use super::lists::Lists;
use super::plan;
use crate::api::{Announced, RedisQuorum};
use crate::redis_member::{Claim, OtherClaim, RecordLook, relied_on, share};
use crate::redlock::{MemberName, RunId};
use crate::time::Boottime;

mod master;

pub use master::Role;
use master::{Look, SharedMaster};

/// A member's votes count for so long after its record was last seen to hold our claim.
pub const FRESH: Duration = Duration::from_secs(5);

/// Added to twice the rejoin delay. See [`lives`].
const MARGIN: Duration = Duration::from_secs(10);

/// How much sooner than the record an operator stops to believe in the claim that it renewed.
/// So the record is what stands last.
const BELIEVED_SHORTER: Duration = MARGIN;

/// How long a claim counts that is not renewed any more.
///
/// Votes count for [`FRESH`] after the claim was renewed last, and promises that were made with them live for less than
/// the rejoin delay. The result is twice that delay and a margin, so that meanwhile a member's clock may run fast, and
/// an operator may be restarted.
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

/// What a quorum has to say of itself.
///
/// `None` while the settings that its fences rest on are not published.
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

/// Why no votes count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// No member list in common.
    List(OtherClaim),
    /// A longer time to live than our fences wait for.
    Longer(OtherClaim),
}

/// How things stand, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// There are no external members.
    NotShared,
    /// Another operator disagrees.
    Conflict(Conflict),
    /// Before the first vote every external member has to hold our claim. These do not yet.
    Joining(Vec<MemberName>),
    /// Our claim stands. What others said, if there are any.
    Agreed(Vec<OtherClaim>),
}

/// What one replica knows.
#[derive(Clone, Debug)]
pub struct Agreement {
    claim: Option<Claim>,
    masters: BTreeMap<MemberName, SharedMaster>,
    /// The lists in force, those of our own members included.
    lists: Vec<Vec<MemberName>>,
    /// Until when our claim stands unless it is renewed.
    /// Set once the claim has stood on every external member, and kept as long as it has not lapsed.
    joined_until: Option<Boottime>,
}

impl Agreement {
    /// For these external members, which vote.
    pub fn new(external: impl IntoIterator<Item = MemberName>) -> Self {
        let masters: BTreeMap<_, _> = external.into_iter().map(|name| (name, SharedMaster::default())).collect();
        let lists = vec![masters.keys().cloned().collect()];
        Self { claim: None, masters, lists, joined_until: None }
    }

    /// The external members that there are from now on, and the lists in force. What is known of those that stay is kept.
    pub fn set_members(&mut self, external: impl IntoIterator<Item = (MemberName, Role)>, lists: Vec<Vec<MemberName>>) {
        self.lists = lists;
        let mut former = std::mem::take(&mut self.masters);
        for (name, role) in external {
            let master = former.remove(&name).unwrap_or_default();
            self.masters.insert(name, SharedMaster { role, ..master });
        }
    }

    /// Our claim from now on; `None` while the settings that fences rest on are not known.
    pub fn set_claim(&mut self, claim: Option<Claim>) {
        let goes_on = |one: &Claim, other: &Claim| share(&one.list, &other.list);
        if !self.claim.as_ref().zip(claim.as_ref()).is_some_and(|(old, new)| goes_on(old, new)) {
            // What stood was said of other lists.
            self.joined_until = None;
            self.masters.values_mut().for_each(|master| master.look = None);
        }
        self.claim = claim;
    }

    /// The process that the status admits, if one.
    pub fn admitted(&mut self, member: &MemberName, run_id: Option<RunId>) {
        if let Some(master) = self.masters.get_mut(member) {
            master.admitted = run_id;
        }
    }

    /// What to ask this process for: our claim, and the longest ttl for which it may be made.
    ///
    /// The second is `None` while the claim may not be made. A newcomer claims only where the process has waited for
    /// its admission: an operator that was there before has renewed its own claim by then, which the process forgot
    /// when it started. No claim is made before every other member was asked or did not answer.
    pub fn question(&self, member: &MemberName, run_id: &RunId, now: Boottime) -> Option<(Claim, Option<Duration>)> {
        let master = self.masters.get(member).filter(|master| master.role != Role::Leaver)?;
        let claim = self.claim.clone()?;
        let is_admitted = master.admitted.as_ref() == Some(run_id);
        let is_joined = self.is_joined(now);
        // It is read off processes that are admitted only; and on a member that joins every operator is a newcomer.
        let claim = Claim { joined: is_joined && is_admitted, ..claim };
        let waited = is_admitted || (is_joined && master.role == Role::Voter);
        let others_tried = self.needed().all(|(name, master)| master.tried || name == member);
        let may = waited && others_tried && self.conflict(now).is_none();
        Some((claim, may.then(|| self.allowed(now))))
    }

    /// A look at a member's record. Whether what follows from all of them has changed.
    pub fn saw(&mut self, member: &MemberName, run_id: &RunId, look: &RecordLook, now: Boottime) -> bool {
        let before = self.summary(now);
        let Some(master) = self.masters.get_mut(member) else { return false };
        let same_process = master.look.as_ref().is_some_and(|last| last.run_id == *run_id);
        if same_process {
            master.others.clear();
        } else {
            master.others.retain(|_, (_, until)| *until > now);
        }
        for other in &look.others {
            // When it ends is kept beside it, so that the same claim is the same at every look.
            let known = (OtherClaim { left: Duration::ZERO, ..other.clone() }, now + other.left);
            master.others.insert(other.uid.clone(), known);
        }
        let trouble = self.claim.as_ref().filter(|claim| look.epoch > claim.epoch).map(|claim| {
            format!("its record knows of a later change of the members (epoch {}, here {})", look.epoch, claim.epoch)
        });
        let recovered = master.trouble != trouble;
        (master.tried, master.trouble) = (true, trouble);
        master.look = Some(Look {
            run_id: run_id.clone(),
            at: now,
            kept: look.kept,
            stood: look.stood,
            list: look.list.clone(),
            newest: look.newest,
            epoch: look.epoch,
        });
        // Alone it joins where its claim stands on every one. A claim of ours that stands on a majority has not lapsed, whichever replica made it,
        // so no replica need join again.
        let goes_on = self.is_joined(now) && self.on_majorities(now, |look| look.kept.is_some());
        if goes_on || self.kept_everywhere(now).is_some() || self.on_majorities(now, |look| look.stood) {
            self.joined_until = self.claim.as_ref().map(|claim| now + claim.lives.saturating_sub(BELIEVED_SHORTER));
        }
        recovered || before != self.summary(now)
    }

    /// The member did not answer, or its record cannot be read. Whether that is news; never of a member of our own.
    pub fn missed(&mut self, member: &MemberName, trouble: &str) -> bool {
        let Some(master) = self.masters.get_mut(member) else { return false };
        let known = master.trouble.as_deref() == Some(trouble);
        (master.tried, master.trouble) = (true, Some(trouble.to_owned()));
        !known
    }

    /// Whether votes of members count at all.
    pub fn may_vote(&self, now: Boottime) -> bool {
        !self.is_shared() || (self.is_joined(now) && self.conflict(now).is_none())
    }

    /// Whether external members vote.
    pub fn is_shared(&self) -> bool {
        self.masters.values().any(|master| master.role == Role::Voter)
    }

    /// Whether the votes of this process count, if votes count at all.
    ///
    /// They count on a member of our own, and on one that holds our claim.
    pub fn counts(&self, member: &MemberName, run_id: &RunId, now: Boottime) -> bool {
        let Some(master) = self.masters.get(member) else { return true };
        master.stands(run_id, now).zip(self.claim.as_ref()).is_some_and(|(look, claim)| look.is_so(claim))
    }

    /// Whether a majority of each list has an admitted process with such a record, as of a moment ago. Our own members have none.
    fn on_majorities(&self, now: Boottime, is_such: impl Fn(&Look) -> bool) -> bool {
        let has = |name: &&MemberName| {
            let Some(master) = self.masters.get(*name) else { return true };
            let look = master
                .look
                .as_ref()
                .filter(|look| look.is_fresh(now) && master.admitted.as_ref() == Some(&look.run_id));
            look.is_some_and(&is_such)
        };
        self.is_shared() && self.lists.iter().all(|list| list.iter().filter(has).count() > list.len() / 2)
    }

    /// The longest time to live that may be brought into force.
    ///
    /// Every external member says so at this moment. `None` while one of them does not.
    pub fn settled(&self, now: Boottime) -> Option<Duration> {
        self.kept_everywhere(now).filter(|_| self.is_shared() && self.may_vote(now))
    }

    /// For people.
    pub fn sharing(&self, now: Boottime) -> Sharing {
        if !self.is_shared() {
            return Sharing::NotShared;
        }
        if let Some(conflict) = self.conflict(now) {
            return Sharing::Conflict(conflict);
        }
        // At first nothing is in force: that is waited for, too.
        let nothing_yet = |claim: &Claim| claim.used <= SHORTEST && claim.used < claim.fence;
        let begins = self.claim.as_ref().is_some_and(nothing_yet) && self.settled(now).is_none();
        if begins || !self.is_joined(now) {
            let open = self.needed().filter(|(_, master)| master.kept(now).is_none());
            return Sharing::Joining(open.map(|(name, _)| name.clone()).collect());
        }
        let by_uid: BTreeMap<_, _> = self.others(now).map(|other| (&other.uid, other)).collect();
        Sharing::Agreed(by_uid.into_values().cloned().collect())
    }

    /// Why the record of a member could not be read at the last attempt.
    pub fn trouble(&self, member: &MemberName) -> Option<&str> {
        self.masters.get(member)?.trouble.as_deref()
    }

    /// The epoch that the record of this process was last seen to know.
    pub fn epoch_at(&self, member: &MemberName, run_id: &RunId) -> Option<i64> {
        let look = self.masters.get(member)?.look.as_ref()?;
        (look.run_id == *run_id).then_some(look.epoch)
    }

    /// Whether the record of this process says of our lists what there is to say now.
    ///
    /// The record must have been seen a moment ago.
    pub fn is_told(&self, member: &MemberName, run_id: &RunId, now: Boottime) -> bool {
        let (Some(master), Some(claim)) = (self.masters.get(member), &self.claim) else { return false };
        let says = |look: &Look| (&look.list, look.newest, look.epoch) == (&claim.list, claim.newest, claim.epoch);
        master.stands(run_id, now).is_some_and(says)
    }

    /// Those who do not count our newest list, or are about to give it up, each once.
    pub fn behind(&self, now: Boottime) -> Vec<OtherClaim> {
        let Some(newest) = self.claim.as_ref().and_then(|claim| relied_on(&claim.list, true).next()) else {
            return Vec::new();
        };
        let counts_it = |other: &OtherClaim| relied_on(&other.list, other.newest).any(|list| list == newest);
        let behind = self.others(now).filter(|other| !counts_it(other));
        behind.map(|other| (&other.uid, other)).collect::<BTreeMap<_, _>>().into_values().cloned().collect()
    }

    /// Who keeps our claim from being made on this member, which does not vote yet.
    pub fn refused_by(&self, member: &MemberName, now: Boottime) -> Option<&OtherClaim> {
        let master = self.masters.get(member).filter(|master| master.role == Role::Learner)?;
        let claim = self.claim.as_ref()?;
        let live = master.others.values().filter(|(_, until)| *until > now).map(|(other, _)| other);
        live.into_iter().find(|other| !share(&claim.list, &other.list) || other.uses > claim.fence)
    }

    /// Our own claim.
    pub fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }

    fn is_joined(&self, now: Boottime) -> bool {
        self.joined_until.is_some_and(|until| now < until)
    }

    fn others(&self, now: Boottime) -> impl Iterator<Item = &OtherClaim> {
        let voters = self.masters.values().filter(|master| master.role == Role::Voter);
        let known = voters.flat_map(|master| master.others.values());
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

    /// What all operators' fences wait for, as far as is known.
    fn allowed(&self, now: Boottime) -> Duration {
        let own = self.claim.as_ref().map_or(Duration::ZERO, |claim| claim.fence);
        self.others(now).map(|other| other.fence).fold(own, Duration::min)
    }

    fn kept_everywhere(&self, now: Boottime) -> Option<Duration> {
        let kept: Option<Vec<_>> = self.needed().map(|(_, master)| master.kept(now)).collect();
        kept?.into_iter().min()
    }

    /// The members that all have to hold our claim before the first vote.
    ///
    /// While no external member votes, they are those that are going to.
    fn needed(&self) -> impl Iterator<Item = (&MemberName, &SharedMaster)> {
        let role = if self.is_shared() { Role::Voter } else { Role::Learner };
        self.masters.iter().filter(move |(_, master)| master.role == role)
    }

    fn summary(&self, now: Boottime) -> (Sharing, Option<Duration>) {
        (self.sharing(now), self.settled(now))
    }
}

impl Conflict {
    /// With whom.
    pub const fn other(&self) -> &OtherClaim {
        match self {
            Self::List(other) | Self::Longer(other) => other,
        }
    }
}

#[cfg(test)]
mod tests;
