//! `redlock top` at a real pseudo-terminal, and the page of `redlock report`, with an API server that the test plays.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};

use crate::{
    api::{ApiServer, Operator, TOKEN},
    processes::{Place, signal, until},
};

/// The control sequences that enter and leave the alternate screen.
const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";

/// A `redlock top` at a pseudo-terminal.
struct Terminal {
    child: Child,
    master: File,
    user_side: File,
    output: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn start(place: &Place, server: &ApiServer) -> Self {
        let master: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        tcsetwinsize(&master, Winsize { ws_row: 30, ws_col: 160, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let user_side = OpenOptions::new().read(true).write(true).open(name).unwrap();
        let stream = || Stdio::from(user_side.try_clone().unwrap());
        // The pseudo-terminal becomes the controlling terminal, like that of a shell.
        let child = Command::new("setsid")
            .args(["--ctty", env!("CARGO_BIN_EXE_redlock"), "top", "-n", "shop"])
            .env("KUBECONFIG", server.kubeconfig(&place.folder))
            .env("TERM", "xterm")
            .stdin(stream())
            .stdout(stream())
            .stderr(stream())
            .spawn()
            .unwrap();
        let (master, output) = (File::from(master), Arc::new(Mutex::new(Vec::new())));
        let (mut reader, written) = (master.try_clone().unwrap(), output.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut bytes) {
                written.lock().unwrap().extend_from_slice(&bytes[..length]);
            }
        });
        Self { child, master, user_side, output }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    /// Waits until each of these words was drawn.
    ///
    /// The spaces between them are cursor movements.
    fn shows(&self, words: &[&str]) {
        until(&format!("{words:?} on the screen"), || {
            let text = self.text();
            words.iter().all(|word| text.contains(word))
        });
    }

    fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Whether the terminal edits and echoes lines again, as a shell expects.
    fn is_restored(&self) -> bool {
        let modes = tcgetattr(&self.user_side).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO) && self.text().contains(LEAVE)
    }

    fn end(&mut self) -> Option<i32> {
        until("redlock top has ended", || self.child.try_wait().unwrap().is_some());
        until("the terminal is restored", || self.is_restored());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_screen_shows_a_hold_and_a_fence_and_asks_for_a_step_down() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    server.elect("pod-a", "u-1", TOKEN);
    let mut top = Terminal::start(&place, &server);
    top.shows(&[ENTER, "shop/reindex", "pod-a", "VALIDITY", "[####", "main-2", "fenced", "(Restarted)"]);
    assert!(!top.is_restored(), "the terminal is not in full-screen mode");
    top.press("e");
    top.shows(&["explain", "quorum", "accepted"]);
    top.press("x");
    top.press("s");
    top.shows(&["down?"]);
    top.press("n");
    top.shows(&["asked"]);
    assert_eq!(server.stepped_down(), None, "the holder was asked despite the answer no");
    top.press("s");
    top.press("y");
    until("the holder was asked", || server.stepped_down().as_deref() == Some("test: redlock top"));
    top.press("/zzz\r");
    top.shows(&["No", "locks"]);
    top.press("q");
    assert_eq!(top.end(), Some(0), "{}", top.text());
}

#[test]
fn a_signal_leaves_a_usable_terminal() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    server.elect("pod-a", "u-1", TOKEN);
    for name in ["TERM", "HUP", "INT"] {
        let mut top = Terminal::start(&place, &server);
        top.shows(&[ENTER, "shop/reindex"]);
        signal(top.child.id(), name);
        assert_eq!(top.end(), Some(0), "SIG{name}: {}", top.text());
    }
}

/// The user can list locks, but no quorums.
#[test]
fn a_report_names_the_files_that_it_leaves_out() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    server.forbid("redisquorums");
    let mut report = place.redlock(&["report", "report", "-n", "shop"]);
    let output = report.env("KUBECONFIG", server.kubeconfig(&place.folder)).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let about = place.read("report/about.txt");
    for line in ["distributedlocks.yaml: ", "redisquorums.yaml: left out, ", "leases-*.yaml: left out, "] {
        assert!(about.contains(line), "{line}: {about}");
    }
}

/// `dev/report-html.sh` opens this page in a browser.
#[test]
fn a_report_has_a_page_for_a_browser() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    server.elect("pod-a", "u-1", TOKEN);
    let mut report = place.redlock(&["report", "report", "-n", "shop", "--html"]);
    let output = report.env("KUBECONFIG", server.kubeconfig(&place.folder)).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let page = place.read("report/report.html");
    for text in ["shop/reindex", "Held by pod-a", "main-2 \u{25d0} fenced", "Next: <code>redlock quorum status"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(place.read("report/about.txt").contains("report.html: "), "{output:?}");
    if let Some(path) = std::env::var_os("REDLOCK_KEEP_PAGE") {
        std::fs::write(path, &page).unwrap();
    }
}
