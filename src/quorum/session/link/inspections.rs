//! What a link looks after beside the fence: scripts that keep its member from voting, and keys that live too long.

use std::time::Duration;

use super::{MemberLink, busy::Busy};
use crate::quorum::model::blocked::Blocked;
use crate::{
    quorum::{
        model::status::TtlReport,
        session::ttl::{PAGE, TtlWalk},
    },
    redis_member::{AdminConnection, Load, NOBODY, ScriptKill, Strain, Users, acl::UserRule},
    redlock::{MemberError, RunId},
    time::Monotonic,
};

/// The same news is told again after this at the earliest, and nobody wants to hear of it later.
const TOLD_AGAIN: Duration = Duration::from_secs(30);

/// So long a client that has strained a member is shut out of it.
pub(super) const SHUT_OUT: Duration = Duration::from_secs(60);

/// What became of a script that kept the member busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptNews {
    /// It was ended.
    Killed,
    /// It has written, so nothing but its own end or that of the process helps.
    Unkillable,
}

/// What a link remembers of these.
#[derive(Clone, Debug, Default)]
pub(super) struct Inspections {
    bound: Option<Duration>,
    walk: Option<(RunId, TtlWalk)>,
    script: Option<(ScriptNews, Monotonic)>,
    script_told: bool,
    pub(super) shut_out: Vec<ShutOut>,
    pub(super) busy: Option<Busy>,
    /// Scripts were ended, and until then the link looks who has sent them.
    pub(super) senders_sought: Option<Monotonic>,
}

/// A client that took so much of a member that others, and the operator, might have got nothing. Its user is closed for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShutOut {
    /// The Redis user.
    pub user: String,
    /// What it took.
    pub strain: Strain,
    /// When it is opened again.
    pub until: Monotonic,
}

impl MemberLink {
    /// All users whose state on a process tells whether it may vote.
    pub(super) fn asked_about(&self, users: &[String], run_id: &RunId) -> Vec<String> {
        let mut all = users.to_vec();
        let seen = self.seen();
        let others = seen.users.iter().filter(|(of, ..)| of == run_id).flat_map(|(.., others)| others);
        all.extend(others.filter(|other| !users.contains(other)).cloned());
        all
    }

    /// All users that a process has.
    pub(super) fn note_users(&self, run_id: &RunId, users: Users) {
        let highest = users.highest_epoch();
        self.seen().users = Some((run_id.clone(), highest, users.open));
    }

    /// Keys that live longer are reported from now on. `None`: nothing is known yet.
    pub(in crate::quorum::session) fn bound_ttls(&self, bound: Option<Duration>) {
        self.seen().looks.bound = bound;
    }

    /// Keys beyond the bound on the process that answers; `None` until it has been looked through, and on replicas that do not
    /// lead.
    #[must_use]
    pub fn ttls(&self) -> Option<TtlReport> {
        let seen = self.seen();
        let (run_id, walk) = seen.looks.walk.as_ref()?;
        let is_it = seen.processes.answers() && seen.processes.last().is_some_and(|sight| sight.run_id == *run_id);
        walk.report().filter(|_| is_it)
    }

    /// News of a script, once.
    #[must_use]
    pub fn take_script_news(&self) -> Option<ScriptNews> {
        let now = self.machine.clock.monotonic();
        let looks = &mut self.seen().looks;
        let (news, since) = looks.script.filter(|_| !looks.script_told)?;
        looks.script_told = true;
        (now.since(since) < TOLD_AGAIN).then_some(news)
    }

    /// A member that is busy with a script votes for nobody until the script ends, so it was ended (rule 11).
    pub(super) fn note_script(&self, outcome: &Result<ScriptKill, MemberError>) {
        let news = match outcome {
            Ok(ScriptKill::Killed) => ScriptNews::Killed,
            Err(MemberError::Other(code)) if code == "UNKILLABLE" => ScriptNews::Unkillable,
            // It has ended by itself, or another replica was quicker; or the member is gone, which is seen elsewhere.
            Ok(ScriptKill::NotBusy) | Err(_) => return,
        };
        let now = self.machine.clock.monotonic();
        {
            let looks = &mut self.seen().looks;
            if looks.script.is_some_and(|(last, since)| last == news && now.since(since) < TOLD_AGAIN) {
                return;
            }
            (looks.script, looks.script_told) = (Some((news, now)), false);
        }
        tracing::warn!(member = %self.name, outcome = ?news, "member was busy with a script");
        self.announce();
    }

