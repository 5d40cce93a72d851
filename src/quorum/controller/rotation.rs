//! Rotation of passwords carried out: what [`rotation`] decides, one step after the other. Its state is in the auth Secret, so any
//! leader goes on where another one was.

use std::time::Duration;

use kube::ResourceExt;

use super::{Error, Task, auth::Stored};
use crate::quorum::model::events::QuorumEvent;
use crate::{
    api::{PasswordRotation, PasswordStage, ROTATE_PASSWORDS_ANNOTATION, RedisQuorum},
    quorum::{
        model::{
            auth::{Auth, Stage},
            plan::{MemberPlan, Plan},
            record::record_named,
            rotation::{self, MemberView, RotationStep, View},
        },
        session::{ActError, MemberLink},
    },
    redis_member::acl::OPERATOR_USER,
    redlock::RunId,
    time::Monotonic,
};

/// Replicas read the passwords of a stage as soon as they learn of it. They have them after this.
const SETTLE: Duration = Duration::from_secs(10);
/// A member that failed is tried again after this.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// What the leader remembers: nothing that could not be found out anew.
#[derive(Default)]
pub(super) struct Memory {
    /// By process, the passwords that it is known to accept.
    confirmed: std::collections::HashMap<RunId, u64>,
    /// Since when these have been known here.
    since: Option<(u64, Monotonic)>,
}

impl Task<'_> {
    /// Takes steps until there is nothing to do but wait; when to look again unless something happens.
    pub(super) async fn rotate(
        &self,
        plan: &Plan,
        auth: &Auth,
        files_written: bool,
    ) -> Result<Option<Duration>, Error> {
        let settles = self.settles(auth);
        // Neither disturbs the other: a change waits for passwords that are under way before it is joint.
        if plan.lists.is_joint() {
            return Ok(None);
        }
        for _ in 0..=plan.members.len() {
            let quorum = self.session.quorum();
            let step = self.rotation_step(plan, auth, &quorum, files_written);
            match step {
                RotationStep::Nothing | RotationStep::Wait(_) | RotationStep::AwaitFinish => {
                    return Ok(auth.rotation().and(settles));
                }
                RotationStep::Begin(request) => {
                    return self.change_auth(plan, auth, auth.begin(&cut(&request)), QuorumEvent::RotationBegins).await;
                }
                RotationStep::Advance => {
                    let next = auth.advance();
                    let event = match next.rotation().map(|rotation| rotation.stage) {
                        Some(Stage::Switched) => QuorumEvent::RotationSwitched,
                        Some(_) => QuorumEvent::RotationEnds,
                        None => QuorumEvent::PasswordsRotated,
                    };
                    return self.change_auth(plan, auth, next, event).await;
                }
                RotationStep::Confirm { name, cut } => {
                    let found = self.linked(plan).into_iter().find(|(member, _)| member.name == name);
                    let Some((member, link)) = found else { return Ok(None) };
                    if let Err(error) = self.confirm(plan, auth, member, &link, cut).await {
                        tracing::info!(member = %name, %error, "passwords not set yet");
                        return Ok(Some(AFTER_FAILURE));
                    }
                    // One member in each reconciliation: the next one when its connections are back.
                    if cut {
                        return Ok(Some(AFTER_FAILURE));
                    }
                }
            }
        }
        Ok(Some(AFTER_FAILURE))
    }

    /// How far a rotation is, in words; `None` without one.
    pub(super) fn rotation_progress(&self, plan: &Plan, auth: &Auth, files_written: bool) -> Option<String> {
        let quorum = self.session.quorum();
        let step = self.rotation_step(plan, auth, &quorum, files_written);
        Some(rotation::progress(auth.rotation()?, &self.rotation_members(plan, auth, &quorum), &step))
    }

    fn rotation_step(&self, plan: &Plan, auth: &Auth, quorum: &RedisQuorum, files_written: bool) -> RotationStep {
        let wanted = quorum.annotations().get(ROTATE_PASSWORDS_ANNOTATION).map(|text| cut(text));
        rotation::decide(&View {
            wanted: wanted.as_deref(),
            rotation: auth.rotation(),
            rotated: auth.rotated(),
            files_written,
            settled: self.settles(auth).is_none(),
            members: &self.rotation_members(plan, auth, quorum),
        })
    }

    fn rotation_members(&self, plan: &Plan, auth: &Auth, quorum: &RedisQuorum) -> Vec<MemberView> {
        let of = |(member, link): (&MemberPlan, std::sync::Arc<MemberLink>)| {
            let record = record_named(quorum.status.as_ref(), &member.name);
            let view = link.view();
            let run_id = view.sight.filter(|_| view.processes.answers()).map(|sight| sight.run_id);
            let confirmed = run_id.as_ref().is_some_and(|run_id| self.confirmed(run_id) == Some(auth.generation()));
            MemberView {
                name: member.name.clone(),
                admitted: record.admitted && record.run_id == run_id,
                answers: run_id.is_some() && view.raised == Some(self.leader.term.epoch),
                confirmed,
            }
        };
        self.linked(plan).into_iter().map(of).collect()
    }

    async fn confirm(
        &self,
        plan: &Plan,
        auth: &Auth,
        member: &MemberPlan,
        link: &MemberLink,
        cut: bool,
    ) -> Result<(), ActError> {
        let sight = link.view().sight.ok_or(ActError::OtherProcess)?;
        let operator = auth.accepted(&member.name, OPERATOR_USER);
        // The next epoch's user may be open already, and waits for a change of the members.
        let mut users = plan.user_rules(auth, &member.name);
        users.push(plan.next_locker(auth, &member.name));
        link.turn(&sight.run_id).await?.set_passwords(self.leader.term.epoch, &operator, &users, cut).await?;
        tracing::info!(member = %member.name, generation = auth.generation(), cut, "passwords set");
        self.leader.memory(self.session.uid(), |memory| {
            memory.rotation.confirmed.insert(sight.run_id, auth.generation());
        });
        Ok(())
    }

    fn confirmed(&self, run_id: &RunId) -> Option<u64> {
        self.leader.memory(self.session.uid(), |memory| memory.rotation.confirmed.get(run_id).copied())
    }

    /// How long the other replicas are still given to read the passwords of this stage.
    fn settles(&self, auth: &Auth) -> Option<Duration> {
        let now = self.now();
        let since = self.leader.memory(self.session.uid(), |memory| match memory.rotation.since {
            Some((generation, since)) if generation == auth.generation() => since,
            _ => {
                memory.rotation.since = Some((auth.generation(), now));
                now
            }
        });
        Some((since + SETTLE).since(now)).filter(|left| !left.is_zero())
    }

    /// To the Secret first, and only over the state that this was decided on.
    async fn change_auth(
        &self,
        plan: &Plan,
        known: &Auth,
        next: Auth,
        event: QuorumEvent,
    ) -> Result<Option<Duration>, Error> {
        if let Stored::InTheWay = self.store_auth(plan, known, next).await? {
            return Err(Error::Conflict);
        }
        self.tell(event).await;
        Ok(Some(Duration::ZERO))
    }
}

/// For the status.
pub(super) fn published(auth: &Auth) -> Option<PasswordRotation> {
    let rotation = auth.rotation()?;
    let stage = match rotation.stage {
        Stage::Adding => PasswordStage::Adding,
        Stage::Switched => PasswordStage::Switched,
        Stage::Removing => PasswordStage::Removing,
    };
    Some(PasswordRotation { request: rotation.request.clone(), stage })
}

/// Annotations may be long; this much tells one request from another.
fn cut(text: &str) -> String {
    text.chars().take(253).collect()
}
