//! Pure: the messages of a quorum's conditions.

use k8s_openapi::jiff::Timestamp;

use crate::api::conditions::{CommonReason, QuorumCondition as Type, Status, set_condition};
use crate::api::{GoDuration, MilliTime, RedisQuorumStatus};
use crate::fence::clock::Step;
use crate::redis_member::Fingerprint;

messages! {
    /// Messages of the conditions of a RedisQuorum.
    #[derive(displaydoc::Display)]
    pub enum QuorumMessage: means -> (Type, Status, CommonReason);

    /// All {members} members can vote
    AllVote { members: usize } => (Type::Ready, Status::True, CommonReason::AllAdmitted),
    /// {loss}
    PasswordsLost { loss: String } => (Type::Ready, Status::False, CommonReason::AuthLost),
    /// {counts}
    AllAvailable { counts: String } => (Type::QuorumAvailable, Status::True, CommonReason::AllAdmitted),
    /// {counts}
    MajorityAvailable { counts: String } => (Type::QuorumAvailable, Status::True, CommonReason::MajorityAdmitted),
    /// {counts}, so no lock is granted. {waits}
    MajorityLost { counts: String, waits: String } =>
        (Type::QuorumAvailable, Status::False, CommonReason::MajorityLost),
    /// With one member, every loss of it stops all locks. Set spec.members to 3
    SingleMember => (Type::FaultTolerant, Status::False, CommonReason::SingleMember),
    /// {counts}
    AllTolerant { counts: String } => (Type::FaultTolerant, Status::True, CommonReason::AllAdmitted),
    /// {counts}. If one more member fails, locks are still granted
    Tolerant { counts: String } => (Type::FaultTolerant, Status::True, CommonReason::MajorityAdmitted),
    /// {counts}. If one more member fails, no lock is granted
    Intolerant { counts: String } => (Type::FaultTolerant, Status::False, CommonReason::MembersMissing),
    /// {doing}
    MembersChanging { doing: String } => (Type::Progressing, Status::True, CommonReason::MembersChanging),
    /// {doing}
    RolloutPaused { doing: String } => (Type::Progressing, Status::True, CommonReason::RolloutPaused),
    /// {doing}
    RolloutPausedAlone { doing: String } => (Type::Progressing, Status::False, CommonReason::RolloutPaused),
    /// {doing}
    Updating { doing: String } => (Type::Progressing, Status::True, CommonReason::Updating),
    /// {doing}
    Rotating { doing: String } => (Type::Progressing, Status::True, CommonReason::RotatingPasswords),
    /// The quorum is as its specification requires
    Settled => (Type::Progressing, Status::False, CommonReason::Settled),
    /// The member list changes, and lock clients outside the operator are refused until every lock of the former list has
    /// expired. They can then log in with the user and the addresses in their new Secrets: let them read their Secrets
    /// again
    ClientsWait => (Type::ClientsReady, Status::False, CommonReason::MembersChanging),
    /// {clients}
    ClientMisbehaves { clients: String } => (Type::ClientsReady, Status::False, CommonReason::ClientMisbehaves),
    /// {blocked}
    ClientBlocked { blocked: String } => (Type::ClientsReady, Status::False, CommonReason::ClientSecretBlocked),
    /// Every client in spec.clients has its Secret
    ClientsReady => (Type::ClientsReady, Status::True, CommonReason::AsExpected),
    /// {clocks}
    ClockJump { clocks: String } => (Type::ClockHealthy, Status::False, CommonReason::ClockJump),
    /// The clocks of all members moved by {step} against the operator's clock at once. Most likely the operator's machine was
    /// stopped for a while, so no member is fenced. If the members' own clocks were stepped, locks that were held then are possibly
    /// lost
    ClocksTogether { step: Step } => (Type::ClockHealthy, Status::Unknown, CommonReason::ClockJump),
    /// No member answers
    NoClock => (Type::ClockHealthy, Status::Unknown, CommonReason::Unknown),
    /// The clocks of the members run within spec.clockDrift
    ClocksHealthy => (Type::ClockHealthy, Status::True, CommonReason::AsExpected),
    /// All members are external, and the operator does not check the keys of external members
    NotOurKeys => (Type::TTLWithinBound, Status::Unknown, CommonReason::Unknown),
    /// No member that the operator runs has answered yet
    KeysUnknown => (Type::TTLWithinBound, Status::Unknown, CommonReason::Unknown),
    /// Every key has a time to live, of at most {bound} on average
    KeysWithinBound { bound: GoDuration } => (Type::TTLWithinBound, Status::True, CommonReason::AsExpected),
    /// Clients have set keys that have no time to live. A member that restarts forgets them. `redis-cli --scan` on a member lists keys.
    /// Let the clients that set them use a ttl of at most {bound}
    EndlessKeys { bound: GoDuration } => (Type::TTLWithinBound, Status::False, CommonReason::KeysBeyondMaxTTL),
    /// Keys live longer than maxTTL {bound} on average. A member that restarts can forget them too early. Let the clients that set them
    /// use a ttl of at most {bound}
    KeysBeyondBound { bound: GoDuration } => (Type::TTLWithinBound, Status::False, CommonReason::KeysBeyondMaxTTL),
    /// {problem}. Members that run keep the certificate that they have, and the operator updates no member until the certificate is valid
    CertificateInvalid { problem: String } => (Type::TLSReady, Status::False, CommonReason::CertificateInvalid),
    /// {waits}
    CertificatePending { waits: String } => (Type::TLSReady, Status::False, CommonReason::CertificatePending),
    /// Every member serves the certificate {certificate}, which is valid until {until}
    CertificateServed { certificate: Fingerprint, until: String } =>
        (Type::TLSReady, Status::True, CommonReason::AsExpected),
    /// No other operator uses these members
    NotShared => (Type::QuorumAgrees, Status::True, CommonReason::NotShared),
    /// The operator has not published the values in force yet
    NothingInForce => (Type::QuorumAgrees, Status::Unknown, CommonReason::Unknown),
    /// RedisQuorum {other} uses some of these members with another list, so two majorities can have no common member, and this
    /// quorum does not vote. Its list: {theirs}. The list of this quorum: {ours}. Set the same addresses in both. If that quorum is
    /// deleted, its list stays in force until its locks have expired
    OtherList { other: String, theirs: String, ours: String } =>
        (Type::QuorumAgrees, Status::False, CommonReason::OtherMemberList),
    /// RedisQuorum {other} uses these members with maxTTL {theirs}, but the fences of this quorum wait for {ours}. This quorum
    /// therefore does not vote. Set the same spec.maxTTL in both. The record of the other quorum stays in force until its locks have expired
    OtherMaxTtl { other: String, theirs: GoDuration, ours: GoDuration } =>
        (Type::QuorumAgrees, Status::False, CommonReason::OtherMaxTTL),
    /// The member list changes, and no lock is granted until every lock of the former list has expired. Afterwards this quorum votes when
    /// every external member has its record
    ListChanges => (Type::QuorumAgrees, Status::Unknown, CommonReason::MembersChanging),
    /// Every external member must show that no other operator disagrees. Before that this quorum grants locks only if more than half of
    /// its members are the operator's own. Missing: {members}
    Joining { members: String } => (Type::QuorumAgrees, Status::Unknown, CommonReason::Joining),
    /// No other operator uses these members. The fence of {members} protects only the locks of operators. Clients that use these members
    /// directly are outside the guarantee
    AgreesAlone { members: String } => (Type::QuorumAgrees, Status::True, CommonReason::AsExpected),
    /// RedisQuorum {others} has the same list and maxTTL. The fence of {members} protects only the locks of operators. Clients that use
    /// these members directly are outside the guarantee
    Agrees { others: String, members: String } => (Type::QuorumAgrees, Status::True, CommonReason::AsExpected),
}

