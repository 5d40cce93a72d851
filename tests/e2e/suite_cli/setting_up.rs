//! Checks of an installation, reports, and the program on a machine.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::ListParams};
use redlock_operator::api::QUORUM_LABEL;

use super::support::{fails, json, prints, redlock};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim},
};

/// A folder of this test on this machine.
fn folder(bench: &Bench) -> String {
    std::env::temp_dir().join(&bench.namespace).display().to_string()
}

pub(crate) async fn a_doctor_finds_a_healthy_installation_well(bench: Bench) -> anyhow::Result<()> {
    let ran = redlock(&bench, &["doctor", "-o", "json"]).await?;
    let found: serde_json::Value = serde_json::from_str(&ran.out).with_context(|| ran.err)?;
    let items = found["items"].as_array().context("no items")?;
    ensure!((ran.code == 0) == (found["well"] == true), "{} with {found}", ran.code);
    for about in ["API server", "clock", "kinds", "rights", "operator", "quorum", "locks"] {
        ensure!(items.iter().any(|item| item["about"] == about), "nothing about {about}: {found}");
        let is_bad = |item: &&serde_json::Value| item["about"] == about && item["state"] == "Broken";
        // Other tests can leave locks with problems.
        ensure!(about == "locks" || !items.iter().any(|item| is_bad(&item)), "{about} is broken: {found}");
    }
    let main = format!("{}/main: 3 of 3 members vote", bench.cluster.operator_namespace);
    ensure!(items.iter().any(|item| item["text"].as_str().is_some_and(|reports| reports.contains(&main))), "{found}");
    let text = redlock(&bench, &["doctor"]).await?.out;
    ensure!(text.contains("ok    API server"), "{text}");
    // An unreachable API server is a finding, which has a remedy.
    let config = format!("{}.away", folder(&bench));
    std::fs::copy(&bench.cluster.kubeconfig, &config)?;
    let cluster = bench.cluster.kubectl(&["config", "view", "--minify", "-o", "jsonpath={.clusters[0].name}"]).await?;
    let set = ["--kubeconfig", &config, "config", "set-cluster", &cluster, "--server=https://127.0.0.1:1"];
    bench.cluster.kubectl(&set).await?;
    let away = redlock(&bench, &["doctor", "--kubeconfig", &config]).await?;
    let explained = redlock(&bench, &["explain", "dlock/app", "-n", &bench.namespace, "--kubeconfig", &config]).await?;
    std::fs::remove_file(&config)?;
    ensure!(away.code == 1 && away.out.contains("bad   API server") && away.out.contains("mend:"), "{}", away.out);
    ensure!(!away.out.contains("All is well"), "{}", away.out);
    let text = explained.out + &explained.err;
    ensure!(text.starts_with("redlock: ") || text.contains("error"), "{text}");
    Ok(())
}

pub(crate) async fn a_report_has_the_objects_and_no_secret(bench: Bench) -> anyhow::Result<()> {
    Lock::create(&bench, claim("first", "reindex", None, Duration::from_secs(10))).await?.held(SOON).await?;
    let directory = folder(&bench);
    let output = prints(&bench, &["report", &directory, "-A", "--logs"]).await?;
    let read = |name: &str| std::fs::read_to_string(format!("{directory}/{name}")).with_context(|| output.clone());
    ensure!(read("distributedlocks.yaml")?.contains("key: reindex"), "{output}");
    ensure!(
        read("redisquorums.yaml")?.contains("name: main") && read("doctor.txt")?.contains("API server"),
        "{output}"
    );
    let mut text = String::new();
    for file in std::fs::read_dir(&directory)? {
        text += &std::fs::read_to_string(file?.path())?;
    }
    ensure!(output.contains(".log: "), "no log: {output}");
    let secrets = Api::<Secret>::all(bench.cluster.client.clone());
    let secrets = secrets.list(&ListParams::default().labels(QUORUM_LABEL)).await?;
    let mut checked = 0;
    for (name, value) in secrets.into_iter().filter_map(|secret| secret.data).flatten() {
        // Names, addresses and certificates are not checked, because objects contain them.
        let Ok(value) = String::from_utf8(value.0) else { continue };
        let passwords = value.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| word.len() >= 32);
        for password in passwords.filter(|_| !name.ends_with(".crt")) {
            checked += 1;
            ensure!(!text.contains(password), "the report has a value of {name}");
        }
    }
    ensure!(checked > 3, "only {checked} values were checked");
    let again = redlock(&bench, &["report", &directory]).await?;
    std::fs::remove_dir_all(&directory)?;
    ensure!(again.code == 125 && again.err.contains("exists"), "{}", again.err);
    Ok(())
}

pub(crate) async fn the_program_installs_itself_and_its_completions(bench: Bench) -> anyhow::Result<()> {
    let directory = folder(&bench);
    let bin = format!("{directory}/bin");
    ensure!(prints(&bench, &["install", &bin]).await? == format!("{bin}/redlock\n"));
    // A second installation replaces the first one, as in a restarted pod.
    prints(&bench, &["install", &bin]).await?;
    prints(&bench, &["man", &format!("{directory}/man1")]).await?;
    ensure!(std::fs::read_to_string(format!("{directory}/man1/redlock-explain.1"))?.contains("shop/reindex"));
    ensure!(prints(&bench, &["completions", "bash"]).await?.contains("REDLOCK_COMPLETE"));
    // The program works as a plugin of kubectl, which passes on the arguments after the name.
    std::fs::rename(format!("{bin}/redlock"), format!("{bin}/kubectl-redlock"))?;
    let kubeconfig = bench.cluster.kubeconfig.display();
    let script = format!("PATH={bin}:$PATH KUBECONFIG={kubeconfig} kubectl redlock list -n {}", bench.namespace);
    let listed = bench.cluster.shell(&script).await?;
    std::fs::remove_dir_all(&directory)?;
    ensure!(listed.contains("No locks in namespace"), "{listed}");
    Ok(())
}

pub(crate) async fn errors_name_the_next_step(bench: Bench) -> anyhow::Result<()> {
    let absent = format!("{}/nothing", bench.namespace);
    fails(&bench, &["status", &absent], "next: See which locks exist: redlock list -n").await?;
    let malformed = redlock(&bench, &["status", "a key"]).await?;
    ensure!(malformed.err.contains("<namespace>/<key>"), "{}", malformed.err);
    fails(&bench, &["list", "--kubeconfig", "/nonexistent"], "next: Name a kubeconfig").await?;
    let usage = redlock(&bench, &["list", "--nonsense"]).await?;
    ensure!(usage.code == 125, "{}", usage.code);
    let none = json(&bench, &["list", "-n", &bench.namespace]).await?;
    ensure!(none["items"].as_array().is_some_and(Vec::is_empty), "{none}");
    Ok(())
}
