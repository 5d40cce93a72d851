//! The children of `redlock run` that it did not start as the command.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::api::{ApiServer, Operator, write_kubeconfig};
use crate::processes::{LOCK, Place, WORKS, errors_of, signal, until};
use crate::servers::Servers;

/// Writes a credential plugin and a kubeconfig that uses it. Returns the path of the kubeconfig.
pub(crate) fn with_plugin(place: &Place, server: &ApiServer, script: &str, arguments: &[&str]) -> PathBuf {
    let plugin = place.folder.join("plugin");
    fs::write(&plugin, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).unwrap();
    let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": plugin, "args": arguments,
        "interactiveMode": "Never", "env": [{"name": "PASSWORD", "value": "secret-of-the-variable"}]});
    let user = json!({"exec": exec});
    write_kubeconfig(place.folder.join("with-plugin"), &server.cluster(), &user, None)
}

/// The client of the API server waits for its plugin on another thread.
///
/// A helper process keeps the plugin's output open, for more than the pause between two heartbeats.
#[test]
fn a_credential_plugin_is_reaped_by_the_client_that_started_it() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    let credential = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"token": "of-the-plugin", "expirationTimestamp": "2026-01-01T00:00:00Z"}});
    let script = format!("echo '{credential}'\n[ ! -e ready ] || sleep 1.6 &");
    let kubeconfig = with_plugin(&place, &server, &script, &[]);
    let mut run = place.redlock(&["run", "--lock", LOCK, "--ttl", "8s", "--", "sh", "-c", WORKS]);
    run.env("KUBECONFIG", kubeconfig).stdin(Stdio::null());
    let running = place.started(run);
    let before = server.heartbeats();
    // Each heartbeat needs the plugin again, because its tokens have expired.
    until("heartbeats continue", || server.heartbeats() >= before + 3);
    signal(running.pid(), "TERM");
    running.ends_with(143);
}

/// A plugin can open a browser, in which the user logs in.
#[test]
fn a_run_with_a_credential_plugin_has_one_client() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    let credential = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"token": "of-the-plugin", "expirationTimestamp": "2126-01-01T00:00:00Z"}});
    let kubeconfig = with_plugin(&place, &server, &format!("echo again >> logins\necho '{credential}'"), &[]);
    let logins = |command: &[&str]| {
        let _ = fs::remove_file(place.folder.join("logins"));
        let output = place.redlock(command).env("KUBECONFIG", &kubeconfig).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        place.read("logins").lines().count()
    };
    // kube's client itself asks for more than one credential.
    let of_one_client = logins(&["list", "-n", "shop"]);
    assert_eq!(logins(&["run", "--lock", LOCK, "--", "true"]), of_one_client);
}

/// The kubeconfig and the plugin's output can contain passwords, and the output of commands goes to logs.
#[test]
fn a_credential_plugin_that_fails_puts_no_secret_into_an_error() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    let works = r#"{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"token": "secret-token", "expirationTimestamp": "2026-01-01T00:00:00Z"}}"#;
    let fails = "echo secret-output; echo secret-error >&2; exit 3";
    let unreadable = "echo '{\"status\": {\"token\": [\"secret-token\"]}}'";
    let (status, unread) = ("plugin failed with exit status: 3", "output of the credential plugin cannot be read");
    // The first credential is for the client, and the next one for its request.
    let later = |then: &str| format!("[ -e asked ] && {{ {then}; exit; }}\ntouch asked; echo '{works}'");
    for (script, reason) in [
        (fails.to_owned(), status),
        (later(fails), status),
        (unreadable.to_owned(), unread),
        (later(unreadable), unread),
    ] {
        let _ = fs::remove_file(place.folder.join("asked"));
        let kubeconfig = with_plugin(&place, &server, &script, &["--password", "secret-argument"]);
        for command in [&["list", "-n", "shop"][..], &["run", "--lock", LOCK, "--wait", "1s", "--", "true"]] {
            let output = place.redlock(command).env("KUBECONFIG", &kubeconfig).output().unwrap();
            let errors = errors_of(&output, 125);
            assert!(!errors.contains("secret"), "{errors}");
            assert!(command[0] == "run" || errors.contains(reason), "{errors}");
        }
    }
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
