//! Signals to this program, among them those that `run` passes on to its command.

use std::io;

use tokio::sync::mpsc;

/// Numbers of signals, as they come.
#[derive(Debug)]
pub(in crate::command) struct Signals(mpsc::Receiver<i32>);

impl Signals {
    /// From here on no signal of these ends this process by itself.
    ///
    /// # Errors
    /// If the system refuses.
    pub(in crate::command) fn new() -> io::Result<Self> {
        system::listen().map(Self)
    }

    /// Not those of the system: the number of a signal that is sent here ends one wait.
    #[cfg(target_os = "linux")]
    pub(in crate::command) fn of_one_wait() -> (mpsc::Sender<i32>, Self) {
        let (sender, receiver) = mpsc::channel(1);
        (sender, Self(receiver))
    }

    /// The next one.
    ///
    /// # Cancel safety
    /// No signal is lost.
    pub(in crate::command) async fn next(&mut self) -> i32 {
        match self.0.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }

    /// The next one that ends a program which waits.
    pub(in crate::command) async fn ending(&mut self) -> i32 {
        loop {
            let signal = self.next().await;
            if system::is_ending(signal) {
                return signal;
            }
        }
    }
}

#[cfg(unix)]
mod system {
    use super::{io, mpsc};
    use tokio::signal::unix::{Signal, SignalKind, signal};

    /// All that a process can catch and a person or a kubelet sends.
    const FORWARDED: [SignalKind; 7] = [
        SignalKind::hangup(),
        SignalKind::interrupt(),
        SignalKind::quit(),
        SignalKind::terminate(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
        SignalKind::alarm(),
    ];

    /// The signals that end a program that waits.
    const ENDING: [SignalKind; 4] =
        [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit(), SignalKind::terminate()];

    pub(super) fn is_ending(number: i32) -> bool {
        ENDING.iter().any(|kind| kind.as_raw_value() == number)
    }

    pub(super) fn listen() -> io::Result<mpsc::Receiver<i32>> {
        let (sender, receiver) = mpsc::channel(FORWARDED.len());
        for kind in FORWARDED {
            let (mut signals, sender): (Signal, _) = (signal(kind)?, sender.clone());
            tokio::spawn(async move {
                while signals.recv().await.is_some() && sender.send(kind.as_raw_value()).await.is_ok() {}
            });
        }
        Ok(receiver)
    }
}

#[cfg(windows)]
mod system {
    use super::{io, mpsc};
    use tokio::signal::windows::{ctrl_break, ctrl_c};

    /// Windows has no signals. Ctrl-C and Ctrl-Break have the number that SIGINT has elsewhere, for the exit code.
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
