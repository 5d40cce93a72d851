//! `redlock version`: the versions of this command and of the operators.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::cluster::installation::{OPERATOR_LABELS, operator_namespaces};
use crate::cluster::{Cluster, ClusterArgs, Problem};
use crate::output::format::and;
use crate::output::{Answer, OutputArgs, Paint, Printer};

/// The version of this command.
const OWN: &str = env!("CARGO_PKG_VERSION");

/// Which cluster, if any.
#[derive(Debug, clap::Args)]
pub struct VersionArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Print the version of this command only, without a request to the API server.
    #[arg(long)]
    client: bool,
}

/// The images of the operators in one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Operator {
    namespace: String,
    images: Vec<String>,
}

/// The versions of the operators, or the reason why they are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Versions {
    NotAsked,
    Unknown(String),
    Found(Vec<Operator>),
}

/// The images of these pods' first containers.
pub(crate) fn images(pods: &[Pod]) -> Vec<String> {
    let images = pods.iter().filter_map(|pod| pod.spec.as_ref()?.containers.first()?.image.clone());
    images.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The tag of an image. A digest is not a part of it.
pub(crate) fn tag(image: &str) -> Option<&str> {
    let name = image.split_once('@').map_or(image, |(name, _)| name);
    // A colon before a path separates a port of the registry, not a tag.
    name.rsplit_once(':').map(|(_, tag)| tag).filter(|tag| !tag.contains('/'))
}

impl Operator {
    fn versions(&self) -> Vec<String> {
        self.images.iter().map(|image| tag(image).unwrap_or(image).to_owned()).collect()
    }
}

impl Answer for Versions {
    fn value(&self) -> Value {
        let one = |operator: &Operator| json!({"namespace": operator.namespace, "versions": operator.versions(), "images": operator.images});
        match self {
            Self::NotAsked => json!({"client": OWN}),
            Self::Unknown(why) => json!({"client": OWN, "message": why}),
            Self::Found(all) => json!({"client": OWN, "operators": all.iter().map(one).collect::<Vec<_>>()}),
        }
    }

    fn text(&self, _: Paint, _: bool) -> String {
        let client = format!("client    {OWN}\n");
        match self {
            Self::NotAsked => client,
            Self::Unknown(why) => format!("{client}operator  not known: {why}\n"),
            Self::Found(all) if all.is_empty() => format!("{client}operator  none serves a RedisQuorum\n"),
            Self::Found(all) => all.iter().fold(client, |text, operator| {
                format!("{text}operator  {} in namespace {}\n", and(&operator.versions()), operator.namespace)
            }),
        }
    }

    fn names(&self) -> Vec<String> {
        vec![OWN.to_owned()]
    }
}

/// Prints the versions. A missing answer of the API server is not a failure.
///
/// # Errors
/// If the output cannot be written.
pub async fn run(args: VersionArgs) -> anyhow::Result<()> {
    let versions = match args.client {
        true => Versions::NotAsked,
        false => operators(&args.cluster).await.map_or_else(|problem| Versions::Unknown(problem.what), Versions::Found),
    };
    Printer::new(args.output).show(&versions)
}

async fn operators(args: &ClusterArgs) -> Result<Vec<Operator>, Problem> {
    let cluster = Cluster::connect(args).await?;
    let mut found = Vec::new();
    for namespace in operator_namespaces(&cluster).await? {
        let pods: Vec<Pod> = cluster.list(Some(&namespace), OPERATOR_LABELS).await?;
        found.push(Operator { images: images(&pods), namespace });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_has_the_versions_of_its_images() {
        let pod = |image: &str| -> Pod {
            serde_json::from_value(json!({"spec": {"containers": [{"name": "operator", "image": image}]}})).unwrap()
        };
        let pods = ["ghcr.io/r/o:0.1.0", "ghcr.io/r/o:0.1.0", "r:5000/o:0.2.0@sha256:ab"].map(pod);
        let operator = Operator { namespace: "redlock-system".into(), images: images(&pods) };
        assert_eq!(operator.versions(), ["0.1.0", "0.2.0"]);
        let versions = Versions::Found(vec![operator]);
        let text = format!("client    {OWN}\noperator  0.1.0 and 0.2.0 in namespace redlock-system\n");
        assert_eq!(versions.text(Paint::PLAIN, false), text);
        assert_eq!(versions.value()["operators"][0]["versions"], json!(["0.1.0", "0.2.0"]));
        assert_eq!([tag("r:5000/o"), tag("o")], [None, None]);
    }

    #[test]
    fn a_cluster_that_does_not_answer_is_no_failure() {
        let unknown = Versions::Unknown("no answer".into());
        assert!(unknown.text(Paint::PLAIN, false).ends_with("operator  not known: no answer\n"));
        assert_eq!(unknown.value()["message"], "no answer");
        assert_eq!(Versions::NotAsked.value(), json!({"client": OWN}));
    }
}
