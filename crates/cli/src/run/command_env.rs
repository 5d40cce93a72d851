//! The environment of the command: a socket that answers with token and remaining time, and a file that each renewal replaces.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::outer_locks::{HELD, OuterLock, OuterLocks};
use crate::hold::{Location, LockResponse};
use crate::loopback::Listener;
use redlock_engine::time::{Boottime, Clock, SystemClock};

/// Environment variables of the command.
pub(super) const LOCK: &str = "REDLOCK_LOCK";
pub(super) const TOKEN: &str = "REDLOCK_TOKEN";
pub(super) const HOLDER: &str = "REDLOCK_HOLDER";
pub(super) const SOCKET: &str = "REDLOCK_SOCKET";
pub(super) const FILE: &str = "REDLOCK_FILE";

/// The directory of the socket and the file. Only this user can open it, and a drop removes it.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    listener: Option<UnixListener>,
}

/// The server at the socket, and the writer of the file.
#[derive(Debug)]
pub(super) struct CommandEnv {
    directory: Directory,
    answer: LockResponse,
    /// The locks of the outer `run`s and of this one, as the value of [`HELD`].
    held: OsString,
    deadline: watch::Sender<Boottime>,
    _server: Option<AbortOnDropHandle<()>>,
}

impl CommandEnv {
    /// Starts the server. The first deadline is already past, so it does not promise the lock yet.
    pub(super) fn new(mut directory: Directory, answer: LockResponse, place: Location, around: OuterLocks) -> Self {
        let link = OuterLock { place, lock: answer.lock.clone(), socket: directory.path.join("socket") };
        let held = around.with(link);
        let (deadline, published) = watch::channel(Boottime::default());
        let served = directory.listener.take().map(|listener| serve(listener, answer.clone(), published));
        let server = served.map(|serving| AbortOnDropHandle::new(tokio::spawn(serving)));
        Self { directory, answer, held, deadline, _server: server }
    }

    /// Publishes the time until which the command can run.
    pub(super) fn set_deadline(&self, deadline: Boottime) {
        self.deadline.send_replace(deadline);
        // After a failed write the file keeps an older deadline, which is never too late.
        let _ = self.write(deadline);
    }

    fn write(&self, deadline: Boottime) -> io::Result<()> {
        let answer = self.answer.clone().at(deadline, SystemClock.boottime());
        let new = self.directory.path.join("new");
        fs::write(&new, answer.line())?;
        fs::rename(new, self.file())
    }

    fn file(&self) -> PathBuf {
        self.directory.path.join("lock.json")
    }

    pub(super) fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![
            (LOCK, self.answer.lock.clone().into()),
            (TOKEN, self.answer.fencing_token.to_string().into()),
            (HOLDER, self.answer.holder.clone().into()),
            (SOCKET, self.directory.path.join("socket").into()),
            (FILE, self.file().into()),
            (HELD, self.held.clone()),
        ]
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the directory of a killed `run`.
///
/// The guard calls it, because its environment has the path of the directory.
pub(super) fn remove_directory() {
    let socket = std::env::var_os(SOCKET).map(PathBuf::from);
    if let Some(directory) = socket.as_deref().and_then(Path::parent) {
        let _ = fs::remove_dir_all(directory);
    }
}

async fn serve(listener: UnixListener, answer: LockResponse, deadline: watch::Receiver<Boottime>) {
    // The server computes the remaining time for each response. The client counts it from before its request, so a delay is safe.
    let leader = move || std::future::ready(response(&answer, *deadline.borrow(), SystemClock.boottime()));
    Listener::Unix(listener).serve(Router::new().route("/leader", get(leader)), CancellationToken::new()).await;
}

fn response(answer: &LockResponse, deadline: Boottime, now: Boottime) -> Response {
    if deadline <= now {
        let detail = "{\"reason\":\"Unknown\",\"detail\":\"The validity of the lock has passed.\"}\n";
        return (StatusCode::SERVICE_UNAVAILABLE, [(CONTENT_TYPE, "application/problem+json")], detail).into_response();
    }
    ([(CONTENT_TYPE, "application/json")], answer.clone().at(deadline, now).line()).into_response()
}

impl Directory {
    /// Creates the directory and its socket in the first place that allows both.
    ///
    /// The address of a socket has at most 108 bytes, and the value of [`HELD`] is text. So this skips a long TMPDIR, and one that is not
    /// UTF-8.
    ///
    /// # Errors
    /// If no place allows it.
    pub(super) fn new() -> anyhow::Result<Self> {
        let places = [std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from), Some(std::env::temp_dir())];
        let places = places.into_iter().flatten().chain(["/tmp", "/dev/shm"].map(PathBuf::from));
        Self::in_first(places).context(
            "no directory for REDLOCK_SOCKET and REDLOCK_FILE could be made: set XDG_RUNTIME_DIR to one, or mount an emptyDir at /tmp",
        )
    }

    fn in_first(places: impl Iterator<Item = PathBuf>) -> io::Result<Self> {
        let name = format!("redlock-{}-{:08x}", std::process::id(), rand::random::<u32>());
        let mut result = Err(io::Error::from(io::ErrorKind::NotFound));
        for place in places.filter(|place| place.to_str().is_some()) {
            result = Self::make(&place, &name);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn make(place: &Path, name: &str) -> io::Result<Self> {
        let path = place.join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        let mut directory = Self { path, listener: None };
        directory.listener = Some(UnixListener::bind(directory.path.join("socket"))?);
        // On a full disk this write fails, so `run` uses another place.
        fs::write(directory.path.join("new"), "{}\n")?;
        Ok(directory)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[tokio::test]
    async fn a_place_whose_name_cannot_be_used_is_passed_over() {
        let base = std::env::temp_dir().join(format!("redlock-share-{:08x}", rand::random::<u32>()));
        let (long, short) = (base.join("x".repeat(120)), base.join("s"));
        for place in [&long, &short] {
            fs::create_dir_all(place).unwrap();
        }
        // A variable with locks is JSON, and so is the file.
        let odd = base.join(std::ffi::OsStr::from_bytes(b"\xff"));
        fs::create_dir_all(&odd).unwrap();
        let places = [base.join("missing"), odd, long.clone(), short.clone()];
        let directory = Directory::in_first(places.into_iter()).unwrap();
        assert!(directory.path.starts_with(&short), "{directory:?}");
        assert_eq!(fs::read_dir(&long).unwrap().count(), 0, "nothing is left there");
        drop(directory);
        assert_eq!(fs::read_dir(&short).unwrap().count(), 0, "nothing is left here");
        fs::remove_dir_all(base).unwrap();
    }
}
