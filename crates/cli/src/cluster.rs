//! The connection to the API server: the kubeconfig, deadlines, and errors that name the next step.

mod args;
pub mod installation;
pub mod objects;
mod problem;
mod proxy;
pub mod target;

use std::sync::Arc;
use std::time::Duration;

use kube::api::{ListMeta, ListParams};
use kube::{Api, Client, Config, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use redlock_api::requests::{Namespaced, without_secrets};
use redlock_api::server_time::{ServerTime, USUAL_DRIFT};
use redlock_api::{GoDuration, MilliTime};
use redlock_engine::time::SystemClock;

pub use args::ClusterArgs;
pub use problem::Problem;
use problem::root_cause;

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

/// Reads the kubeconfig. A credential plugin, which can ask the user, does not run.
///
/// # Errors
/// If there is no usable configuration.
pub(crate) async fn settings(args: &ClusterArgs) -> Result<Config, Problem> {
    args.config().await.map_err(|error| unusable(&format!("{error:#}")))
}

fn unusable(cause: &str) -> Problem {
    Problem::new(
        format!("failed to find a cluster: {cause}"),
        "Name a kubeconfig with --kubeconfig or KUBECONFIG and a context of it with --context, or set --server.",
    )
}

impl Cluster {
    /// Reads the kubeconfig and gets a credential. It sends no request yet.
    ///
    /// # Errors
    /// If there is no usable configuration.
    pub async fn connect(args: &ClusterArgs) -> Result<Self, Problem> {
        let config = settings(args).await?;
        let server = config.cluster_url.to_string();
        let namespace = args.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).map_err(|error| unusable(&root_cause(&without_secrets(error))))?;
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

    /// Requests about a kind in a namespace, or in all namespaces.
    #[must_use]
    pub fn api<K: Namespaced>(&self, namespace: Option<&str>) -> Api<K> {
        match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
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
    pub async fn list<K: Namespaced>(&self, namespace: Option<&str>, labels: &str) -> Result<Vec<K>, Problem> {
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
            next = answer.metadata.continue_.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(found);
            }
        }
    }

    /// Lists all objects of a kind in all namespaces, or in the own one if this user can read only that.
    ///
    /// It also returns that namespace, or `None` for all of them.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn list_readable<K: Namespaced>(&self) -> Result<(Vec<K>, Option<&str>), Problem> {
        match self.list(None, "").await {
            Err(problem) if problem.is_forbidden() => {
                let namespace = self.namespace.as_str();
                Ok((self.list(Some(namespace), "").await?, Some(namespace)))
            }
            listed => Ok((listed?, None)),
        }
    }

    /// The API server's time. Before the first response it is the time of this machine.
    #[must_use]
    pub fn now(&self) -> MilliTime {
        let zero = MilliTime::from(jiff::Timestamp::UNIX_EPOCH);
        MilliTime::from_millis(self.time.now().0).unwrap_or(zero)
    }
}

/// One page of a list. kube's own type parses each object twice.
#[derive(Deserialize)]
struct List<K> {
    #[serde(default)]
    metadata: ListMeta,
    items: Vec<K>,
}

#[cfg(test)]
pub(crate) mod fake;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::fake::failure;
    use super::*;
    use crate::cluster::objects::QuorumObject;

    #[tokio::test]
    async fn a_user_of_one_namespace_gets_the_objects_of_that_one() {
        let cluster = Cluster::answering(|request| match request.uri().path().contains("/namespaces/shop/") {
            true => fake::list(&[json!({"metadata": {"name": "main"}})]),
            false => failure(403, "Forbidden"),
        });
        let (quorums, namespace) = cluster.list_readable::<QuorumObject>().await.unwrap();
        assert_eq!((quorums.len(), namespace), (1, Some("shop")));
        let cluster = Cluster::answering(|_| fake::list(&[]));
        assert_eq!(cluster.list_readable::<QuorumObject>().await.unwrap().1, None);
        let cluster = Cluster::answering(|_| failure(403, "Forbidden"));
        assert!(cluster.list_readable::<QuorumObject>().await.unwrap_err().is_forbidden());
    }
}
