//! Sets a key again on members that have lost it.

use super::Redlock;
use super::ballot::admitted;
use super::round::Round;
use crate::redlock::{ClockSample, Command, Elector, Electorate, LockKey, LockValue, MemberName, Missing, Reply};
use crate::time::{Boottime, Clock};

impl<C: Clock + ?Sized> Redlock<C> {
    /// Sets the key again on members that lost it, and returns the names of those that set it.
    ///
    /// Call it only for a hold whose extension has just reached a majority with this `valid_until` and this `missing`,
    /// and never for an ending hold. A repair is no vote. The key ends with the validity, and a request that arrives
    /// after `not_after` sets nothing, both by the member's own clock.
    pub async fn repair(
        &self,
        electorate: &Electorate,
        key: &LockKey,
        value: &LockValue,
        (valid_until, not_after): (Boottime, Boottime),
        missing: &[Missing],
    ) -> Vec<MemberName> {
        let now = self.clock.boottime();
        let px = valid_until.since(now);
        if px.is_zero() || now > not_after {
            return Vec::new();
        }
        let lost = |elector: &Elector| missing.iter().find(|missing| missing.member == *elector.member.name());
        let electors = electorate.electors();
        let asked = admitted(electorate).filter(|(_, elector)| lost(elector).is_some());
        let mut round = Round::send_each(electorate, asked, self.settings.node_timeout, |index| {
            // The member's clock showed `time` at `received` or earlier. So the computed time on that clock is not later than `at` here.
            let there = |clock: &ClockSample, at: Boottime| clock.time.plus(at.since(clock.received));
            let repair = |missing: &Missing| Command::Repair {
                key: key.clone(),
                value: value.clone(),
                px,
                until: there(&missing.clock, valid_until),
                not_after: there(&missing.clock, not_after),
            };
            lost(&electors[index]).map(repair).into_iter().collect::<Vec<_>>().into()
        });
        let mut repaired = Vec::new();
        while let Some((index, answer)) = round.next().await {
            let elector = &electors[index];
            if answer.is_ok_and(|a| {
                elector.admitted.as_ref() == Some(&a.run_id) && a.replies.first() == Some(&Reply::Done(true))
            }) {
                repaired.push(elector.member.name().clone());
            }
        }
        repaired
    }
}
