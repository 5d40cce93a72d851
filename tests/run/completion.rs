//! Shells and kubectl complete the names of locks.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::api::{ApiServer, Operator};
use crate::processes::Place;

/// An API server with the lock `reindex` in namespace `shop`.
fn world() -> (ApiServer, Place) {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    server.elect("pod-a", "u-a", 7);
    (server, place)
}

fn printed(mut command: Command, server: &ApiServer, place: &Place) -> String {
    let output = command.env("KUBECONFIG", server.kubeconfig(&place.folder)).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn bash_completes_the_names_of_locks() {
    let (server, place) = world();
    let completed = |words: &str, last: &str| {
        let script = format!(
            "source <(redlock completions bash); COMP_WORDS=({words} '{last}'); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
            _clap_complete_redlock redlock '{last}' x; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let mut bash = Command::new("bash");
        let programs = Path::new(env!("CARGO_BIN_EXE_redlock")).parent().unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        bash.args(["-c", &script]).env("PATH", path);
        printed(bash, &server, &place)
    };
    assert_eq!(completed("redlock explain -n shop", "re"), "reindex\n");
    assert_eq!(completed("redlock status", "shop/"), "shop/reindex\n");
    assert_eq!(completed("redlock run --lock", "shop/r"), "shop/reindex\n");
    assert_eq!(completed("redlock", "step"), "step-down\n");
    assert_eq!(
        completed("redlock explain -s http://127.0.0.1:1", "re"),
        "\n",
        "without an API server there are no names and no error"
    );
}

#[test]
fn kubectl_completes_the_names_of_locks() {
    let (server, place) = world();
    let program = place.folder.join("kubectl_complete-redlock");
    symlink(env!("CARGO_BIN_EXE_redlock"), &program).unwrap();
    let completed = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words);
        printed(command, &server, &place)
    };
    assert_eq!(completed(&["explain", "-n", "shop", ""]), "reindex\n:4\n");
    assert_eq!(completed(&["history", "-n", "shop", "dlock/r"]), "dlock/reindex\n:4\n");
    assert!(completed(&["step"]).starts_with("step-down\tAsk a holder"), "{}", completed(&["step"]));
}
