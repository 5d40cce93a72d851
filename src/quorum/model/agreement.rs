//! Operators that share masters have to agree, and claim a record on each of them (`docs/dev/rules.md`, rule 8). This module is pure. From the
//! records that one replica has read it decides whether votes count, and whether the operator can make its claim.
//!
//! A claim names the member list and the longest time to live. A *conflict* is an operator with another list or another
//! time to live. During a known conflict on any member, no votes count, and no claim is made or renewed. Votes of a
//! member count while our own claim *stands* there, which means that the member confirmed its renewal recently.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::ResourceExt;

use super::effective;
use super::lists::{Lists, majority};
use super::plan;
use crate::api::RedisQuorum;
use crate::redis_member::{Claim, OtherClaim, RecordState};
use crate::redlock::{MemberName, RunId};
use crate::time::Boottime;

/// How long a member's votes count after a reading in which its record contained our claim.
pub const FRESH: Duration = Duration::from_secs(5);

/// The addition to twice the rejoin delay. See [`lives`].
const MARGIN: Duration = Duration::from_secs(10);

/// How much earlier a claim ends for the operator that renewed it than in the record.
const LOCAL_END_MARGIN: Duration = MARGIN;

/// How long a claim is valid without a renewal.
///
/// Votes count for [`FRESH`] after the last renewal of the claim, and promises from such votes live for less
/// than the rejoin delay. The result is twice that delay and a margin. The margin covers a fast clock of a member
/// and a restart of an operator.
pub fn lives(rejoin_delay: Duration) -> Duration {
    rejoin_delay.saturating_mul(2).saturating_add(MARGIN)
}

/// The claim of a quorum.
///
/// `None` until the settings are published from which its fences follow.
pub fn claim_of(quorum: &RedisQuorum) -> Option<Claim> {
    effective::published(quorum)?;
    let lists = Lists::of(quorum);
    Some(Claim {
        uid: quorum.uid()?,
        name: format!("{}/{}", quorum.namespace().unwrap_or_default(), quorum.name_any()),
        list: plan::shared_list(quorum),
        ttl: effective::current_max_ttl(quorum),
        epoch: lists.record_epoch(),
        ended: !lists.is_joint(),
        generation: quorum.metadata.generation.unwrap_or_default(),
        lives: lives(effective::current_rejoin_delay(quorum)),
        joined: false,
    })
}

/// The state of the agreement, for the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// There are no external members.
    NotShared,
    /// Another operator disagrees about the member list or the time to live.
    Conflict(OtherClaim),
    /// The member list changes.
    Paused,
    /// Before the first vote, every external member must hold our claim. These members do not hold it yet.
    Joining(Vec<MemberName>),
    /// Our claim stands. The list has the claims of other operators, if there are any.
    Agreed(Vec<OtherClaim>),
}

/// One external member.
#[derive(Clone, Debug, Default)]
struct SharedMaster {
    /// Whether its record was read, or an attempt to read it failed.
    tried: bool,
    /// The process that the status admits.
    admitted: Option<RunId>,
    last: Option<Reading>,
    /// The claims of other operators here, by UID, with their ends.
    ///
    /// They stay after a restart of the process, which has forgotten them.
    others: BTreeMap<String, (OtherClaim, Boottime)>,
    trouble: Option<String>,
}

/// The record at the last reading.
#[derive(Clone, Debug)]
struct Reading {
    run_id: RunId,
    at: Boottime,
    state: RecordState,
}

/// The claims on all members, as one replica observed them.
#[derive(Clone, Debug, Default)]
pub struct Agreement {
    claim: Option<Claim>,
    masters: BTreeMap<MemberName, SharedMaster>,
    /// The claimed list, including the operator's own members.
    list: Vec<MemberName>,
    /// Whether the list changes, with external members in the old or the new list.
    paused: bool,
    /// The end of this operator's claim without a renewal.
    /// It is set when the claim stands on every external member, and stays set until the claim lapses.
    joined_until: Option<Boottime>,
}

impl Agreement {
    /// Sets the claimed list and all external members. The data of remaining members is kept.
    pub fn set_members(&mut self, list: Vec<MemberName>, external: impl IntoIterator<Item = MemberName>, paused: bool) {
        let kept = |name: MemberName| (name.clone(), self.masters.remove(&name).unwrap_or_default());
        self.masters = external.into_iter().map(kept).collect();
        (self.list, self.paused) = (list, paused);
    }

