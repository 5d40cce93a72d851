use super::Redlock;
use super::round::Round;
use crate::redlock::{Command, Elector, Electorate, LockKey, LockValue, MemberName, Missing, Reply};
use crate::time::{Boottime, Clock};

impl<C: Clock + ?Sized> Redlock<C> {
    /// Sets the key again on members that lost it, and returns the names of those that took it. Only for a hold whose
    /// extension has just reached a majority with this `valid_until` and this `missing`, and never for an ending hold.
    /// It is no vote: the repaired key ends with the validity, by the member's own clock, however late the request
    /// arrives.
    pub async fn repair(
        &self,
        electorate: &Electorate,
        key: &LockKey,
        value: &LockValue,
        valid_until: Boottime,
        missing: &[Missing],
    ) -> Vec<MemberName> {
        let px = valid_until.since(self.clock.boottime());
        if px.is_zero() {
            return Vec::new();
        }
        let lost = |elector: &Elector| missing.iter().find(|missing| missing.member == *elector.member.name());
        let electors = electorate.electors();
        let asked =
            electors.iter().enumerate().filter(|(_, elector)| elector.admitted.is_some() && lost(elector).is_some());
        let mut round = Round::send_each(electorate, asked, self.settings.node_timeout, |index| {
            // The member's clock showed `time` at `received` or before, so this is no later than `valid_until` there.
            let not_after = lost(&electors[index]).map(|m| m.clock.time.plus(valid_until.since(m.clock.received)));
            let repair = |not_after| Command::Repair { key: key.clone(), value: value.clone(), px, not_after };
            not_after.map(repair).into_iter().collect::<Vec<_>>().into()
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
