//! The connection to the API server: the kubeconfig, deadlines, and errors that name the next step.

mod args;
pub mod installation;
pub mod objects;
mod proxy;
pub mod target;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::api::ListParams;
use kube::{Client, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use redlock_api::server_time::{ServerTime, USUAL_DRIFT};
use redlock_api::{GoDuration, MilliTime};
use redlock_engine::time::SystemClock;

pub use args::ClusterArgs;

/// Timeout of one request, unless `--request-timeout` sets another one.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of objects in one page of a list, as in kubectl.
const PAGE: u32 = 500;

/// Which cluster, and whether one namespace of it is meant or all.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ScopeArgs {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Look at all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
}

impl ScopeArgs {
    /// This namespace, or `None` for all of them.
    #[must_use]
    pub fn of<'a>(&self, namespace: &'a str) -> Option<&'a str> {
        (!self.all_namespaces).then_some(namespace)
    }
}

/// The namespaces of a search, in words.
#[must_use]
pub fn any_of(scope: Option<&str>) -> String {
    scope.map_or("any namespace".to_owned(), |namespace| format!("namespace {namespace}"))
}

/// A failure, and the next step for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The failure, as a fragment of a sentence.
    pub what: String,
    /// The next step, as a sentence. It is empty if there is none.
    pub next: String,
    /// The code of the API server's answer.
    pub code: Option<u16>,
}

impl Problem {
    /// A failure that is not a response of the API server.
    pub fn new(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { what: what.into(), next: next.into(), code: None }
    }

    /// Whether the API server forbids the request to this user.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.code == Some(403)
    }

    /// Whether the object or its kind does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code == Some(404)
    }

    /// The problem for a failed request.
    fn of_request(doing: &str, server: &str, error: &kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            let cause = root_cause(error);
            let next = match cause.contains("certificate") {
                true => "Name the file with the authority of this API server: --certificate-authority FILE".to_owned(),
                false => format!("Check that {server} is the right API server and can be reached: redlock doctor"),
            };
            return Self::new(format!("failed to {doing}: {cause}"), next);
        };
        let next = match status.code {
            401 => "Log in again: the API server does not accept the credentials of this context.",
            403 => "Ask an administrator for the role that docs/command.md names for this command.",
            404 if status.details.as_ref().is_none_or(|details| details.name.is_empty()) => {
                "The kind is not installed. Install the chart redlock-operator, or apply its CRDs: redlock crds"
            }
            409 => "The object changed meanwhile. Run the command again.",
            429 | 500..=599 => "The API server is busy or starts. Run the command again in a minute.",
            _ => "",
        };
        let message = if status.message.is_empty() { &status.reason } else { &status.message };
        Self { what: format!("failed to {doing}: {message}"), next: next.to_owned(), code: Some(status.code) }
    }
}

/// The innermost error. The errors that kube wraps around it add no information.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if self.next.is_empty() { Ok(()) } else { write!(f, "\nnext: {}", self.next) }
    }
}

impl std::error::Error for Problem {}

/// The cluster of the kubeconfig or of the pod.
pub struct Cluster {
    /// The client of the API server. Each response updates `time`.
    pub client: Client,
    /// The namespace of `--namespace`, or else of the context.
    pub namespace: String,
    /// The namespace of `--namespace`, if it is set.
    pub named_namespace: Option<String>,
    /// Address of the API server.
    pub server: String,
    /// Timeout of one request. Each page of a list is one request.
    timeout: Duration,
    time: Arc<ServerTime>,
}

