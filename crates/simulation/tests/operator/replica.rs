//! A replica of the operator: the product's own wiring on a simulated machine.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use kube::api::ListParams;
use kube::client::{ConfigExt as _, retry::RetryPolicy};
use kube::{Api, Client, ResourceExt as _};
use redlock_operator::{
    api::{DEFAULT_QUORUM_ANNOTATION, RedisQuorum},
    operator::{
        Operator,
        args::{LogFormat, OperatorArgs, Scopes},
    },
    redis_member::Machine,
};
use tower::ServiceBuilder;
use tower::retry::RetryLayer;

use crate::{
    messages::{ApiLine, Line, Port},
    plan::Plan,
    process::{Life, Main},
    users::SHOP,
};

/// The operator's namespace.
pub(crate) const NAMESPACE: &str = "redlock-system";

/// The main function of the process.
pub(crate) fn program(plan: &Plan) -> Main {
    let (jobs, limit, lease_gate) = (plan.jobs, plan.limit, plan.electors);
    let arguments = move |name: &str| OperatorArgs { jobs, lease_gate, ..arguments(name, limit) };
    Box::new(move |life| Box::pin(run(arguments(&life.name), life)))
}

fn arguments(name: &str, limit: usize) -> OperatorArgs {
    OperatorArgs {
        max_locks_per_namespace: limit,
        max_quorums_per_namespace: 0,
        namespace: NAMESPACE.to_owned(),
        pod_name: name.to_owned(),
        listen: ([127, 0, 0, 1], 0).into(),
        default_quorum: String::new(),
        default_quorum_namespace: SHOP.to_owned(),
        default_quorum_name: "q".to_owned(),
        lease: "redlock-operator".to_owned(),
        scopes: Scopes::default(),
        refused_networks: Vec::new(),
        pod_ips: Vec::new(),
        jobs: false,
        lease_gate: false,
        lease_gate_leaves_out: Vec::new(),
        log: String::new(),
        lock_metrics: false,
        log_format: LogFormat::Text,
    }
}

async fn run(mut arguments: OperatorArgs, Life { port, clock, terminated, .. }: Life) {
    if let Some((namespace, name)) = default_quorum(client(&port)).await {
        (arguments.default_quorum_namespace, arguments.default_quorum_name) = (namespace, name);
    }
    let machine = Machine { clock, network: Arc::new(Line(port.clone())) };
    let operator = Operator::new(arguments, client(&port), client(&port), machine);
    if let Err(error) = operator.work(terminated).await {
        tracing::error!(%error, "the operator ends");
    }
}

fn is_marked(quorum: &RedisQuorum) -> bool {
    quorum.annotations().get(DEFAULT_QUORUM_ANNOTATION).is_some_and(|value| value == "true")
}

/// The default quorum, from an annotation.
///
/// In the simulation users move the default with this annotation, instead of with the chart's value. Replicas that
/// start later read it.
async fn default_quorum(client: Client) -> Option<(String, String)> {
    let quorums = Api::<RedisQuorum>::all(client);
    let listed = tokio::time::timeout(Duration::from_secs(1), quorums.list(&ListParams::default())).await.ok()?.ok()?;
    let mut marked = listed.items.into_iter().filter(is_marked).map(|quorum| {
        let name = quorum.name_any();
        (quorum.namespace().unwrap_or_default(), name)
    });
    marked.next_back()
}

/// Builds a client like `Client::try_default`, with another transport.
///
/// It keeps the default retries, because they change the effects of an overload.
fn client(port: &Arc<Port>) -> Client {
    let config = kube::Config::new(Uri::from_static("http://kubernetes"));
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(RetryLayer::new(RetryPolicy::server_retry()))
        .service(ApiLine(port.clone()));
    Client::new(service, "default")
}
