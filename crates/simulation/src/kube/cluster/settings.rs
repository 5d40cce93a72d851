//! Delays of a cluster.

use super::super::Millis;
use super::super::chance::{Chance, Range};

/// Delays and periods, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The time from a change to the reaction of a controller.
    pub reaction: Range,
    /// The time from a change to the reaction of the garbage collector.
    pub collect: Range,
    /// The interval between two passes of the namespace controller.
    pub empty_namespace: Range,
    /// The pause before a retry after a refusal or an outage.
    pub retry: Range,
    /// The time from a change of a pod to the reaction of its kubelet.
    pub receive: Range,
    /// The time from that reaction until a container runs.
    pub start: Range,
    /// The time from the end of a container to its restart in place.
    pub restart: Range,
    /// The time from SIGTERM to the end of a container.
    ///
    /// The grace period limits it.
    pub shutdown: Range,
    /// The time from a change of a container to its observation by the kubelet.
    pub relist: Range,
    /// The time from the status of a kubelet to its arrival.
    pub send: Range,
    /// How long a container runs that its kubelet cannot locate.
    pub lost: Range,
    /// The interval between two checks of the node controller.
    pub monitor: Millis,
    /// The time without a heartbeat after which a node is Unknown.
    pub silence: Millis,
    /// The time on an unreachable node after which a pod is deleted.
    pub toleration: Millis,
    /// The interval between two passes of PodGC.
    pub collect_pods: Millis,
    /// The time without a Node object after which its pods are deleted.
    pub quarantine: Millis,
    /// The first pause between two pods of a Job.
    ///
    /// It doubles with each failure.
    pub job_backoff: Millis,
    /// Whether the Job controller suspends and resumes Jobs like the real one (`job_syncs`).
    pub suspends_jobs: bool,
}

impl Settings {
    /// A cluster with default flags.
    pub const USUAL: Self = Self {
        reaction: (1, 150),
        collect: (5, 700),
        empty_namespace: (100, 2_000),
        retry: (200, 2_000),
        receive: (1, 300),
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

    /// The same cluster in less simulated time: minutes become seconds.
    pub const QUICK: Self = Self {
        silence: 8_000,
        monitor: 1_000,
        toleration: 15_000,
        collect_pods: 4_000,
        quarantine: 8_000,
        job_backoff: 1_000,
        ..Self::USUAL
    };

    /// Chooses one of the two settings, and draws some unusual delays.
    pub fn draw(chance: &mut dyn Chance, long: bool) -> Self {
        let mut settings = if long { Self::USUAL } else { Self::QUICK };
        let mut stretch = |range: &mut Range| match chance.below(6) {
            0 => range.1 *= 5,
            1 => range.1 = range.0 + 1 + (range.1 - range.0) / 10,
            _ => {}
        };
        for range in [&mut settings.reaction, &mut settings.collect, &mut settings.receive, &mut settings.restart] {
            stretch(range);
        }
        for range in [&mut settings.relist, &mut settings.send, &mut settings.start, &mut settings.shutdown] {
            stretch(range);
        }
        settings
    }
}