    /// Clients that are shut out of the member now.
    #[must_use]
    pub fn shut_out(&self) -> Vec<ShutOut> {
        let now = self.machine.clock.monotonic();
        let all = &self.seen().looks.shut_out;
        all.iter().filter(|shut_out| now < shut_out.until).cloned().collect()
    }

    /// The same for people. It says nothing that changes while it lasts.
    #[must_use]
    pub fn shut_out_in_words(&self) -> Vec<String> {
        let words = |ShutOut { user, strain, .. }: ShutOut| {
            let client = UserRule::client_of(&user).unwrap_or(&user).to_owned();
            Blocked::ShutOut { client, strain: strain.to_string(), member: self.name.to_string() }.to_string()
        };
        self.shut_out().into_iter().map(words).collect()
    }

    /// On the leader: takes a member that is about to run out of connections or of memory from whoever uses most of it.
    pub(super) async fn relieve(&self, admin: &mut AdminConnection, load: Load) {
        let now = self.machine.clock.monotonic();
        let before = self.seen().looks.shut_out.len();
        self.seen().looks.shut_out.retain(|shut_out| now < shut_out.until);
        if self.seen().looks.shut_out.len() != before {
            // They are to be opened again.
            self.announce();
        }
        if self.leads(admin.run_id()) {
            self.make_room(admin, load).await;
        }
    }

    /// Takes from scripts, or from whoever uses most, what the member runs out of, if it does.
    pub(super) async fn make_room(&self, admin: &mut AdminConnection, load: Load) {
        if load.is_full_of_scripts() {
            // Nobody can tell who has loaded them.
            tracing::warn!(member = %self.name, bytes = load.scripts, "scripts take too much of the member: all are thrown away");
            drop(admin.forget_scripts().await);
            return;
        }
        let Some(strain) = load.strain() else { return };
        let Ok(connections) = admin.connections().await else { return };
        let Some(user) = connections.heaviest(strain) else { return };
        if user == NOBODY {
            drop(admin.cut_off(NOBODY).await);
        } else if admin.shut_out(user).await.is_ok() {
            self.note_shut_out(user, strain);
        }
    }

    /// Whether this replica has raised its epoch on the process, and it has that epoch still.
    pub(super) fn leads(&self, run_id: &RunId) -> bool {
        let seen = self.seen();
        let epoch = seen.observation.as_ref().and_then(|observation| observation.epoch);
        epoch.is_some_and(|epoch| seen.raised == Some((run_id.clone(), epoch)))
    }

    /// One page more, on the leader only: the process itself says whose epoch it has.
    pub(super) async fn sample_ttls(&self, admin: &mut AdminConnection) {
        let run_id = admin.run_id().clone();
        let Some((bound, cursor)) = self.next_page(&run_id) else { return };
        let Ok(page) = admin.sample_ttls(cursor, PAGE).await else { return };
        let now = self.machine.clock.monotonic();
        let news = {
            let walk = &mut self.seen().looks.walk;
            walk.as_mut().filter(|(of, _)| *of == run_id).is_some_and(|(_, walk)| walk.page(&page, bound, now))
        };
        if news {
            self.announce();
        }
    }

    fn next_page(&self, run_id: &RunId) -> Option<(Duration, u64)> {
        let now = self.machine.clock.monotonic();
        let leads = self.leads(run_id);
        let mut seen = self.seen();
        if !leads {
            seen.looks.walk = None;
            return None;
        }
        let bound = seen.looks.bound?;
        let walk = seen.looks.walk.get_or_insert_with(|| (run_id.clone(), TtlWalk::default()));
        if walk.0 != *run_id {
            *walk = (run_id.clone(), TtlWalk::default());
        }
        Some((bound, walk.1.next(now)?))
    }
}
