//! The Secrets of the operator's own authority and certificate.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use super::{opaque, owned, quorum_labels};
use crate::quorum::model::plan::Plan;
use crate::quorum::model::tls::authority::Pair;
use crate::quorum::model::tls::{AUTHORITIES_KEY, CERTIFICATE_KEY, Data, PRIVATE_KEY_KEY};

/// A Secret of this name with this content.
pub fn secret(plan: &Plan, name: &str, data: Data) -> Secret {
    opaque(owned(plan, name.to_owned(), quorum_labels(plan)), data)
}

/// A certificate in cert-manager's layout.
pub fn data(made: &Pair, trusted: &str) -> Data {
    let entry = |key: &str, text: &str| (key.to_owned(), ByteString(text.as_bytes().to_vec()));
    [entry(CERTIFICATE_KEY, &made.certificate), entry(PRIVATE_KEY_KEY, &made.key), entry(AUTHORITIES_KEY, trusted)]
        .into()
}