impl QuorumMessage {
    /// The condition with this message.
    pub fn condition(&self) -> Condition {
        let (type_, holds, reason) = self.means();
        Condition { type_, holds, reason, message: self.to_string() }
    }
}

/// The content of one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The condition.
    pub type_: Type,
    /// Whether it holds.
    pub holds: Status,
    /// The reason.
    pub reason: CommonReason,
    /// The message for users.
    pub message: String,
}

impl Condition {
    /// Sets it in the status, for a generation of the specification and a time.
    pub fn set(self, status: &mut RedisQuorumStatus, at: (Option<i64>, Timestamp)) {
        set_condition(&mut status.conditions, self.type_, self.holds, self.reason, self.message, at);
    }
}

/// The obstacle of one member.
#[derive(Clone, Debug, PartialEq, Eq, displaydoc::Display)]
#[expect(missing_docs, reason = "a message shows what its fields are")]
pub enum MemberWaits {
    /// {have} of {all} members can vote, {need} are needed
    Votes { have: usize, all: usize, need: usize },
    /// {member} leaves
    Leaves { member: String },
    /// {member} accepts no connection from the operator: {why}
    SilentFor { member: String, why: String },
    /// its process refuses the passwords in Secret {secret}. If this lasts for two minutes, delete its pod: kubectl -n {namespace} delete pod
    /// {pod}. Delete several such pods one after the other, each when the member before can vote again
    PasswordRefused { secret: String, namespace: String, pod: String },
    /// {member} does not answer
    Silent { member: String },
    /// {member} has no running pod
    NoPod { member: String },
    /// {member} has no running pod: {why}
    NoPodFor { member: String, why: String },
    /// {member} is starting
    Starting { member: String },
    /// {member} is fenced: {why}
    FencedFor { member: String, why: String },
    /// {member} is fenced and can vote from {at}
    FencedUntil { member: String, at: MilliTime },
    /// {why}
    Record { why: String },
    /// {member} is fenced
    Fenced { member: String },
    /// The operator creates the members
    NoMembers,
    /// {member} has no pod, so it serves no certificate
    CertificateNoPod { member: String },
    /// {member} speaks plain TCP until its pod has been replaced
    CertificatePlain { member: String },
    /// {member} serves a certificate that the operator refuses ({failure}). If this lasts for two minutes, delete its pod
    CertificateRefused { member: String, failure: String },
    /// {member} has not shown its certificate yet
    CertificateUnconfirmed { member: String },
    /// {member} still serves {old}. The operator asks it for {new} until the kubelet has brought the file, about a minute
    CertificateOld { member: String, old: Fingerprint, new: Fingerprint },
    /// The clock of {member} was stepped{by}: it is fenced, and the operator ends its process. It votes again after one rejoin
    /// delay. Check the time service of its node
    ClockStepped { member: String, by: String },
    /// The clock of {member} was stepped{by}: it is fenced until the locks that it might have lost have expired. Check the time
    /// service of its machine
    ExternalClockStepped { member: String, by: String },
    /// {member} served no client for too long, so the operator deletes its pod: a script kept it busy, or its memory or connections
    /// were used up. Check the clients in spec.clients
    Busy { member: String },
}

/// Why an external member does not vote.
#[derive(Clone, Debug, PartialEq, Eq, displaydoc::Display)]
pub(super) enum Unfit {
    /// it is the same process as {twin}, which has its vote already: set the address of another master
    Twin { twin: String },
}
