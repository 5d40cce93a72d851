//! Signals to this program, among them those that `run` passes on to its command.

use std::io;

use tokio::sync::mpsc;

use super::held_lock::NotHeld;

/// The received signals, by their numbers.
#[derive(Debug)]
pub(crate) struct Signals(mpsc::Receiver<i32>);

impl Signals {
    /// Installs the handlers. From then on none of these signals ends this process directly.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn new() -> io::Result<Self> {
        system::listen().map(Self)
    }

    /// Signals from the returned sender instead of the system, to end one wait.
    #[cfg(target_os = "linux")]
    pub(crate) fn of_one_wait() -> (mpsc::Sender<i32>, Self) {
        let (sender, receiver) = mpsc::channel(1);
        (sender, Self(receiver))
    }

    /// Waits for the next signal.
    ///
    /// # Cancel safety
    /// No signal is lost.
    pub(crate) async fn next(&mut self) -> i32 {
        match self.0.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }

    /// A received signal that ends a waiting program, if there is one.
    pub(crate) fn pending_end(&mut self) -> Option<i32> {
        std::iter::from_fn(|| self.0.try_recv().ok()).find(|signal| system::is_ending(*signal))
    }

    /// Waits for the next signal that ends a waiting program.
    pub(crate) async fn ending(&mut self) -> i32 {
        loop {
            let signal = self.next().await;
            if system::is_ending(signal) {
                return signal;
            }
        }
    }

    /// Waits for a step on the way to a lock, or for a signal that ends this program.
    pub(crate) async fn unless_ending<T>(
        &mut self,
        step: impl Future<Output = Result<T, NotHeld>>,
    ) -> Result<T, NotHeld> {
        tokio::select! {
            biased;
            signal = self.ending() => Err(NotHeld::Signal(signal)),
            result = step => result,
        }
    }
}

#[cfg(unix)]
mod system {
    use super::{io, mpsc};
    use tokio::signal::unix::{Signal, SignalKind, signal};

    /// Signals that are forwarded to a command, in addition to those of [`ENDING`].
    ///
    /// A process can catch all of them. The list excludes real-time signals, and the signals of faults, job control and pipes.
    const FORWARDED: [SignalKind; 5] = [
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
        SignalKind::alarm(),
        SignalKind::window_change(),
        SignalKind::io(),
    ];
    /// SIGABRT, SIGCONT, SIGURG, SIGXCPU, SIGVTALRM, SIGPROF and SIGPWR.
    #[cfg(target_os = "linux")]
    const FORWARDED_ON_LINUX: [i32; 7] = [6, 18, 23, 24, 26, 27, 30];
    #[cfg(not(target_os = "linux"))]
    const FORWARDED_ON_LINUX: [i32; 0] = [];
    /// SIGTSTP, SIGTTIN and SIGTTOU. They have handlers, because a stopped program cannot renew its lock.
    #[cfg(target_os = "linux")]
    const STOPPING: [i32; 3] = [20, 21, 22];
    #[cfg(not(target_os = "linux"))]
    const STOPPING: [i32; 0] = [];

    /// The signals that end a waiting program.
    const ENDING: [SignalKind; 4] =
        [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit(), SignalKind::terminate()];

    pub(super) fn is_ending(number: i32) -> bool {
        ENDING.iter().any(|kind| kind.as_raw_value() == number)
    }

    pub(super) fn listen() -> io::Result<mpsc::Receiver<i32>> {
        let ignored = std::fs::read_to_string("/proc/self/status").map(|status| ignored(&status)).unwrap_or_default();
        let kinds = ENDING.into_iter().chain(FORWARDED).chain(FORWARDED_ON_LINUX.map(SignalKind::from_raw));
        let (sender, receiver) = mpsc::channel(ENDING.len() + FORWARDED.len() + FORWARDED_ON_LINUX.len());
        // A signal that was ignored at the start stays ignored, here and in the command, as after `nohup`.
        for kind in kinds.filter(|kind| !ignored.contains(&kind.as_raw_value())) {
            let (mut signals, sender): (Signal, _) = (signal(kind)?, sender.clone());
            tokio::spawn(async move {
                while signals.recv().await.is_some() && sender.send(kind.as_raw_value()).await.is_ok() {}
            });
        }
        // A handler replaces the default action, even if no task reads the signal.
        for number in STOPPING {
            let _handler = signal(SignalKind::from_raw(number))?;
        }
        // If the parent ignores SIGCHLD, the exit codes of children are lost. After an exec the default action replaces the handler.
        let _handler = signal(SignalKind::child())?;
        Ok(receiver)
    }

    /// The numbers of the signals that this process ignores, from /proc/self/status.
    fn ignored(status: &str) -> Vec<i32> {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        (1..=64).filter(|number| mask >> (number - 1) & 1 == 1).collect()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn ignored_signals_are_the_bits_of_a_mask() {
            let status = "Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000000\n";
            assert_eq!(ignored(status), [1, 13]);
            assert_eq!(ignored("Name:\tx\n"), [0; 0]);
        }
    }
}

#[cfg(windows)]
mod system {
    use super::{io, mpsc};
    use tokio::signal::windows::{ctrl_break, ctrl_c};

    /// The number of SIGINT, for the exit code after Ctrl-C and Ctrl-Break. Windows has no signals.
    const INTERRUPT: i32 = 2;

    pub(super) const fn is_ending(_: i32) -> bool {
        true
    }

    pub(super) fn listen() -> io::Result<mpsc::Receiver<i32>> {
        let (sender, receiver) = mpsc::channel(1);
        let (mut interrupts, mut breaks) = (ctrl_c()?, ctrl_break()?);
        tokio::spawn(async move {
            loop {
                let came = tokio::select! {
                    came = interrupts.recv() => came,
                    came = breaks.recv() => came,
                };
                if came.is_none() || sender.send(INTERRUPT).await.is_err() {
                    return;
                }
            }
        });
        Ok(receiver)
    }
}
