//! What is different about a link to a master that others run: it is at an address, with a user of the locking path, and it carries the
//! record by which operators that share it agree.

use super::{MemberLink, Target};
use crate::fence::Users;
use crate::redis_member::{AdminConnection, Endpoint, Guard, Observation, Secret, TlsClient};
use crate::redlock::{MemberError, RunId};

/// A user of a master that others run, and how to speak to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The Redis user; empty if the master asks for no password.
    pub username: String,
    /// Its password.
    pub password: Secret,
    /// With TLS or without.
    pub tls: Option<TlsClient>,
}

impl MemberLink {
    /// Where the member is, and which process of it the status admits. Without credentials the member is not asked, or asked as
    /// before: the Secret may have been deleted by mistake.
    pub(in crate::quorum::session) fn place_external(
        &self,
        user: Option<Credentials>,
        admitted: Option<RunId>,
        guard: Guard,
    ) {
        let Some(external) = &self.plan.external else { return };
        self.note_admitted(admitted);
        let Some(Credentials { username, password, tls }) = user else { return };
        let endpoint = Endpoint { address: external.address.clone(), username, password, tls };
        self.place_voter(guard.epoch, endpoint.clone(), Some(guard));
        let target = Some(Target { pod_uid: String::new(), admin: endpoint, other_password: None, users: Vec::new() });
        self.target.send_if_modified(|current| {
            let moved = *current != target;
            *current = target;
            moved
        });
    }

    fn note_admitted(&self, admitted: Option<RunId>) {
        let before = {
            let mut current = self.admitted.lock();
            std::mem::replace(&mut *current, admitted.clone())
        };
        // Its process cannot be ended for a step of its clock. It has waited like one that forgot everything when it is admitted
        // again, and is judged from its new time on.
        if before.is_some() && before != admitted {
            self.clocks.forget(&self.name);
        }
    }

    /// Whether votes of the process may count. There is no user to be opened on a master that others run: the status is all.
    pub(super) fn users(&self, observation: &Observation) -> Users {
        let open = if self.plan.is_external() {
            self.admitted.lock().as_ref() == Some(&observation.run_id)
        } else {
            !observation.open_users.is_empty()
        };
        if open { Users::Open } else { Users::Closed }
    }

    /// Why the member was not asked; for masters that others run, whose state no pod tells.
    pub(in crate::quorum::session) fn note_missed(&self, trouble: &str) {
        if self.accord.lock().missed(&self.name, trouble) {
            self.announce();
        }
    }

    /// Reads what other operators say on the process, and says or renews what there is to say of this quorum.
    pub(super) async fn look_at_record(&self, admin: &mut AdminConnection) {
        let run_id = admin.run_id().clone();
        // Before the question: what stands counts from here.
        let now = self.machine.clock.boottime();
        let question = self.accord.lock().question(&self.name, &run_id, now);
        let Some((claim, uses)) = question else { return };
        match admin.look_at_record(&claim, uses).await {
            Ok(look) => {
                self.seen().record_since = Some((run_id.clone(), look.since));
                if self.accord.lock().saw(&self.name, &run_id, &look, now) {
                    self.announce();
                }
            }
            // Alive; the next look tells.
            Err(MemberError::Busy | MemberError::Loading) => {}
            Err(MemberError::Fenced) => {
                self.note_missed("its user may not run the commands that docs/external.md lists");
            }
            Err(error) => self.note_missed(&format!("the record of its operators was not read: {error}")),
        }
    }
}
