//! Checks the members repeatedly: which clients can vote, and which keys they hold for each belief.

use std::collections::BTreeMap;
use std::time::Duration;

use redlock_api::RedisQuorum;
use redlock_operator::redis_member::RECORD_KEY;
use redlock_operator::redis_member::acl::UserRule;
use serde_json::Value;

use crate::world::World;
use redlock_simulation::kube::api::Kind;

use super::Belief;
use super::fences::counted_masters;

/// Strings of one server by key, with the remaining time to live.
type Keys = BTreeMap<String, (String, Duration)>;

/// One server that takes votes.
struct Voter {
    member: String,
    run_id: String,
    /// The lowest membership epoch of its users that can vote.
    epoch: Option<i64>,
    keys: Keys,
    /// The drift of its clock, in millionths.
    drift: i64,
}

fn place_of(quorum: &RedisQuorum) -> (String, String) {
    (quorum.metadata.namespace.clone().unwrap_or_default(), quorum.metadata.name.clone().unwrap_or_default())
}

/// Whether an external master has the record that it had at its admission. Otherwise it refuses votes.
fn keeps_record(quorum: &RedisQuorum, member: &str, keys: &Keys) -> bool {
    let Some(since) = quorum.member(member).and_then(|member| member.memory.as_ref()?.record_since) else {
        return true;
    };
    let record = keys.get(RECORD_KEY).and_then(|(record, _)| serde_json::from_str::<Value>(record).ok());
    let uid = quorum.metadata.uid.as_deref().unwrap_or_default();
    record.is_some_and(|record| record[uid]["since"] == since)
}

impl World {
    /// Checks the current members of all quorums.
    pub(crate) fn check_members(&mut self) {
        self.judge_reopenings();
        let quorums: Vec<RedisQuorum> = self
            .api
            .server
            .objects(Kind::RedisQuorum)
            .filter_map(|object| serde_json::from_value(object.value.clone()).ok())
            .collect();
        for quorum in quorums {
            let voters = self.voters(&quorum);
            self.judge_fence(&voters);
            self.check_agents(&quorum, &voters);
            self.judge_memory(&quorum, &voters);
        }
    }

    fn voters(&mut self, quorum: &RedisQuorum) -> Vec<Voter> {
        let name = quorum.metadata.name.clone().unwrap_or_default();
        let now = self.now;
        let object = self.api.server.get(Kind::RedisQuorum, &place_of(quorum).0, &name);
        let masters: Vec<String> =
            object.iter().flat_map(|object| counted_masters(&object.value)).map(str::to_owned).collect();
        let mut voters = Vec::new();
        for host in self.servers.all.iter_mut().filter(|host| host.is_up()) {
            let member = host.member();
            let of_quorum = !host.is_external && member.rsplit_once('-').is_some_and(|(of, _)| of == name);
            let clock = host.wall(now);
            let keys = host.server.strings(clock).into_iter();
            let keys: Keys = keys.map(|(key, value, left)| (key, (value, left.unwrap_or(Duration::MAX)))).collect();
            let is_counted = masters.contains(&host.server.run_id()) && keeps_record(quorum, member, &keys);
            // A process that an earlier quorum of this name admitted has other passwords.
            let run_id = host.server.run_id();
            let is_former =
                self.oracle.admitted.get(&run_id).is_some_and(|uid| Some(uid) != quorum.metadata.uid.as_ref());
            let users = host.server.voting_users();
            let votes = host.is_external && is_counted || of_quorum && !is_former;
            if !votes || users.is_empty() {
                continue;
            }
            let epoch = users.iter().filter_map(|user| UserRule::split_name(user)).map(|(_, epoch)| epoch).min();
            voters.push(Voter { member: member.to_owned(), run_id, epoch, keys, drift: host.drift });
        }
        voters
    }

    /// Checks that no process takes votes before its admission is recorded.
    ///
    /// Only one process of each member can take votes.
    fn judge_fence(&mut self, voters: &[Voter]) {
        let now = self.now;
        for voter in voters {
            if !self.oracle.admitted.contains_key(&voter.run_id) {
                let what = format!("{} took votes before its admission at {now}", voter.member);
                self.oracle.violated_once(what, &voter.run_id);
            }
            let twin = voters.iter().find(|other| other.member == voter.member && other.run_id < voter.run_id);
            if twin.is_some() {
                let what = format!("two processes of {} take votes at {now}", voter.member);
                self.oracle.violated_once(what, &format!("twins {}", voter.run_id));
            }
        }
    }

