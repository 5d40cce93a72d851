//! The examples, each in its own language, against an agent.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use super::client::Agent;
use crate::processes::{LOCK, Place};
use crate::servers::Servers;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/agent").join(name)
}

/// Whether this machine has what an example needs.
fn has(programs: &[&str]) -> bool {
    let has = |program: &&str| Command::new("sh").args(["-c", "command -v \"$0\"", *program]).output();
    let missing: Vec<_> = programs.iter().filter(|name| !has(name).is_ok_and(|found| found.status.success())).collect();
    if !missing.is_empty() {
        println!("skipped: there is no {missing:?}");
    }
    missing.is_empty()
}

/// A program that is ended with the test.
struct Worker(Child);

impl Worker {
    fn start(command: &mut Command) -> (Self, BufReader<ChildStdout>) {
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        (Self(child), lines)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn token(lines: &mut BufReader<ChildStdout>) -> i64 {
    let mut line = String::new();
    assert!(lines.read_line(&mut line).unwrap() > 0, "the example has ended");
    line.trim().strip_prefix("works with token ").unwrap_or_else(|| panic!("{line}")).parse().unwrap()
}

/// It leads; after a loss it works with the next token; and with another agent in the place of the first one, too.
fn works(command: &mut Command) {
    let (servers, place) = (Servers::start(3), Place::new());
    let agent = Agent::direct(&place, &servers, &[]);
    let (_worker, mut lines) = Worker::start(command.arg(agent.url()));
    let first = token(&mut lines);
    assert_eq!(token(&mut lines), first);
    servers.delete(LOCK);
    let mut next = token(&mut lines);
    while next == first {
        next = token(&mut lines);
    }
    assert!(next > first);
    let port = agent.url().rsplit_once(':').unwrap().1.to_owned();
    agent.signal("KILL");
    assert_eq!(agent.end(), None);
    let listen = format!("127.0.0.1:{port}");
    let _successor = Agent::direct(&place, &servers, &["--listen", &listen]);
    let mut last = token(&mut lines);
    while last == next {
        last = token(&mut lines);
    }
    assert!(last > next);
}

#[test]
fn the_example_for_shells_works_while_it_leads() {
    if has(&["curl", "jq"]) {
        works(Command::new("sh").arg(example("worker.sh")));
    }
}

#[test]
fn the_example_in_python_works_while_it_leads() {
    if has(&["python3"]) {
        works(Command::new("python3").arg(example("worker.py")));
    }
}

#[test]
fn the_example_for_node_works_while_it_leads() {
    if has(&["node"]) {
        works(Command::new("node").arg(example("worker.mjs")));
    }
}

#[test]
fn the_example_in_go_works_while_it_leads() {
    if has(&["go"]) {
        let place = Place::new();
        let program = place.folder.join("worker");
        let built = Command::new("go").arg("build").arg("-o").arg(&program).arg(example("worker.go")).output().unwrap();
        assert!(built.status.success(), "{built:?}");
        works(&mut Command::new(program));
    }
}

#[test]
fn the_shedlock_provider_lets_one_task_run_at_a_time() {
    if !has(&["java", "javac", "mvn"]) {
        return;
    }
    let (servers, place) = (Servers::start(3), Place::new());
    let tasks = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/clients/shedlock");
    let (jars, classes) = (place.folder.join("lib"), place.folder.join("classes"));
    let mut fetch = Command::new("mvn");
    fetch.args(["--quiet", "--batch-mode", "-f"]).arg(tasks.join("pom.xml"));
    fetch.arg("org.apache.maven.plugins:maven-dependency-plugin:3.7.0:copy-dependencies");
    fetch.arg(format!("-DoutputDirectory={}", jars.display()));
    let library = jars.join("*");
    let mut compile = Command::new("javac");
    compile.arg("-cp").arg(&library).arg("-d").arg(&classes);
    compile.args([example("AgentLockProvider.java"), tasks.join("Tasks.java")]);
    for step in [&mut fetch, &mut compile] {
        let done = step.output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }
    let agents = [Agent::direct(&place, &servers, &[]), Agent::direct(&place, &servers, &[])];
    let mut run = Command::new("java");
    run.arg("-cp").arg(format!("{}:{}", classes.display(), library.display())).arg("Tasks");
    let ran = run.args(agents.iter().map(Agent::url)).output().unwrap();
    assert!(ran.status.success() && ran.stdout == b"done\n", "{ran:?}");
}

#[test]
fn examples_are_short() {
    let mut count = 0;
    for entry in std::fs::read_dir(example("")).unwrap() {
        let path = entry.unwrap().path();
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= 30, "{}: {lines} lines", path.display());
        count += 1;
    }
    assert_eq!(count, 5);
}
