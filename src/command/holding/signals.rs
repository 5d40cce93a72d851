//! Signals to `run` that are for the command.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

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

/// Numbers of signals, as they come.
#[derive(Debug)]
pub(in crate::command) struct Signals(mpsc::Receiver<i32>);

impl Signals {
    /// From here on no signal of these ends this process by itself.
    ///
    /// # Errors
    /// If the system refuses.
    pub(in crate::command) fn new() -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(FORWARDED.len());
        for kind in FORWARDED {
            let (mut signals, sender): (Signal, _) = (signal(kind)?, sender.clone());
            tokio::spawn(async move {
                while signals.recv().await.is_some() && sender.send(kind.as_raw_value()).await.is_ok() {}
            });
        }
        Ok(Self(receiver))
    }

    /// Not those of the system: the number of a signal that is sent here ends one wait.
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
            if ENDING.iter().any(|kind| kind.as_raw_value() == signal) {
                return signal;
            }
        }
    }
}