    /// Sets our claim. `None` until the settings are known from which the fences follow.
    pub fn set_claim(&mut self, claim: Option<Claim>) {
        let both = self.claim.as_ref().zip(claim.as_ref());
        if both.is_none_or(|(old, new)| old.list != new.list) {
            self.joined_until = None;
        }
        if both.is_none_or(|(old, new)| !old.is_same(new)) {
            self.masters.values_mut().for_each(|master| master.last = None);
        }
        self.claim = claim;
    }

    /// Sets the process that the status admits, if there is one.
    pub fn admitted(&mut self, member: &MemberName, run_id: Option<RunId>) {
        if let Some(master) = self.masters.get_mut(member) {
            master.admitted = run_id;
        }
    }

    /// The request to this process: our claim, and whether the process can accept it.
    ///
    /// A new operator claims only on a process that has waited for its admission. By then an earlier operator has renewed its own
    /// claim, which the process lost at its start. No claim is made until every other member has a reading or a failed attempt.
    pub fn question(&self, member: &MemberName, run_id: &RunId, now: Boottime) -> Option<(Claim, bool)> {
        let master = self.masters.get(member).filter(|_| self.list.contains(member))?;
        let claim = self.claim.clone()?;
        let (is_admitted, is_joined) = (master.admitted.as_ref() == Some(run_id), self.is_joined(now));
        // `joined` is read from admitted processes only.
        let claim = Claim { joined: is_joined && is_admitted, ..claim };
        let others_tried = self.claimed().all(|(name, master)| master.tried || name == member);
        Some((claim, (is_admitted || is_joined) && others_tried && self.conflict(now).is_none()))
    }

    /// Takes a member's record, which was read for this claim.
    ///
    /// Returns whether the result of all records changed.
    pub fn read(
        &mut self,
        member: &MemberName,
        run_id: &RunId,
        claim: &Claim,
        state: &RecordState,
        now: Boottime,
    ) -> bool {
        let before = self.summary(now);
        let asked_now = self.claim.as_ref().is_some_and(|now| now.is_same(claim));
        let Some(master) = self.masters.get_mut(member).filter(|_| asked_now) else { return false };
        let same_process = master.last.as_ref().is_some_and(|last| last.run_id == *run_id);
        // The same process has answered again, so its new answer replaces all others.
        let is_kept = |until: Boottime| !same_process && until > now;
        master.others.retain(|_, (_, until)| is_kept(*until));
        for other in &state.others {
            // The end is stored separately, so that the same claim is equal at every reading.
            let recorded = (OtherClaim { left: Duration::ZERO, ..other.clone() }, now + other.left);
            master.others.insert(other.uid.clone(), recorded);
        }
        let is_later = state.epoch > claim.epoch;
        let trouble = is_later.then(|| "its record has a later change of the members".to_owned());
        let recovered = master.trouble != trouble;
        (master.tried, master.trouble) = (true, trouble);
        master.last = Some(Reading { run_id: run_id.clone(), at: now, state: state.clone() });
        // A single operator joins when its claim stands on every external member. If our claim stands on a majority, it has not lapsed, and no
        // replica needs to join again. This holds for a claim of each replica.
        let goes_on = self.is_joined(now) && self.on_majority(now, |last| last.state.kept);
        if goes_on || self.is_kept_everywhere(now) || self.on_majority(now, |last| last.state.stood) {
            self.joined_until = self.claim.as_ref().map(|claim| now + claim.lives.saturating_sub(LOCAL_END_MARGIN));
        }
        recovered || before != self.summary(now)
    }

    /// Records that the member did not answer, or that its record cannot be read.
    ///
    /// Returns whether this is new.
    ///
    /// It is never new for the operator's own members.
    pub fn missed(&mut self, member: &MemberName, trouble: &str) -> bool {
        let Some(master) = self.masters.get_mut(member) else { return false };
        master.tried = true;
        master.trouble.replace(trouble.to_owned()).as_deref() != Some(trouble)
    }

    /// Whether votes count in general.
    ///
    /// A majority of own members needs no record, because no other operator can have the same list. It stops for a known
    /// conflict, so each external member is tried first.
    pub fn allows_votes(&self, now: Boottime) -> bool {
        let has_own_majority =
            self.own_members() >= majority(&self.list) && self.claimed().all(|(_, master)| master.tried);
        let is_ready = has_own_majority || self.is_joined(now);
        !self.paused && (!self.is_shared() || (is_ready && self.conflict(now).is_none()))
    }

    /// Whether external members vote.
    pub fn is_shared(&self) -> bool {
        self.claimed().next().is_some()
    }

