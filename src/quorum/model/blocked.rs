//! Pure: the obstacle to an object, a client or a certificate.

use super::tls::Unfit;

/// Why an object, a Secret of a client or a certificate is not as it has to be.
#[derive(Clone, Debug, PartialEq, displaydoc::Display)]
#[expect(missing_docs, reason = "a message shows what its fields are")]
pub enum Blocked {
    /// {kind} {name} exists and does not belong to this RedisQuorum. Delete it, or give the RedisQuorum another name
    Foreign { kind: String, name: String },
    /// {kind} {name} is being deleted
    BeingDeleted { kind: String, name: String },
    /// {kind} {name} was refused by the API server: {error}
    Refused { kind: String, name: String, error: String },
    /// Secret {name} is to be deleted and was not: {error}
    NotDeleted { name: String, error: String },
    /// Secret {name} waits until others have been deleted
    Waits { name: String },
    /// Secret {name} exists and does not belong to this RedisQuorum. Delete it, or rename the client
    ForeignCopy { name: String },
    /// Secret {name} was not written: {error}
    NotWritten { name: String, error: String },
    /// The clients {names} have no passwords. {refusal}
    NotGranted { names: String, refusal: String },
    /// Secret {name}, which spec.tls.secretRef names, does not exist. Create it with tls.crt, tls.key and ca.crt, for the names {names}, and
    /// with the label redlock-operator.io/quorum
    NoCertificate { name: String, names: String },
    /// Secret {name}, which spec.tls.secretRef names, cannot be used: {unfit}
    UnfitCertificate { name: String, unfit: Unfit },
    /// Secret {name} with the operator's certificate cannot be used: {unfit}. Delete it, and the operator makes another
    UnfitOwnCertificate { name: String, unfit: Unfit },
    /// The operator could not make an authority for certificates: {error}
    NoAuthorityMade { error: String },
    /// There is no authority for Secret {name} yet
    NoAuthority { name: String },
    /// The operator could not make a certificate: {error}
    NoCertificateMade { error: String },
}