impl Cluster {
    /// Reads the kubeconfig. It sends no request yet.
    ///
    /// # Errors
    /// If there is no usable configuration.
    pub async fn connect(args: &ClusterArgs) -> Result<Self, Problem> {
        let unusable = |error: anyhow::Error| {
            Problem::new(
                format!("failed to find a cluster: {error:#}"),
                "Name a kubeconfig with --kubeconfig or KUBECONFIG and a context of it with --context, or set --server.",
            )
        };
        let config = args.config().await.map_err(unusable)?;
        let server = config.cluster_url.to_string();
        let namespace = args.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).map_err(|error| unusable(error.into()))?;
        let time = Arc::new(ServerTime::new(Arc::new(SystemClock), USUAL_DRIFT));
        let client = time.observe(client);
        let timeout = args.request_timeout.map_or(REQUEST_TIMEOUT, GoDuration::get);
        Ok(Self { client, namespace, named_namespace: args.namespace.clone(), server, timeout, time })
    }

    /// The API server's clock, from the times in its responses.
    #[must_use]
    pub fn server_time(&self) -> Arc<ServerTime> {
        Arc::clone(&self.time)
    }

    /// Waits for one request, with a timeout. In an error, `doing` follows the words "failed to".
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn call<T>(
        &self,
        doing: &str,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Problem> {
        match timeout(self.timeout, request).await {
            Ok(answer) => answer.map_err(|error| Problem::of_request(doing, &self.server, &error)),
            Err(_elapsed) => Err(Problem::new(
                format!("failed to {doing}: no answer within {:?}", self.timeout),
                format!("Check the way to the API server {}: redlock doctor", self.server),
            )),
        }
    }

    /// Lists all objects of a kind in a namespace, or in all namespaces, page by page.
    ///
    /// It parses only the fields that `K` has.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn list<K>(&self, namespace: Option<&str>, labels: &str) -> Result<Vec<K>, Problem>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.list_as::<K, K>(namespace, labels).await
    }

    /// Lists all objects of the kind `K`, and parses them as `T`.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn list_as<K, T>(&self, namespace: Option<&str>, labels: &str) -> Result<Vec<T>, Problem>
    where
        K: Resource<DynamicType = ()>,
        T: DeserializeOwned,
    {
        let (plural, mut found, mut next) = (K::plural(&()), Vec::new(), None::<String>);
        let place = namespace.map_or("all namespaces".to_owned(), |namespace| format!("namespace {namespace}"));
        loop {
            let mut page = ListParams::default().limit(PAGE);
            if let Some(token) = &next {
                page = page.continue_token(token);
            }
            if !labels.is_empty() {
                page = page.labels(labels);
            }
            let request = kube::core::Request::new(K::url_path(&(), namespace)).list(&page);
            let request = request.map_err(|error| Problem::new(format!("failed to list {plural}: {error}"), ""))?;
            let answer: List<T> = self.call(&format!("list {plural} in {place}"), self.client.request(request)).await?;
            found.extend(answer.items);
            next = answer.metadata.token.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(found);
            }
        }
    }

    /// The API server's time. Before the first response it is the time of this machine.
    #[must_use]
    pub fn now(&self) -> MilliTime {
        let zero = MilliTime::from(jiff::Timestamp::UNIX_EPOCH);
        MilliTime::from_millis(self.time.now().0).unwrap_or(zero)
    }

    /// The API server's clock, as its responses show it.
    #[must_use]
    pub fn time(&self) -> &ServerTime {
        &self.time
    }
}

/// One page of a list. kube's own type parses each object twice.
#[derive(Deserialize)]
struct List<K> {
    #[serde(default)]
    metadata: ListMeta,
    items: Vec<K>,
}

#[derive(Default, Deserialize)]
struct ListMeta {
    #[serde(rename = "continue")]
    token: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(code: u16, details: serde_json::Value) -> Problem {
        let status = json!({"status": "Failure", "message": "no", "reason": "R", "code": code, "details": details});
        let error = kube::Error::Api(serde_json::from_value(status).unwrap());
        Problem::of_request("list locks", "https://cluster:6443", &error)
    }

    #[test]
    fn an_error_says_what_to_do_next() {
        let forbidden = refused(403, json!(null));
        assert!(forbidden.is_forbidden());
        assert_eq!(
            forbidden.to_string(),
            "failed to list locks: no\nnext: Ask an administrator for the role that docs/command.md names for this command."
        );
        assert!(refused(404, json!({})).next.contains("redlock crds"), "the kind is missing");
        assert_eq!(refused(404, json!({"name": "a"})).next, "", "the object is missing");
        assert_eq!(refused(400, json!(null)).to_string(), "failed to list locks: no");
        let unreachable = kube::Error::Service(std::io::Error::other("connection refused").into());
        let unreachable = Problem::of_request("list locks", "https://cluster:6443", &unreachable);
        assert!(unreachable.to_string().contains("connection refused"), "{unreachable}");
        assert!(unreachable.next.contains("https://cluster:6443"), "{unreachable}");
    }
}
