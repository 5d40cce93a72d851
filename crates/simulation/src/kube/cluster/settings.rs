//! How long things take in a cluster.

use super::super::Millis;
use super::super::chance::{Chance, Range};

/// All in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// A controller takes notice of a change.
    pub reaction: Range,
    /// The garbage collector takes notice.
    pub collect: Range,
    /// The namespace controller looks again.
    pub empty_namespace: Range,
    /// After a refusal or an outage.
    pub retry: Range,
    /// A kubelet takes notice of a change of a pod.
    pub hear: Range,
    /// From then until a container runs.
    pub start: Range,
    /// From the end of a container until it is started again in place.
    pub restart: Range,
    /// From SIGTERM to the end of a container, at most its grace period.
    pub shutdown: Range,
    /// A kubelet notices what its containers do.
    pub relist: Range,
    /// Its status arrives.
    pub send: Range,
    /// A container that its kubelet lost sight of runs on.
    pub lost: Range,
    /// The node controller looks.
    pub monitor: Millis,
    /// A node is Unknown when nothing was heard of it for so long.
    pub silence: Millis,
    /// Pods of an unreachable node are deleted after so long.
    pub toleration: Millis,
    /// PodGC looks.
    pub collect_pods: Millis,
    /// A node has to be missing for so long before its pods are ended.
    pub quarantine: Millis,
    /// The first pause between two pods of a Job; it doubles.
    pub job_backoff: Millis,
    /// Jobs are suspended and started again as the real controller does it (`job_syncs`).
    pub suspends_jobs: bool,
}

impl Settings {
    /// As a cluster with default flags.
    pub const USUAL: Self = Self {
        reaction: (1, 150),
        collect: (5, 700),
        empty_namespace: (100, 2_000),
        retry: (200, 2_000),
        hear: (1, 300),
        start: (100, 1_500),
        restart: (200, 2_500),
        shutdown: (5, 6_000),
        relist: (0, 1_000),
        send: (2, 400),
        lost: (500, 60_000),
        monitor: 5_000,
        silence: 40_000,
        toleration: 300_000,
        collect_pods: 20_000,
        quarantine: 40_000,
        job_backoff: 10_000,
        suspends_jobs: false,
    };

    /// The same in less simulated time: whatever takes minutes takes seconds.
    pub const QUICK: Self = Self {
        silence: 8_000,
        monitor: 1_000,
        toleration: 15_000,
        collect_pods: 4_000,
        quarantine: 8_000,
        job_backoff: 1_000,
        ..Self::USUAL
    };

    /// One of both, with some delays far from the usual.
    pub fn draw(chance: &mut dyn Chance, long: bool) -> Self {
        let mut settings = if long { Self::USUAL } else { Self::QUICK };
        let mut stretch = |range: &mut Range| match chance.below(6) {
            0 => range.1 *= 5,
            1 => range.1 = range.0 + 1 + (range.1 - range.0) / 10,
            _ => {}
        };
        for range in [&mut settings.reaction, &mut settings.collect, &mut settings.hear, &mut settings.restart] {
            stretch(range);
        }
        for range in [&mut settings.relist, &mut settings.send, &mut settings.start, &mut settings.shutdown] {
            stretch(range);
        }
        settings
    }
}
