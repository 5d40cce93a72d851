//! The contents of a pod's volumes.

use std::collections::BTreeMap;

use hyper::body::Bytes;
use k8s_openapi::ByteString;
use serde_json::Value;

use super::super::api::{ApiServer, Kind};

/// The files of all Secret volumes, by volume and path.
///
/// Returns `None` while a Secret or a key is missing.
pub(super) fn files(api: &ApiServer, namespace: &str, spec: &Value) -> Option<BTreeMap<(String, String), Bytes>> {
    let mut files = BTreeMap::new();
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        let (Some(name), Some(secret)) = (volume["name"].as_str(), volume["secret"]["secretName"].as_str()) else {
            continue;
        };
        let secret = api.get(Kind::Secret, namespace, secret)?;
        let content = |key: &str| -> Option<Bytes> {
            let text = secret.value["data"].get(key)?.clone();
            serde_json::from_value::<ByteString>(text).ok().map(|bytes| Bytes::from(bytes.0))
        };
        match volume["secret"]["items"].as_array() {
            Some(items) => {
                for item in items {
                    let (key, path) = (item["key"].as_str()?, item["path"].as_str()?);
                    files.insert((name.to_owned(), path.to_owned()), content(key)?);
                }
            }
            None => {
                for key in secret.value["data"].as_object().into_iter().flat_map(|data| data.keys()) {
                    files.insert((name.to_owned(), key.clone()), content(key)?);
                }
            }
        }
    }
    Some(files)
}