    /// Whether the votes of this process count, if votes count at all.
    ///
    /// They count on the operator's own members, and on members that hold our claim.
    pub fn counts(&self, member: &MemberName, run_id: &RunId, now: Boottime) -> bool {
        let Some(master) = self.masters.get(member) else { return true };
        self.list.contains(member) && master.fresh(now).is_some_and(|last| last.state.kept && last.run_id == *run_id)
    }

    /// Whether a majority of the list has an admitted process with such a record, by a fresh reading.
    ///
    /// Own members have no record. They count as such beside at least one record.
    fn on_majority(&self, now: Boottime, is_such: impl Fn(&Reading) -> bool) -> bool {
        let has = |(_, master): &(&MemberName, &SharedMaster)| {
            master.fresh(now).is_some_and(|last| master.admitted.as_ref() == Some(&last.run_id) && is_such(last))
        };
        let recorded = self.claimed().filter(has).count();
        recorded > 0 && recorded + self.own_members() >= majority(&self.list)
    }

    /// The number of the operator's own members in the claimed list.
    fn own_members(&self) -> usize {
        self.list.len() - self.claimed().count()
    }

    /// The longest time to live that can be brought into force.
    ///
    /// Every external member holds a claim of it at this moment. `None` if one of them does not.
    pub fn agreed_ttl(&self, now: Boottime) -> Option<Duration> {
        let claim = self.claim.as_ref().filter(|_| self.is_kept_everywhere(now) && self.allows_votes(now))?;
        Some(claim.ttl)
    }

    /// The state of the agreement for users.
    pub fn sharing(&self, now: Boottime) -> Sharing {
        match self.conflict(now) {
            Some(conflict) => Sharing::Conflict(conflict),
            None if self.paused => Sharing::Paused,
            None if !self.is_shared() => Sharing::NotShared,
            None if self.is_joined(now) => Sharing::Agreed(self.others(now)),
            None => {
                let open = self.claimed().filter(|(_, master)| !master.stands(now));
                Sharing::Joining(open.map(|(name, _)| name.clone()).collect())
            }
        }
    }

    /// Why the record of a member could not be read at the last attempt.
    pub fn trouble(&self, member: &MemberName) -> Option<&str> {
        self.masters.get(member)?.trouble.as_deref()
    }

    /// The epoch in the record of this process at the last reading.
    pub fn epoch_at(&self, member: &MemberName, run_id: &RunId) -> Option<i64> {
        let last = self.masters.get(member)?.last.as_ref()?;
        (last.run_id == *run_id).then_some(last.state.epoch)
    }

    /// Our own claim.
    pub const fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }

    /// The claims of other operators, one for each operator.
    pub fn others(&self, now: Boottime) -> Vec<OtherClaim> {
        let by_uid: BTreeMap<_, _> = self.live(now).map(|other| (&other.uid, other)).collect();
        by_uid.into_values().cloned().collect()
    }

    /// The external members in the claimed list. Our claim on other masters expires.
    fn claimed(&self) -> impl Iterator<Item = (&MemberName, &SharedMaster)> {
        self.masters.iter().filter(|(name, _)| self.list.contains(name))
    }

    fn live(&self, now: Boottime) -> impl Iterator<Item = &OtherClaim> {
        let recorded = self.claimed().flat_map(|(_, master)| master.others.values());
        recorded.filter(move |(_, until)| *until > now).map(|(other, _)| other)
    }

    fn is_joined(&self, now: Boottime) -> bool {
        self.joined_until.is_some_and(|until| now < until)
    }

    fn conflict(&self, now: Boottime) -> Option<OtherClaim> {
        let claim = self.claim.as_ref()?;
        // The choice is stable, so that the published conflict does not alternate. Two claims of one operator can be known.
        let disagreeing = self.live(now).filter(|other| (&other.list, other.ttl) != (&claim.list, claim.ttl));
        disagreeing.min_by(|one, other| one.uid.cmp(&other.uid)).cloned()
    }

    fn is_kept_everywhere(&self, now: Boottime) -> bool {
        self.is_shared() && self.claimed().all(|(_, master)| master.stands(now))
    }

    fn summary(&self, now: Boottime) -> (Sharing, Option<Duration>) {
        (self.sharing(now), self.agreed_ttl(now))
    }
}

impl SharedMaster {
    /// The last reading, while it is fresh.
    fn fresh(&self, now: Boottime) -> Option<&Reading> {
        self.last.as_ref().filter(|last| now.since(last.at) <= FRESH)
    }

    fn stands(&self, now: Boottime) -> bool {
        self.fresh(now).is_some_and(|last| last.state.kept)
    }
}

#[cfg(test)]
pub(crate) mod tests;
