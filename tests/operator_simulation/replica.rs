//! A replica of the operator: the product's own wiring, on a simulated machine.

use std::sync::Arc;

use http::Uri;
use kube::Client;
use kube::client::{ConfigExt as _, retry::RetryPolicy};
use redlock_operator::operator::Operator;
use redlock_operator::operator::args::{LogFormat, OperatorArgs};
use redlock_operator::redis_member::Machine;
use tower::ServiceBuilder;
use tower::retry::RetryLayer;

use crate::hub::{ApiLine, Line, Port};
use crate::process::{Life, Main};

/// Where the operator runs.
pub(crate) const NAMESPACE: &str = "redlock-system";

/// The program with these arguments.
pub(crate) fn program(name: &str) -> Main {
    let name = name.to_owned();
    Box::new(move |life| Box::pin(run(arguments(&name), life)))
}

fn arguments(name: &str) -> OperatorArgs {
    OperatorArgs {
        namespace: NAMESPACE.to_owned(),
        pod_name: name.to_owned(),
        listen: ([127, 0, 0, 1], 0).into(),
        default_quorum: String::new(),
        default_quorum_name: "main".to_owned(),
        log: String::new(),
        log_format: LogFormat::Text,
    }
}

async fn run(arguments: OperatorArgs, Life { port, clock, terminated }: Life) {
    let machine = Machine { clock, network: Arc::new(Line(port.clone())) };
    let operator = Operator::new(arguments, client(&port), client(&port), machine);
    if let Err(error) = operator.work(terminated).await {
        tracing::error!(%error, "the operator ends");
    }
}

/// As `Client::try_default` makes it, but for the transport: with the default retries, or overload would look different.
fn client(port: &Arc<Port>) -> Client {
    let config = kube::Config::new(Uri::from_static("http://kubernetes"));
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(RetryLayer::new(RetryPolicy::server_retry()))
        .service(ApiLine(port.clone()));
    Client::new(service, "default")
}
