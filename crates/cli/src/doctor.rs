//! `redlock doctor`: checks an installation, and names the remedy for each fault.

use std::collections::BTreeSet;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::cluster::installation::{self, OPERATOR_LABELS};
use crate::cluster::objects::{LockObject, QuorumObject};
use crate::cluster::{Cluster, ClusterArgs, Problem};
use crate::output::format::count;
use crate::output::{Answer, OutputArgs, Paint, Printer, Tone};
use redlock_api::{self, GROUP, VERSION};
use redlock_engine::time::{Clock as _, SystemClock};

pub mod checks;
mod jobs;
mod quorums;

use checks::{Finding, Right, State};

/// The cluster to check, and the format of the output.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The findings of all checks.
pub struct Findings(Vec<Finding>);

impl Findings {
    /// Whether no finding is a fault. A warning is not a fault.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.0.iter().all(|finding| finding.state != State::Broken)
    }
}

impl Answer for Findings {
    fn value(&self) -> Value {
        let one = |finding: &Finding| json!({"about": finding.about, "state": format!("{:?}", finding.state), "text": finding.text, "mend": finding.mend});
        json!({"well": self.is_well(), "items": self.0.iter().map(one).collect::<Vec<_>>()})
    }

    fn text(&self, paint: Paint, _: bool) -> String {
        let mut text = String::new();
        for finding in &self.0 {
            let (mark, tone) = match finding.state {
                State::Fine => ("ok", Tone::Good),
                State::Warning => ("warn", Tone::Waiting),
                State::Broken => ("bad", Tone::Bad),
                State::Unknown => ("?", Tone::Dim),
            };
            text += &format!("{}{:<14}{}\n", paint.tone(tone, &format!("{mark:<6}")), finding.about, finding.text);
            if let Some(mend) = &finding.mend {
                text += &format!("{:<20}{} {mend}\n", "", paint.tone(Tone::Title, "mend:"));
            }
        }
        let number = |state| self.0.iter().filter(|finding| finding.state == state).count();
        let (broken, warnings) = (number(State::Broken), number(State::Warning));
        let all = if broken + warnings == 0 {
            paint.tone(Tone::Good, "All is well.")
        } else {
            format!("{} to mend, {}.", broken, count(warnings, "warning"))
        };
        text + "\n" + &all + "\n"
    }

    fn names(&self) -> Vec<String> {
        self.0.iter().filter(|finding| finding.state == State::Broken).map(|finding| finding.about.clone()).collect()
    }
}

/// Runs all checks and prints the findings. Returns whether there is no fault.
///
/// # Errors
/// If there is no usable kubeconfig. An API server that does not answer is a finding, not an error.
pub async fn run(args: DoctorArgs) -> anyhow::Result<bool> {
    let cluster = Cluster::connect(&args.cluster).await?;
    let findings = examine(&cluster).await;
    Printer::new(args.output).show(&findings)?;
    Ok(findings.is_well())
}

/// Runs all checks that the rights of this user allow.
pub async fn examine(cluster: &Cluster) -> Findings {
    let server = match cluster.call("ask for the version", cluster.client.apiserver_version()).await {
        Ok(version) => checks::server(&cluster.server, &version.major, &version.minor),
        Err(problem) => return Findings(vec![checks::problem("API server", problem)]),
    };
    let mut found = vec![server, clock(cluster)];
    let (kinds, rights, quorums) = (kinds(cluster), rights(cluster), cluster.list_readable::<QuorumObject>());
    let (kinds, rights, quorums) = futures::join!(kinds, rights, quorums);
    found.extend(kinds);
    found.extend(rights);
    match quorums {
        Ok((quorums, namespace)) => {
            found.extend(operators(cluster, &quorums, namespace.is_none()).await);
            found.extend(quorums::quorums(&quorums, cluster.now()));
        }
        Err(problem) => found.push(checks::problem("quorums", problem)),
    }
    match cluster.list_readable::<LockObject>().await {
        Ok((locks, _)) => {
            found.push(checks::locks(&locks, cluster.now()));
            found.extend(jobs(cluster, &locks).await);
        }
        Err(problem) => found.push(checks::problem("locks", problem)),
    }
    Findings(found)
}

