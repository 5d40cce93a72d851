//! `redlock report`: what a report of a problem needs, in a directory. No Secret is read.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::LogParams;
use kube::{Resource, ResourceExt as _};
use serde_json::Value;

use crate::cluster::installation::{OPERATOR_LABELS, operator_namespaces};
use crate::cluster::objects::{LockObject, QuorumObject};
use crate::cluster::{Cluster, Problem, ScopeArgs, any_of};
use crate::console;
use crate::doctor;
use crate::output::format::{count, date};
use crate::output::{Answer as _, Paint};
use crate::show::picture::Picture;

mod html;
pub mod redact;

use redact::{redact, redact_text};

/// Maximum number of lines from the end of each log.
const LOG_LINES: i64 = 20_000;
const MEMBERS: &str = redlock_api::QUORUM_LABEL;

/// Arguments of `redlock report`.
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// The directory. It must not exist.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    #[command(flatten)]
    scope: ScopeArgs,
    /// Add the logs of the operator.
    #[arg(long)]
    logs: bool,
    /// Add report.html: the locks and quorums as one page for a browser.
    #[arg(long)]
    html: bool,
}

/// The state of a report while it is written.
struct Report<'a> {
    cluster: &'a Cluster,
    directory: PathBuf,
    /// The namespace, or `None` for all namespaces.
    scope: Option<String>,
    /// Lines about the contents, and about objects that were not readable.
    about: Vec<String>,
}

/// Writes the report, and prints the list of its files.
///
/// # Errors
/// If the directory exists or cannot be written, or the API server does not answer.
pub async fn run(args: ReportArgs) -> anyhow::Result<()> {
    let cluster = Cluster::connect(&args.scope.cluster).await?;
    if args.directory.exists() {
        let what = format!("{} exists", args.directory.display());
        return Err(Problem::new(what, "Name a directory that does not exist yet.").into());
    }
    fs::create_dir_all(&args.directory)?;
    let scope = args.scope.of(&cluster.namespace).map(str::to_owned);
    let mut report = Report { cluster: &cluster, directory: args.directory, scope, about: Vec::new() };
    let findings = doctor::examine(&cluster).await;
    report.write("doctor.txt", &redact_text(&findings.text(Paint::PLAIN, false)))?;
    report.objects::<QuorumObject>("redisquorums.yaml", "").await?;
    report.objects::<LockObject>("distributedlocks.yaml", "").await?;
    report.events().await?;
    report.objects::<Pod>("members.yaml", MEMBERS).await?;
    if args.html {
        report.page().await?;
    }
    let operators = match operator_namespaces(&cluster).await {
        Ok(namespaces) => namespaces,
        Err(problem) => {
            report.left_out("operator-pods-*.yaml, leases-*.yaml", &problem)?;
            BTreeSet::new()
        }
    };
    for namespace in &operators {
        report.scope = Some(namespace.clone());
        report.objects::<Pod>(&format!("operator-pods-{namespace}.yaml"), OPERATOR_LABELS).await?;
        report.objects::<Lease>(&format!("leases-{namespace}.yaml"), "").await?;
        if args.logs {
            report.logs(namespace).await?;
        }
    }
    let head = format!("redlock {} at {}\n", env!("CARGO_PKG_VERSION"), date(cluster.now()));
    let about = format!("{head}{}\n", report.about.join("\n"));
    fs::write(report.directory.join("about.txt"), &about)?;
    console::print(format_args!("{about}Read it before you pass it on: {}", report.directory.display()))?;
    Ok(())
}

impl Report<'_> {
    fn write(&mut self, name: &str, text: &str) -> anyhow::Result<()> {
        fs::write(self.directory.join(name), text)?;
        self.about.push(format!("{name}: {}", count(text.lines().count(), "line")));
        Ok(())
    }

    /// Writes all objects of a kind. If this user cannot read them, the report names the reason.
    async fn objects<K: Resource<DynamicType = ()>>(&mut self, name: &str, labels: &str) -> anyhow::Result<()> {
        match self.cluster.list_as::<K, Value>(self.scope.as_deref(), labels).await {
            Ok(objects) => self.write(name, &documents(objects)?),
            Err(problem) => self.left_out(name, &problem),
        }
    }

    /// Writes the Events about the kinds of this project and about the pods of members.
    async fn events(&mut self) -> anyhow::Result<()> {
        let is_ours = |event: &Value| {
            let about = event.get("involvedObject");
            let field =
                |name: &str| about.and_then(|about| about.get(name)).and_then(Value::as_str).unwrap_or_default();
            field("apiVersion").starts_with(redlock_api::GROUP)
                || field("kind") == "Pod" && field("name").ends_with("-0")
        };
        match self.cluster.list_as::<Event, Value>(self.scope.as_deref(), "").await {
            Ok(events) => self.write("events.yaml", &documents(events.into_iter().filter(is_ours).collect())?),
            Err(problem) => self.left_out("events.yaml", &problem),
        }
    }

    /// Writes the page for a browser, with the locks of the scope and all readable quorums.
    async fn page(&mut self) -> anyhow::Result<()> {
        let locks = self.cluster.list::<LockObject>(self.scope.as_deref(), "").await;
        let quorums = self.cluster.list_readable::<QuorumObject>().await;
        match (locks, quorums) {
            (Ok(locks), Ok((quorums, _))) => {
                let picture = Picture::of(&locks, &quorums, self.cluster.now());
                let page = html::page(&picture, &any_of(self.scope.as_deref()), env!("CARGO_PKG_VERSION"));
                self.write("report.html", &page)
            }
            (Err(problem), _) | (_, Err(problem)) => self.left_out("report.html", &problem),
        }
    }

    fn left_out(&mut self, name: &str, problem: &Problem) -> anyhow::Result<()> {
        self.about.push(format!("{name}: left out, {}", problem.what));
        Ok(())
    }

    async fn logs(&mut self, namespace: &str) -> anyhow::Result<()> {
        let pods = match self.cluster.list::<Pod>(Some(namespace), OPERATOR_LABELS).await {
            Ok(pods) => pods,
            Err(problem) => return self.left_out("logs", &problem),
        };
        let api = self.cluster.api::<Pod>(Some(namespace));
        for pod in pods.iter().map(|pod| pod.name_any()) {
            for previous in [false, true] {
                let params = LogParams { tail_lines: Some(LOG_LINES), previous, ..LogParams::default() };
                let name = format!("{pod}{}.log", if previous { ".before" } else { "" });
                let doing = format!("read the log of pod {namespace}/{pod}");
                match self.cluster.call(&doing, api.logs(&pod, &params)).await {
                    Ok(log) => self.write(&name, &redact_text(&log))?,
                    // There was no container before this one.
                    Err(problem) if previous && problem.code == Some(400) => {}
                    Err(problem) => self.left_out(&name, &problem)?,
                }
            }
        }
        Ok(())
    }
}

/// Redacts the objects, and renders them as one YAML file.
fn documents(objects: Vec<Value>) -> anyhow::Result<String> {
    let mut text = String::new();
    for object in objects {
        text += &format!("---\n{}", serde_yaml::to_string(&redact(object))?);
    }
    Ok(text)
}
