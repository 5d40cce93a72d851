//! A Prometheus of Debian beside the control plane, with the chart's alerts.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, ensure};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{CHART, control_plane_process::ControlPlaneProcess};
use crate::{bench::Bench, operators, poll};

/// The limit until an alert has fired, and until it has cleared.
const ALERTED: Duration = Duration::from_secs(150);
/// The limit for the first evaluation after a scrape. The interval is one second.
const FIRST_EVALUATIONS: Duration = Duration::from_secs(15);
const PORT: u16 = 9_390;

/// A process that scrapes the replicas each second.
///
/// It ends when this value is dropped.
pub(super) struct Prometheus {
    bench: Bench,
    process: ControlPlaneProcess,
}

impl Prometheus {
    /// Starts it, and waits until it has scraped each replica.
    pub(super) async fn start(bench: &Bench) -> anyhow::Result<Self> {
        let process = ControlPlaneProcess::prepare(bench, "prometheus")?;
        let prometheus = Self { bench: bench.clone(), process };
        std::fs::write(prometheus.file("rules.yaml"), rules()?)?;
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [prometheus.file("rules.yaml")],
            "scrape_configs": [{"job_name": "redlock-operator", "file_sd_configs": [{
                "files": [prometheus.file("targets.json")], "refresh_interval": "1s"}]}],
        });
        std::fs::write(prometheus.file("prometheus.yaml"), config.to_string())?;
        prometheus.write_targets().await?;
        let options = "--config.file=prometheus.yaml --storage.tsdb.path=data --log.level=warn";
        let command = format!("prometheus {options} --web.listen-address=127.0.0.1:{PORT}");
        prometheus.process.start(&command).await?;
        let replicas = operators::pods(&bench.cluster).await?.len();
        let scraped = async || {
            let up = prometheus.query("up == 1").await.unwrap_or_default();
            Ok((up.len() == replicas).then_some(()))
        };
        poll::until(ALERTED, "Prometheus has scraped each replica", scraped).await?;
        Ok(prometheus)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.process.directory.join(name)
    }

    /// Writes the current replicas as targets, with the labels that a PodMonitor would add.
    async fn write_targets(&self) -> anyhow::Result<()> {
        let cluster = &self.bench.cluster;
        let target = |pod: k8s_openapi::api::core::v1::Pod| {
            let ip = pod.status.as_ref()?.pod_ip.clone()?;
            let labels = json!({"namespace": cluster.operator_namespace, "pod": pod.name_any()});
            Some(json!({"targets": [format!("{ip}:8080")], "labels": labels}))
        };
        let targets: Vec<_> = operators::pods(cluster).await?.into_iter().filter_map(target).collect();
        // The rename is atomic, because Prometheus can read the file at any time.
        std::fs::write(self.file("targets.new"), Value::from(targets).to_string())?;
        Ok(std::fs::rename(self.file("targets.new"), self.file("targets.json"))?)
    }

    /// Gets a path of its HTTP API.
    async fn get(&self, path: &str, query: &str) -> anyhow::Result<Value> {
        let script = format!(
            "curl --silent --max-time 5 --get --data-urlencode \"query=$(cat <<'END'\n{query}\nEND\n)\" http://127.0.0.1:{PORT}/api/v1/{path}"
        );
        let answer: Value = serde_json::from_str(&self.bench.cluster.faults.beside_the_control_plane(&script).await?)?;
        ensure!(answer["status"] == "success", "{query}: {answer}");
        Ok(answer["data"].clone())
    }

    /// The series that a query returns now.
    pub(super) async fn query(&self, query: &str) -> anyhow::Result<Vec<Value>> {
        let data = self.get("query", query).await?;
        data["result"].as_array().cloned().context("no vector")
    }

    async fn fires(&self, alert: &str, label: Option<&str>) -> anyhow::Result<bool> {
        self.write_targets().await?;
        let alerts = self.get("alerts", "").await?["alerts"].as_array().cloned().unwrap_or_default();
        let is_it = |one: &Value| {
            one["state"] == "firing"
                && one["labels"]["alertname"] == alert
                && label.is_none_or(|label| one["labels"].to_string().contains(label))
        };
        Ok(alerts.iter().any(is_it))
    }

    /// Waits until the alert fires, with this text in its labels.
    pub(super) async fn until_fires(&self, alert: &str, label: Option<&str>) -> anyhow::Result<()> {
        let fires = async || Ok(self.fires(alert, label).await?.then_some(()));
        poll::until(ALERTED, &format!("{alert} fires"), fires).await
    }

    /// Waits until the alert no longer fires.
    pub(super) async fn until_clears(&self, alert: &str, label: Option<&str>) -> anyhow::Result<()> {
        self.clears_within(ALERTED, alert, label).await
    }

    /// Waits until the evaluation after the first scrape, because one evaluation without a scrape fires an alert about absence.
    pub(super) async fn clears_after_first_scrape(&self, alert: &str) -> anyhow::Result<()> {
        self.clears_within(FIRST_EVALUATIONS, alert, None).await
    }

    async fn clears_within(&self, limit: Duration, alert: &str, label: Option<&str>) -> anyhow::Result<()> {
        let cleared = async || Ok((!self.fires(alert, label).await?).then_some(()));
        poll::until(limit, &format!("{alert} clears"), cleared).await
    }

    /// Checks that the alert does not fire now.
    pub(super) async fn is_silent(&self, alert: &str) -> anyhow::Result<()> {
        ensure!(!self.fires(alert, None).await?, "{alert} fires before its fault");
        Ok(())
    }
}

/// The alerts of the chart, with seconds instead of minutes as waits.
fn rules() -> anyhow::Result<String> {
    let text = std::fs::read_to_string(PathBuf::from(CHART).join("files/alerts.yaml"))?;
    let short = |line: &str| match line.trim_start().starts_with("for: ") {
        true => "    for: 1s".to_owned(),
        false => line.replace("[10m]", "[20s]").replace("> 600", "> 5"),
    };
    Ok(text.lines().map(|line| short(line) + "\n").collect())
}
