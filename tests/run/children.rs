//! The children of `redlock run` that it did not start as the command.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::api::{ApiServer, Operator};
use crate::processes::{LOCK, Place, signal, until};
use crate::servers::Servers;

const WORKS: &str = "touch ready; while :; do sleep 0.05; done";

/// The client of the API server waits for its plugin on another thread.
///
/// A helper process keeps the plugin's output open for longer.
#[test]
fn a_credential_plugin_is_reaped_by_the_client_that_started_it() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    let plugin = place.folder.join("plugin");
    let credential = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"token": "of-the-plugin", "expirationTimestamp": "2026-01-01T00:00:00Z"}});
    fs::write(&plugin, format!("#!/bin/sh\necho '{credential}'\nsleep 0.4 &\n")).unwrap();
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).unwrap();
    let kubeconfig = place.folder.join("with-plugin");
    let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": plugin, "interactiveMode": "Never"});
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {"exec": exec}}],
        "clusters": [{"name": "k", "cluster": {"server": format!("http://127.0.0.1:{}", server.port())}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    });
    fs::write(&kubeconfig, config.to_string()).unwrap();
    let mut run = place.redlock(&["run", "--lock", LOCK, "--ttl", "8s", "--", "sh", "-c", WORKS]);
    run.env("KUBECONFIG", kubeconfig).stdin(Stdio::null());
    let running = place.started(run);
    let before = server.heartbeats();
    // Each heartbeat needs the plugin again, because its tokens have expired.
    until("heartbeats continue", || server.heartbeats() >= before + 3);
    signal(running.pid(), "TERM");
    let (code, errors) = running.end();
    assert_eq!(code, Some(143), "{errors}");
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

/// `kubectl exec` can leave orphans, and the kernel makes them children of process 1.
#[test]
fn the_first_process_of_a_container_reaps_orphans() {
    let (servers, place) = (Servers::start(3), Place::new());
    let run = place.command(&servers, &[], &["sh", "-c", WORKS]);
    let mut container = Command::new("unshare");
    container.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    container.arg(run.get_program()).args(run.get_args()).current_dir(&place.folder).stdin(Stdio::null());
    for (name, value) in run.get_envs() {
        match value {
            Some(value) => container.env(name, value),
            None => container.env_remove(name),
        };
    }
    let running = place.started(container);
    let first = children(running.pid());
    let [first] = first[..] else { panic!("{first:?}") };
    assert_eq!(children(first).len(), 1, "the guard is not the only child");
    let mut enter = Command::new("nsenter");
    enter.args(["--target", &first.to_string(), "--user", "--preserve-credentials", "--pid"]);
    let status = enter.args(["sh", "-c", "sleep 0.5 >&- 2>&- &"]).status().unwrap();
    assert!(status.success(), "nsenter of util-linux is needed");
    until("the orphan is a child of process 1", || children(first).len() == 2);
    until("the orphan is reaped", || children(first).len() == 1);
}
