//! Measures writes to the API server from a client without network faults.
//!
//! On a busy machine a validity can be published late without any fault. This measurement can explain that.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::sleep;

use super::history::{History, now};
use crate::{bench::Bench, checker::Fault, spans::millis};

/// The name of a slow write in the report.
pub(crate) const SLOW: &str = "the API server was slow";
/// A slower write is recorded.
///
/// A validity is published every second, and its write is one of several steps.
pub(crate) const LIMIT: Duration = Duration::from_millis(400);
const PAUSE: Duration = Duration::from_millis(250);

/// Writes repeatedly.
pub(crate) async fn watch(bench: Bench, history: &History) {
    let maps = bench.api::<ConfigMap>();
    for number in 0_u64.. {
        let from = now();
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}, "data": {"n": number.to_string()}});
        let written = maps.patch("probe", &PatchParams::apply("chaos").force(), &Patch::Apply(object)).await;
        let until = now();
        if written.is_err() || until - from > millis(LIMIT) {
            history.fault(Fault { kind: SLOW, from, until, api_server: true, ..Fault::default() });
        }
        sleep(PAUSE).await;
    }
}