fn clock(cluster: &Cluster) -> Finding {
    let clock = SystemClock;
    let now = clock.boottime();
    let span = cluster.server_time().offset(now).map(|api| (api.earliest(now).floor().0, api.latest(now).ceil().0));
    checks::clock(clock.wall().0, span)
}

/// Checks the fields of the CustomResourceDefinitions, or their names if the fields are not readable.
async fn kinds(cluster: &Cluster) -> Vec<Finding> {
    let installed = Api::<CustomResourceDefinition>::all(cluster.client.clone());
    let mut found = Vec::new();
    for ours in redlock_api::crds() {
        let name = ours.name_any();
        match cluster.call(&format!("read CRD {name}"), installed.get(&name)).await {
            Ok(theirs) => found.push(checks::definition(&name, &ours, &theirs)),
            Err(problem) if problem.is_forbidden() => return vec![served(cluster).await],
            Err(problem) if problem.is_not_found() => found.push(checks::not_installed(&name)),
            Err(problem) => found.push(checks::problem("kinds", problem)),
        }
    }
    found
}

async fn served(cluster: &Cluster) -> Finding {
    let version = format!("{GROUP}/{VERSION}");
    match cluster.call("ask for the kinds", cluster.client.list_api_group_resources(&version)).await {
        Ok(kinds) => checks::served(&kinds.resources.iter().map(|kind| kind.name.clone()).collect::<Vec<_>>()),
        Err(problem) if problem.is_not_found() => checks::not_installed(&version),
        Err(problem) => checks::problem("kinds", problem),
    }
}

/// Checks the rights of this user in the namespace.
async fn rights(cluster: &Cluster) -> Vec<Finding> {
    let reviews = Api::<SelfSubjectAccessReview>::all(cluster.client.clone());
    let ask = async |right: &'static Right| {
        let attributes = ResourceAttributes {
            verb: Some(right.verb.into()),
            group: Some(right.group.into()),
            resource: Some(right.resource.into()),
            subresource: right.subresource.map(Into::into),
            namespace: Some(cluster.namespace.clone()),
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let answer = cluster.call("list your rights", reviews.create(&PostParams::default(), &review)).await?;
        Ok::<_, Problem>((right, answer.status.is_some_and(|status| status.allowed)))
    };
    match futures::future::try_join_all(checks::RIGHTS.iter().map(ask)).await {
        Ok(answers) => checks::rights(&answers, &cluster.namespace),
        Err(problem) => vec![checks::problem("rights", problem)],
    }
}

/// Checks the Jobs that need a lock, if this user can list Jobs.
async fn jobs(cluster: &Cluster, locks: &[LockObject]) -> Option<Finding> {
    match cluster.list_readable::<Job>().await {
        Ok((jobs, _)) => jobs::jobs(&jobs, locks, cluster.now()),
        Err(problem) if problem.is_forbidden() => None,
        Err(problem) => Some(checks::problem("Jobs", problem)),
    }
}

/// Checks the leader and the versions of each operator.
async fn operators(cluster: &Cluster, quorums: &[QuorumObject], can_read_all: bool) -> Vec<Finding> {
    let operators: BTreeSet<_> = quorums.iter().filter_map(|quorum| quorum.status.operator.clone()).collect();
    if operators.is_empty() {
        return vec![checks::no_operator(quorums.len(), can_read_all)];
    }
    let mut found = Vec::new();
    for operator in operators {
        match installation::leader(cluster, &operator).await {
            Ok(leader) => found.push(checks::leader(&operator, &leader)),
            Err(problem) => found.push(checks::problem("operator", problem)),
        }
        let namespace = operator.split_once('/').map_or("", |(namespace, _)| namespace);
        match cluster.list::<Pod>(Some(namespace), OPERATOR_LABELS).await {
            Ok(pods) => found.push(checks::operator_pods(namespace, &pods, env!("CARGO_PKG_VERSION"))),
            Err(problem) if problem.is_forbidden() => {}
            Err(problem) => found.push(checks::problem("operator", problem)),
        }
    }
    found
}
