//! Makes endpoints from the URLs of members.

use std::collections::BTreeSet;
#[cfg(feature = "tls")]
use std::sync::Arc;

use super::error::BuildError;
use super::url::MemberUrl;
use crate::redlock::MemberName;
use crate::voting::{Endpoint, Secret};

/// The TLS configuration of members, if they use TLS.
#[derive(Clone, Debug, Default)]
pub(super) struct TlsSettings {
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Arc<rustls::ClientConfig>>,
}

/// Makes one endpoint for each URL, named after its address.
///
/// Addresses must differ.
pub(super) fn endpoints(urls: &[MemberUrl], trust: &TlsSettings) -> Result<Vec<(MemberName, Endpoint)>, BuildError> {
    if urls.is_empty() || urls.len() > 64 {
        return Err(BuildError::Members);
    }
    let addresses: BTreeSet<_> = urls.iter().map(|url| &url.address).collect();
    if addresses.len() < urls.len() {
        return Err(BuildError::SameAddress);
    }
    let endpoint = |(index, url): (usize, &MemberUrl)| {
        Ok((MemberName::from(url.address.as_str()), trust.endpoint(index, url.clone())?))
    };
    urls.iter().enumerate().map(endpoint).collect()
}

/// Parses all URLs, or returns the first error.
pub(super) fn parsed<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Vec<MemberUrl>, BuildError> {
    let url = |(index, url): (usize, U)| MemberUrl::parse(url.as_ref()).map_err(|error| BuildError::Url(index, error));
    urls.into_iter().enumerate().map(url).collect()
}

impl TlsSettings {
    fn endpoint(&self, index: usize, url: MemberUrl) -> Result<Endpoint, BuildError> {
        #[cfg(feature = "tls")]
        let tls = match (&self.tls, url.tls) {
            (_, false) => None,
            (None, true) => return Err(BuildError::NoTls),
            (Some(config), true) => {
                let client = crate::voting::TlsClient::new(Arc::clone(config), &url.host);
                Some(client.map_err(|_| BuildError::ServerName(index))?)
            }
        };
        #[cfg(not(feature = "tls"))]
        if url.tls {
            let _ = (self, index, url.host);
            return Err(BuildError::NoTls);
        }
        Ok(Endpoint {
            address: url.address,
            username: url.username,
            password: Secret::new(url.password),
            #[cfg(feature = "tls")]
            tls,
        })
    }
}
