//! The examples, each in its own language, against an agent.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use super::client::Agent;
use crate::processes::{LOCK, Place};
use crate::servers::Servers;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/agent").join(name)
}

/// Whether this machine has the programs that an example needs.
fn has(programs: &[&str]) -> bool {
    let has = |program: &&str| Command::new("sh").args(["-c", "command -v \"$0\"", *program]).output();
    let missing: Vec<_> = programs.iter().filter(|name| !has(name).is_ok_and(|found| found.status.success())).collect();
    if !missing.is_empty() {
        println!("skipped: there is no {missing:?}");
    }
    missing.is_empty()
}

fn command(program: &str, arguments: &[&dyn AsRef<OsStr>]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// Runs a compiler, which must succeed.
fn build(program: &str, arguments: &[&dyn AsRef<OsStr>]) {
    let built = command(program, arguments).output().unwrap();
    assert!(built.status.success(), "{built:?}");
}

/// A program that ends with the test.
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

/// The next token that differs from this one.
fn next_token(lines: &mut BufReader<ChildStdout>, before: i64) -> i64 {
    std::iter::repeat_with(|| token(lines)).find(|token| *token != before).unwrap()
}

/// Checks that an example works while it leads.
///
/// It must also work after a loss of its lock, and after a replacement of its agent.
fn works(command: &mut Command) {
    let (servers, place) = (Servers::start(3), Place::new());
    let agent = Agent::direct(&place, &servers, &[]);
    let (_worker, mut lines) = Worker::start(command.arg(agent.url()));
    let first = token(&mut lines);
    assert_eq!(token(&mut lines), first);
    servers.delete(LOCK);
    let next = next_token(&mut lines, first);
    assert!(next > first);
    let port = agent.url().rsplit_once(':').unwrap().1.to_owned();
    agent.signal("KILL");
    assert_eq!(agent.end(), None);
    let listen = format!("127.0.0.1:{port}");
    let _successor = Agent::direct(&place, &servers, &["--listen", &listen]);
    assert!(next_token(&mut lines, next) > next);
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
        build("go", &[&"build", &"-o", &program, &example("worker.go")]);
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
    let copy = "org.apache.maven.plugins:maven-dependency-plugin:3.7.0:copy-dependencies";
    let output = format!("-DoutputDirectory={}", jars.display());
    build("mvn", &[&"--quiet", &"--batch-mode", &"-f", &tasks.join("pom.xml"), &copy, &output]);
    let (library, provider) = (jars.join("*"), example("AgentLockProvider.java"));
    build("javac", &[&"-cp", &library, &"-d", &classes, &provider, &tasks.join("Tasks.java")]);
    let agents = [Agent::direct(&place, &servers, &[]), Agent::direct(&place, &servers, &[])];
    let mut run = Command::new("java");
    run.arg("-cp").arg(format!("{}:{}", classes.display(), library.display())).arg("Tasks");
    let ran = run.args(agents.iter().map(Agent::url)).output().unwrap();
    assert!(ran.status.success() && ran.stdout == b"done\n", "{ran:?}");
}

/// Checks that a client excludes a second program, which waits for 1.5 s, and works like the short examples. It reports the agent's reason if it
/// cannot wait.
fn serves(command: impl Fn() -> Command) {
    let (servers, place) = (Servers::start(3), Place::new());
    let agents = [Agent::direct(&place, &servers, &[]), Agent::direct(&place, &servers, &[])];
    let acquire = |agent: &Agent, lock: &str| {
        let mut command = command();
        command.args([&agent.url(), lock]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    let start = |agent: &Agent| acquire(agent, "shop/nightly");
    let own = acquire(&agents[0], LOCK).wait_with_output().unwrap();
    let reason = "This instance has acquired the lock by another request, or waits for it";
    assert!(!own.status.success() && String::from_utf8_lossy(&own.stderr).contains(reason), "{own:?}");
    let mut holder = start(&agents[0]);
    let mut lines = BufReader::new(holder.stdout.take().unwrap());
    let first = token(&mut lines);
    let other = start(&agents[1]).wait_with_output().unwrap();
    assert!(!other.status.success() && String::from_utf8_lossy(&other.stderr).contains("taken"), "{other:?}");
    writeln!(holder.stdin.take().unwrap()).unwrap();
    assert!(holder.wait().unwrap().success());
    // The first program has released the lock, so the next one does not wait.
    let mut next = start(&agents[1]);
    let mut lines = BufReader::new(next.stdout.take().unwrap());
    assert!(token(&mut lines) > first);
    drop(next.stdin.take());
    assert!(next.wait().unwrap().success());
    drop(agents);
    works(&mut command());
}

#[test]
fn the_client_in_python_takes_and_releases_locks() {
    if has(&["python3"]) {
        serves(|| command("python3", &[&"-B", &example("clients/redlock_agent.py")]));
    }
}

#[test]
fn the_client_in_python_connects_to_a_socket_file() {
    if !has(&["python3"]) {
        return;
    }
    let (servers, place) = (Servers::start(3), Place::new());
    let socket = place.folder.join("agent.sock");
    let address = format!("unix:{}", socket.display());
    let _agent = Agent::direct(&place, &servers, &["--listen", &address]);
    let mut client = command("python3", &[&"-B", &example("clients/redlock_agent.py"), &address]);
    let (_worker, mut lines) = Worker::start(&mut client);
    assert!(token(&mut lines) > 0);
}

#[test]
fn the_client_for_node_takes_and_releases_locks() {
    if has(&["node"]) {
        serves(|| command("node", &[&example("clients/redlock_agent.mjs")]));
    }
}

#[test]
fn the_client_in_go_takes_and_releases_locks() {
    if has(&["go"]) {
        let place = Place::new();
        let program = place.folder.join("client");
        build("go", &[&"build", &"-o", &program, &example("clients/redlock_agent.go")]);
        serves(|| Command::new(&program));
    }
}

#[test]
fn the_client_in_java_takes_and_releases_locks() {
    if has(&["java", "javac"]) {
        let place = Place::new();
        build("javac", &[&"-d", &place.folder, &example("clients/RedlockAgent.java")]);
        serves(|| command("java", &[&"-cp", &place.folder, &"RedlockAgent"]));
    }
}

#[test]
fn examples_are_short() {
    for (folder, longest, files) in [("", 30, 5), ("clients", 150, 4)] {
        let mut count = 0;
        for path in std::fs::read_dir(example(folder)).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_file() {
                let lines = std::fs::read_to_string(&path).unwrap().lines().count();
                assert!(lines <= longest, "{}: {lines} lines", path.display());
                count += 1;
            }
        }
        assert_eq!(count, files, "examples/agent/{folder}");
    }
}
