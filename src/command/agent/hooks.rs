//! Tells the application by itself when its leadership begins and ends: a URL on loopback is asked, a program is run, or a process
//! gets a signal.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::process::Command;
use tokio::time::timeout;

use super::super::holding::Answer;
use super::super::loopback::{Place, Question};
use super::super::run::SignalName;
use super::book::Word;
use super::desk::{Desk, now};

/// For an application to answer, or a program to end.
const LONGEST: Duration = Duration::from_secs(5);

/// Whom to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// A server on this machine, and the path that is asked.
    Url(SocketAddr, String),
    /// A program in the agent's image.
    Program(PathBuf),
    /// The process whose number stands in the file.
    Signal(SignalName, PathBuf),
}

impl FromStr for Hook {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "use a URL on loopback, for example http://127.0.0.1:8080/elected, the path of a program, or signal:TERM:<path of a pid file>";
        if let Some((name, path)) = text.strip_prefix("signal:").and_then(|rest| rest.split_once(':')) {
            let signal = name.parse().map_err(|_| WRONG)?;
            return if path.starts_with('/') { Ok(Self::Signal(signal, path.into())) } else { Err(WRONG) };
        }
        let Some(rest) = text.strip_prefix("http://") else {
            return if text.starts_with('/') { Ok(Self::Program(text.into())) } else { Err(WRONG) };
        };
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = host.strip_prefix("localhost").map_or(host.to_owned(), |port| format!("127.0.0.1{port}"));
        let address: SocketAddr = host.parse().map_err(|_| WRONG)?;
        if address.ip().is_loopback() { Ok(Self::Url(address, format!("/{path}"))) } else { Err(WRONG) }
    }
}

/// What to call when.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct HookArgs {
    /// Called when the application begins to lead. A URL on loopback (POST), a program in the agent's image, or
    /// a signal, as signal:TERM:/shared/app.pid, for the process whose number the application has written into that file.
    #[arg(long, value_name = "URL|PROGRAM|SIGNAL")]
    on_elected: Option<Hook>,
    /// Called when the application does not lead any more.
    #[arg(long, value_name = "URL|PROGRAM|SIGNAL")]
    on_lost: Option<Hook>,
}

impl HookArgs {
    pub(super) const fn is_empty(&self) -> bool {
        self.on_elected.is_none() && self.on_lost.is_none()
    }
}

/// Calls the hooks until the agent is stopped. The loss is told then, too.
pub(super) async fn tell(desk: Arc<Desk>, hooks: HookArgs) {
    let mut changes = desk.changes();
    let mut leads: Option<i64> = None;
    loop {
        let is_stopping = desk.is_stopping();
        let word = desk.served_word().filter(|_| !is_stopping);
        let token = match &word {
            Some(Word::Leads { token, .. }) => Some(*token),
            _ => None,
        };
        if let Some(lost) = leads.filter(|_| leads != token) {
            leads = None;
            let why = match word {
                Some(Word::DoesNot { why, .. } | Word::Unknown { why }) => why,
                _ => String::new(),
            };
            let body = json!({"lock": desk.elected, "fencingToken": lost, "detail": why});
            call(hooks.on_lost.as_ref(), "--on-lost", &desk.elected, lost, body.to_string()).await;
            continue;
        }
        if let (None, Some(Word::Leads { token, holder, deadline })) = (leads, word) {
            leads = Some(token);
            let answer = Answer::new(desk.elected.clone(), holder, token).at(deadline, now());
            call(hooks.on_elected.as_ref(), "--on-elected", &desk.elected, token, answer.line()).await;
            continue;
        }
        if is_stopping {
            return;
        }
        desk.pause(&desk.elected, &mut changes).await;
    }
}

/// A hook that fails changes nothing: the application asks, and hears the same.
async fn call(hook: Option<&Hook>, option: &str, lock: &str, token: i64, body: String) {
    let called = async {
        match hook {
            None => Ok(()),
            Some(Hook::Url(address, path)) => {
                let question = Question::post(path.clone(), body);
                let (status, _) = Place::Loopback(*address).ask(question, LONGEST).await?;
                if status.is_success() { Ok(()) } else { bail!("it answered {status}") }
            }
            Some(Hook::Program(path)) => {
                let mut command = Command::new(path);
                command.env("REDLOCK_LOCK", lock).env("REDLOCK_TOKEN", token.to_string()).env("REDLOCK_ANSWER", body);
                command.stdin(Stdio::null()).kill_on_drop(true);
                let status = timeout(LONGEST, command.status()).await.context("it has not ended in time")??;
                if status.success() { Ok(()) } else { bail!("{status}") }
            }
            Some(Hook::Signal(signal, path)) => send(*signal, path),
        }
    };
    if let Err(error) = called.await {
        eprintln!("redlock: lock {lock}: {option} failed: {error:#}");
    }
}

/// The file is read each time: an application that was started again has written another number.
fn send(signal: SignalName, path: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let number: Option<i32> = text.trim().parse().ok().filter(|number| *number > 1);
    let pid =
        number.and_then(Pid::from_raw).with_context(|| format!("{} has no number of a process", path.display()))?;
    let signal = Signal::from_named_raw(signal.0).context("the signal cannot be sent")?;
    kill_process(pid, signal).with_context(|| format!("process {pid:?} cannot be signalled"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_is_a_url_on_loopback_a_program_or_a_signal() {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!("http://127.0.0.1:80/a/b?c".parse(), Ok(Hook::Url(at(80), "/a/b?c".into())));
        assert_eq!("http://localhost:8080".parse(), Ok(Hook::Url(at(8080), "/".into())));
        assert_eq!("/bin/true".parse(), Ok(Hook::Program("/bin/true".into())));
        assert_eq!("signal:TERM:/run/a.pid".parse(), Ok(Hook::Signal("TERM".parse().unwrap(), "/run/a.pid".into())));
        for wrong in ["signal:TERM", "signal:TERM:a.pid", "signal:WHAT:/run/a.pid"] {
            assert!(wrong.parse::<Hook>().is_err(), "{wrong}");
        }
        for wrong in ["http://example.com/", "http://10.0.0.1:80/", "https://127.0.0.1:1/", "true", "http://127.0.0.1/"]
        {
            assert!(wrong.parse::<Hook>().is_err(), "{wrong}");
        }
    }
}
