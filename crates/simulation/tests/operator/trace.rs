//! The history of a run, line by line, with a hash over all lines.
//!
//! Two runs of one seed must have the same hash.

use std::collections::VecDeque;
use std::fmt;
use std::hash::Hasher as _;
use std::sync::{Arc, Mutex};

use crate::time::At;

/// Lines kept for a report.
const KEPT: usize = 3_000;

/// The recorder.
///
/// The watchdog shares it, and prints the last lines when the simulation hangs.
#[derive(Clone)]
pub(crate) struct Trace(Arc<Mutex<Inner>>);

struct Inner {
    hash: std::hash::DefaultHasher,
    lines: u64,
    last: VecDeque<String>,
    /// Whether every line is printed at once.
    aloud: bool,
}

impl Trace {
    pub(crate) fn new(aloud: bool) -> Self {
        let hash = std::hash::DefaultHasher::new();
        Self(Arc::new(Mutex::new(Inner { hash, lines: 0, last: VecDeque::new(), aloud })))
    }

    pub(crate) fn add(&self, at: At, what: fmt::Arguments<'_>) {
        let line = format!("{at} {what}");
        let mut inner = self.0.lock().unwrap();
        inner.hash.write(line.as_bytes());
        inner.lines += 1;
        if inner.aloud {
            println!("{line}");
        }
        if inner.last.len() == KEPT {
            inner.last.pop_front();
        }
        inner.last.push_back(line);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.0.lock().unwrap().hash.finish()
    }

    pub(crate) fn lines(&self) -> u64 {
        self.0.lock().unwrap().lines
    }

    /// The last lines.
    pub(crate) fn tail(&self, count: usize) -> Vec<String> {
        let inner = self.0.lock().unwrap();
        inner.last.iter().skip(inner.last.len().saturating_sub(count)).cloned().collect()
    }
}
