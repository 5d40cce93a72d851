//! Pure: why an external member did not answer, and what the user changes.

use crate::api::{ExternalStatus, SecretRef};
use crate::redis_member::acl::EXTERNAL_RIGHTS;
use crate::redlock::MemberError;

/// Why an external member did not answer.
#[derive(Clone, Debug, PartialEq, Eq, displaydoc::Display)]
#[expect(missing_docs, reason = "a message shows what its fields are")]
pub enum Unanswered {
    /// WRONGPASS: the master refuses the user and password of Secret {secret}. Set those of a user of the master in that Secret
    WrongPassword { secret: String },
    /// NOAUTH: the master needs a password. Set secretRef to a Secret with the username and password of a user
    NoPassword,
    /// NOPERM: the master refuses a command to the operator's user. Give the user on the master these rules: ~* {rights}
    NoRight { rights: &'static str },
    /// the operator's user lacks rights for votes. Add these rules to the user on the master: {rules}
    RightsMissing { rules: String },
    /// TLS: {cause}. Set tls.serverName to a name in the certificate of the master
    WrongName { cause: String },
    /// TLS: {cause}. Set tls.secretRef to a Secret with the authority of the master in ca.crt
    Untrusted { cause: String },
    /// {cause}
    Other { cause: MemberError },
}

impl Unanswered {
    /// The cause of a failed request to this master.
    pub fn of(master: &ExternalStatus, error: &MemberError) -> Self {
        match (error.clone(), &master.secret_ref) {
            (MemberError::Refused, Some(SecretRef { name })) => Self::WrongPassword { secret: name.clone() },
            (MemberError::Refused | MemberError::NoPassword, None) => Self::NoPassword,
            (MemberError::Fenced, _) => Self::NoRight { rights: EXTERNAL_RIGHTS },
            (MemberError::Untrusted(cause), _) if cause.contains("not valid for name") => Self::WrongName { cause },
            (MemberError::Untrusted(cause), _) => Self::Untrusted { cause },
            (cause, _) => Self::Other { cause },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_names_the_field_that_mends_it() {
        let master = |secret: Option<&str>| ExternalStatus {
            address: "vm:6379".into(),
            secret_ref: secret.map(|name| SecretRef { name: name.into() }),
            tls: None,
        };
        let text_of = |secret, error: &MemberError| Unanswered::of(&master(secret), error).to_string();
        let name = "invalid peer certificate: certificate not valid for name \"vm\"";
        let issuer = "invalid peer certificate: UnknownIssuer";
        for (secret, error, parts) in [
            (Some("users"), MemberError::Refused, ["WRONGPASS", "Secret users"]),
            (None, MemberError::Refused, ["NOAUTH", "secretRef"]),
            (None, MemberError::Fenced, ["NOPERM", "+evalsha"]),
            (None, MemberError::Untrusted(name.into()), [name, "tls.serverName"]),
            (None, MemberError::Untrusted(issuer.into()), [issuer, "tls.secretRef"]),
            (None, MemberError::Unreachable("connection refused".into()), ["unreachable", "connection refused"]),
        ] {
            let text = text_of(secret, &error);
            assert!(parts.iter().all(|part| text.contains(part)), "{error:?}: {text}");
        }
    }
}
