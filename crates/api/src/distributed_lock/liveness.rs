//! The health check of a holder.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use crate::schema::{add_rules, matching, rule};

/// Health check of the holder. Set exactly one of `httpGet` and `tcpSocket`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = liveness_rules)]
pub struct Liveness {
    /// HTTP request that must be answered with a status from 200 to 399.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HttpGet>,
    /// TCP connection that must be accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<TcpSocket>,
    /// Number of failures in a row after which the lock is no longer renewed.
    #[schemars(range(min = 1, max = 100))]
    pub failure_threshold: i32,
}

impl Default for Liveness {
    fn default() -> Self {
        Self { http_get: None, tcp_socket: None, failure_threshold: 3 }
    }
}

fn liveness_rules(schema: &mut Schema) {
    add_rules(
        schema,
        [rule(".httpGet", "has(self.httpGet) != has(self.tcpSocket)", "set exactly one of httpGet and tcpSocket")],
    );
}

/// HTTP request to the pod of the holder.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct HttpGet {
    /// Path, for example `/healthz`.
    #[schemars(length(min = 1, max = 1024), extend("x-kubernetes-validations" = matching("^/", "begin the path with a slash, e.g. /healthz")))]
    pub path: String,
    /// Port number.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

/// TCP connection to the pod of the holder.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TcpSocket {
    /// Port number.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}