    /// Updates the beliefs of holders that query the members themselves.
    ///
    /// They believe while a majority has their value, for the remaining time of that majority. While the member list
    /// changes, they need a majority of both lists. A holder that was late or found no majority never leads again with
    /// its value.
    fn check_agents(&mut self, quorum: &RedisQuorum, voters: &[Voter]) {
        // A quorum with external masters has no clients, so its holders cannot query the members.
        if !quorum.spec.external.is_empty() {
            return;
        }
        let name = quorum.metadata.name.as_deref().unwrap_or_default();
        let status = quorum.status.clone().unwrap_or_default();
        let lists: Vec<_> = [status.voters, status.former_voters].into_iter().filter(|list| !list.is_empty()).collect();
        let now = self.now;
        for (nonce, belief) in self.oracle.beliefs.iter_mut().filter(|(_, belief)| belief.quorum.1 == name) {
            if belief.outside || !belief.agent || belief.agent_until.is_some_and(|until| until <= now) {
                belief.agent = false;
                continue;
            }
            let mut plain = |voter: &Voter| {
                let (value, left) = voter.keys.get(&belief.key)?;
                let own =
                    value.starts_with(nonce.as_str()) && belief.value.get_or_insert_with(|| value.clone()) == value;
                // A fast clock ends the belief earlier. The agent allows for the quorum's drift.
                let left = u64::try_from(left.as_micros()).unwrap_or(0) as i64;
                let left = left - left * voter.drift.max(0) / 1_000_000;
                own.then_some(u64::try_from(left).unwrap_or(0))
            };
            let mut reported = |list: &Vec<String>| {
                let voters = voters.iter().filter(|voter| list.contains(&voter.member));
                let mut ends: Vec<u64> = voters.filter_map(&mut plain).collect();
                ends.sort_unstable_by(|one, other| other.cmp(one));
                ends.get(list.len() / 2).copied()
            };
            match lists.iter().map(&mut reported).min().flatten() {
                Some(left) => belief.agent_until = Some(now + left.saturating_sub(left / 100 + 2_000)),
                None => belief.agent = false,
            }
        }
    }

    /// Checks that no other client could get a majority for a key while a belief in it exists.
    ///
    /// A client that retries all the time would detect the same, but a run can lack such a client.
    fn judge_memory(&mut self, quorum: &RedisQuorum, voters: &[Voter]) {
        let place = place_of(quorum);
        let status = quorum.status.clone().unwrap_or_default();
        let members = usize::try_from(quorum.spec.members).unwrap_or_default() + quorum.spec.external.len();
        // While the members change, two majorities are needed, and a count does not show whether other clients are
        // excluded.
        let changes = !status.former_voters.is_empty() || status.voters.len() != members;
        if changes || self.oracle.stepped || self.oracle.forced.contains(&place) {
            return;
        }
        let former = self.oracle.former_list(&place, &status.voters);
        let now = self.now;
        let believes = |belief: &&Belief| {
            belief.quorum == place && !belief.outside && belief.end() > now && belief.lives(&self.cluster)
        };
        let mut found = Vec::new();
        for (nonce, belief) in self.oracle.beliefs.iter().filter(|(_, belief)| believes(belief)) {
            let forgot = |voter: &&Voter| {
                voter.keys.get(&belief.key).is_none_or(|(value, _)| !value.starts_with(nonce.as_str()))
            };
            // Members that have left can be open for a while. They are a danger if they are a majority of the former list, and open to users of
            // its epoch. A user of the present epoch needs a majority of the present list.
            let (now_voting, left): (Vec<_>, Vec<_>) =
                voters.iter().filter(forgot).partition(|voter| status.voters.contains(&voter.member));
            let is_former = |voter: &&&Voter| former.contains(&voter.member) && voter.epoch < status.membership_epoch;
            let left = left.iter().filter(is_former).count();
            let forgot = now_voting.len();
            if forgot > members / 2 || left > former.len() / 2 {
                let (who, key, until) = (&belief.who, &belief.key, belief.end());
                let what = format!(
                    "a majority has forgotten {key}: {forgot} of {members}, and {left} of the members that left, at {now}, but {who} believes until {until}"
                );
                found.push((what, nonce.clone()));
            }
        }
        for (what, nonce) in found {
            self.oracle.violated_once(what, &nonce);
        }
    }
}
