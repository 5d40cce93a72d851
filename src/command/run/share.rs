//! What the command can ask: a socket that answers with token and remaining time, and a file that is replaced at each renewal.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::super::holding::Answer;
use crate::time::{Boottime, Clock, SystemClock};

/// Environment of the command.
pub(super) const LOCK: &str = "REDLOCK_LOCK";
pub(super) const TOKEN: &str = "REDLOCK_TOKEN";
pub(super) const HOLDER: &str = "REDLOCK_HOLDER";
pub(super) const SOCKET: &str = "REDLOCK_SOCKET";
pub(super) const FILE: &str = "REDLOCK_FILE";

/// For an answer to be written.
const ANSWER: Duration = Duration::from_secs(1);

/// Socket and file, which end with this.
#[derive(Debug)]
pub(super) struct Share {
    directory: PathBuf,
    answer: Answer,
    deadline: watch::Sender<Boottime>,
    server: JoinHandle<()>,
}

impl Share {
    /// Begins to answer, with a deadline that has passed.
    pub(super) fn new(lock: String, holder: String, token: i64) -> anyhow::Result<Self> {
        let directory = own_directory().context(
            "no directory for REDLOCK_SOCKET and REDLOCK_FILE could be made: set XDG_RUNTIME_DIR to one, or mount an emptyDir at /tmp",
        )?;
        let answer = Answer::new(lock, holder, token);
        let listener = UnixListener::bind(directory.join("socket")).context("REDLOCK_SOCKET could not be made")?;
        let (deadline, seen) = watch::channel(Boottime::default());
        let server = tokio::spawn(serve(listener, answer.clone(), seen));
        Ok(Self { directory, answer, deadline, server })
    }

    /// The command may run until then.
    pub(super) fn set_deadline(&self, deadline: Boottime) {
        self.deadline.send_replace(deadline);
        // Who cannot read the file reads an older deadline, which is never too late.
        let _ = self.write(deadline);
    }

    fn write(&self, deadline: Boottime) -> io::Result<()> {
        let answer = self.answer.clone().at(deadline, SystemClock.boottime());
        let new = self.directory.join("new");
        fs::write(&new, answer.line())?;
        fs::rename(new, self.file())
    }

    fn file(&self) -> PathBuf {
        self.directory.join("lock.json")
    }

    pub(super) fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![
            (LOCK, self.answer.lock.clone().into()),
            (TOKEN, self.answer.fencing_token.to_string().into()),
            (HOLDER, self.answer.holder.clone().into()),
            (SOCKET, self.directory.join("socket").into()),
            (FILE, self.file().into()),
        ]
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.server.abort();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Removes what a `run` that was killed has left.
///
/// The guard calls it, whose environment is that of the command.
pub(super) fn remove_what_is_left() {
    let socket = std::env::var_os(SOCKET).map(PathBuf::from);
    if let Some(directory) = socket.as_deref().and_then(Path::parent) {
        let _ = fs::remove_dir_all(directory);
    }
}

async fn serve(listener: UnixListener, answer: Answer, deadline: watch::Receiver<Boottime>) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else { return };
        let (answer, deadline) = (answer.clone(), deadline.clone());
        tokio::spawn(async move {
            // Computed when it is sent. The one who asks counts from before the question, which is safe whatever the delay.
            let answer = answer.at(*deadline.borrow(), SystemClock.boottime());
            let _ = timeout(ANSWER, stream.write_all(answer.line().as_bytes())).await;
        });
    }
}

/// Only this user may look into it.
fn own_directory() -> io::Result<PathBuf> {
    let name = format!("redlock-{}-{:08x}", std::process::id(), rand::random::<u32>());
    let places = [std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from), Some(std::env::temp_dir())];
    let mut result = Err(io::Error::from(io::ErrorKind::NotFound));
    for place in places.into_iter().flatten().chain([PathBuf::from("/dev/shm")]) {
        result = make(&place, &name);
        if result.is_ok() {
            break;
        }
    }
    result
}

fn make(place: &Path, name: &str) -> io::Result<PathBuf> {
    let directory = place.join(name);
    DirBuilder::new().mode(0o700).create(&directory)?;
    Ok(directory)
}
