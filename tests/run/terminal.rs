//! A command at a pseudo-terminal, which the shell has again afterwards. It needs `script` of util-linux and `bash`.

use std::{
    fs,
    io::Write,
    process::{Command, Stdio},
};

use crate::processes::{LOCK, Place, until};
use crate::servers::Servers;

/// Runs a command under the lock at a terminal, and reads a line afterwards. Returns the terminal's text.
fn at_a_terminal(place: &Place, servers: &Servers, command: &str, input: &str) -> String {
    let run = format!("{} --lock {LOCK} {command}; echo code $?; read more; echo after $more", servers.run());
    // The mark of the place lets it kill what is left.
    let marked = place.redlock(&[]);
    let mut script = Command::new("script");
    script.envs(marked.get_envs().filter_map(|(name, value)| Some((name, value?))));
    script.args(["-qec", &run, "/dev/null"]).current_dir(&place.folder);
    let mut child =
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("`script` of util-linux is needed");
    child.stdin.as_mut().unwrap().write_all(input.as_bytes()).unwrap();
    until("the shell has ended", || child.try_wait().unwrap().is_some());
    String::from_utf8_lossy(&child.wait_with_output().unwrap().stdout).into_owned()
}

/// The command reads from the terminal, and the shell has the terminal afterwards.
#[test]
fn a_command_reads_the_terminal_and_gives_it_back() {
    let (servers, place) = (Servers::start(3), Place::new());
    let text = at_a_terminal(&place, &servers, "-- sh -c 'read line; echo got $line'", "one\ntwo\n");
    for wanted in ["got one", "code 0", "after two"] {
        assert!(text.contains(wanted), "{wanted} in {text:?}");
    }
}

/// A foreground job of an interactive shell has the terminal, and a process group of its own.
#[test]
fn a_job_of_an_interactive_shell_gives_the_terminal_back() {
    let (servers, place) = (Servers::start(3), Place::new());
    // The parent of the job is bash, whose parent is the guard.
    let kill_guard = "kill -KILL $(cut -d' ' -f4 /proc/$PPID/stat)";
    for (options, job, wanted) in [
        ("", "kill -KILL $PPID", &["code 137", "after two"][..]),
        ("", kill_guard, &["code 125", "after two"]),
        // After the deadline a slow machine does not return the terminal in time.
        ("--max-hold 1s --grace 100ms", "true", &["code 124"]),
    ] {
        fs::write(place.folder.join("job"), format!("{job}; exec sleep 100\n")).unwrap();
        // Without a second command bash would become the job.
        let command = format!("{options} -- bash --norc -ic 'sh ./job; true'");
        let text = at_a_terminal(&place, &servers, &command, "two\n");
        assert!(wanted.iter().all(|wanted| text.contains(wanted)), "{wanted:?} in {text:?} of {job}");
        assert!(place.alive().is_empty() && !servers.have_majority(LOCK), "{job}");
    }
}
