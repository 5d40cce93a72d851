//! Pure: what keeps a quorum from being carried out, and what to do about it.

use super::invalid::Invalid;
use crate::api::conditions::CommonReason;

messages! {
    /// Messages of Ready, and of QuorumAvailable, of a quorum that cannot be carried out.
    #[derive(displaydoc::Display)]
    pub enum Problem: reason -> CommonReason;

    /// The specification cannot be carried out: {0}. The operator changes nothing until it is edited
    Invalid(Invalid) => CommonReason::InvalidSpec,
    /// {objects}. The operator checks again automatically
    InTheWay { objects: String } => CommonReason::InvalidSpec,
    /// {certificate}
    Certificate { certificate: String } => CommonReason::CertificateInvalid,
    /// Secret {secret} with the passwords is gone, and this replica has no copy. If no other replica has one, the operator makes new
    /// passwords in some seconds and restarts the members with them, one by one
    PasswordsGone { secret: String } => CommonReason::AuthLost,
    /// Secret {secret} does not have the passwords of this quorum, and no replica of the operator has a copy. The operator changes nothing.
    /// Restore the Secret from a backup. Or delete it, and the operator makes new passwords and restarts the members with
    /// them, one by one
    PasswordsUnusable { secret: String } => CommonReason::AuthLost,
    /// Namespace {namespace} has {limit} older RedisQuorums, as many as the operator serves there. It makes nothing for this one until one
    /// of them is gone. Use one of those, or ask for a larger limits.quorumsPerNamespace
    TooMany { namespace: String, limit: usize } => CommonReason::TooManyQuorums,
    /// The RedisQuorum is being deleted. It is gone when no member can vote and all locks on the members have expired: {waits}
    Deleting { waits: String } => CommonReason::Deleting,
}
