//! What a link looks after beside the fence: scripts that keep its member from voting, and keys that live too long.

use std::time::Duration;

use super::MemberLink;
use super::busy::Busy;
use crate::quorum::model::blocked::Blocked;
use crate::quorum::model::status::TtlReport;
use crate::quorum::session::ttl::{PAGE, TtlWalk};
use crate::redis_member::acl::UserRule;
use crate::redis_member::{AdminConnection, Load, NOBODY, ScriptKill, Strain};
use crate::redlock::{MemberError, MemberName, RunId};
use crate::time::Monotonic;

/// The same news is told again after this at the earliest, and is of no use later.
const TOLD_AGAIN: Duration = Duration::from_secs(30);

/// So long a client that has strained a member is shut out of it.
const SHUT_OUT: Duration = Duration::from_secs(60);

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
    /// Keys that live longer are reported; `None`: nothing is known yet.
    pub(super) bound: Option<Duration>,
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

impl ShutOut {
    /// For people. It says nothing that changes while it lasts.
    pub(super) fn in_words(&self, member: &MemberName) -> String {
        let client = UserRule::client_of(&self.user).unwrap_or(&self.user).to_owned();
        Blocked::ShutOut { client, strain: self.strain.to_string(), member: member.to_string() }.to_string()
    }
}

impl Inspections {
    /// News of a script, once.
    pub(super) fn take_script_news(&mut self, now: Monotonic) -> Option<ScriptNews> {
        let (news, since) = self.script.filter(|_| !self.script_told)?;
        self.script_told = true;
        (now.since(since) < TOLD_AGAIN).then_some(news)
    }

    /// Notes that a script was ended, and returns what is news of that.
    ///
    /// A member that is busy with a script votes for no holder until the script ends, so the script is ended (rule 11).
    pub(super) fn note_script(
        &mut self,
        outcome: &Result<ScriptKill, MemberError>,
        now: Monotonic,
    ) -> Option<ScriptNews> {
        let news = match outcome {
            Ok(ScriptKill::Killed) => ScriptNews::Killed,
            Err(MemberError::Other(code)) if code == "UNKILLABLE" => ScriptNews::Unkillable,
            // It has ended by itself, or another replica was quicker; or the member is gone, which is seen elsewhere.
            Ok(ScriptKill::NotBusy) | Err(_) => return None,
        };
        if self.script.is_some_and(|(last, since)| last == news && now.since(since) < TOLD_AGAIN) {
            return None;
        }
        (self.script, self.script_told) = (Some((news, now)), false);
        Some(news)
    }

    /// Clients that are shut out of the member now.
    pub(super) fn shut_out(&self, now: Monotonic) -> Vec<ShutOut> {
        self.shut_out.iter().filter(|shut_out| now < shut_out.until).cloned().collect()
    }

    /// Keys beyond the bound on this process.
    ///
    /// `None` until it has been looked through, and on replicas that do not lead.
    pub(super) fn ttls(&self, run_id: &RunId) -> Option<TtlReport> {
        self.walk.as_ref().filter(|(of, _)| of == run_id)?.1.report()
    }

    /// The bound, and where to go on; `None` during a rest.
    fn next_page(&mut self, run_id: &RunId, now: Monotonic) -> Option<(Duration, u64)> {
        let bound = self.bound?;
        let walk = self.walk.take().filter(|(of, _)| of == run_id);
        let (_, walk) = self.walk.insert(walk.unwrap_or_else(|| (run_id.clone(), TtlWalk::default())));
        Some((bound, walk.next(now)?))
    }
}

/// A client is shut out of the member for a while.
pub(super) fn note_shut_out(link: &MemberLink, user: &str, strain: Strain) {
    tracing::warn!(member = %link.name, user, %strain, "client shut out: it used most of what the member has");
    let until = link.now() + SHUT_OUT;
    link.seen().looks.shut_out.push(ShutOut { user: user.to_owned(), strain, until });
    link.announce();
}

/// Takes a member that runs out of connections or memory from the client that uses most of it.
///
/// Only the leader does this.
pub(super) async fn relieve(link: &MemberLink, admin: &mut AdminConnection, load: Load) {
    let now = link.now();
    let ended = {
        let shut_out = &mut link.seen().looks.shut_out;
        let before = shut_out.len();
        shut_out.retain(|shut_out| now < shut_out.until);
        shut_out.len() != before
    };
    if ended {
        // They are to be opened again.
        link.announce();
    }
    if link.seen().leads(admin.run_id()) {
        make_room(link, admin, load).await;
    }
}

/// Takes from scripts, or from the client that uses most, what the member runs out of, if it does.
pub(super) async fn make_room(link: &MemberLink, admin: &mut AdminConnection, load: Load) {
    if load.is_full_of_scripts() {
        // Redis does not tell who has loaded them.
        tracing::warn!(member = %link.name, bytes = load.scripts, "scripts take too much of the member: all are thrown away");
        drop(admin.forget_scripts().await);
        return;
    }
    let Some(strain) = load.strain() else { return };
    let Ok(connections) = admin.connections().await else { return };
    let Some(user) = connections.heaviest(strain) else { return };
    if user == NOBODY {
        drop(admin.cut_off(NOBODY).await);
    } else if admin.shut_out(user).await.is_ok() {
        note_shut_out(link, user, strain);
    }
}

/// One page more, on the leader only: the process itself says whose epoch it has.
pub(super) async fn sample_ttls(link: &MemberLink, admin: &mut AdminConnection) {
    let (run_id, now) = (admin.run_id().clone(), link.now());
    let page = {
        let mut seen = link.seen();
        if !seen.leads(&run_id) {
            seen.looks.walk = None;
            return;
        }
        seen.looks.next_page(&run_id, now)
    };
    let Some((bound, cursor)) = page else { return };
    let Ok(page) = admin.sample_ttls(cursor, PAGE).await else { return };
    let now = link.now();
    let news = {
        let walk = &mut link.seen().looks.walk;
        walk.as_mut().filter(|(of, _)| *of == run_id).is_some_and(|(_, walk)| walk.page(&page, bound, now))
    };
    if news {
        link.announce();
    }
}
