//! Plans of several hours with terms of hours: short active times, and long ones in which no replica runs.

use redlock_simulation::kube::users::{Deed, DeedKind};

use crate::rng::Rng;
use crate::time::At;

use super::{Fault, Pause, Plan};

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
/// The begin of the first pause. The members wait for their first admission.
const FIRST_PAUSE: u64 = 9 * SECOND;
/// The rejoin delay, on the slowest clock.
const ADMISSION: u64 = 62 * MINUTE;
/// Maximum length of the end.
const END: u64 = 10 * 60 * MINUTE;

/// Actions of users in the active times.
const DEEDS: [DeedKind; 12] = [
    DeedKind::Claim,
    DeedKind::Claim,
    DeedKind::Claim,
    DeedKind::PodClaim,
    DeedKind::OwnedClaim,
    DeedKind::Elect,
    DeedKind::Break,
    DeedKind::Suspend,
    DeedKind::StepDown,
    DeedKind::DeleteLock,
    DeedKind::Release,
    DeedKind::EditLock,
];
const PAUSES: [Pause; 6] = [Pause::Stop, Pause::Stop, Pause::Suspend, Pause::Kill, Pause::Mixed, Pause::Mixed];

impl Plan {
    /// Replaces the faults by those of a run of hours.
    pub(super) fn draw_hours(&mut self) {
        let rng = &mut Rng::of(self.seed, "hours");
        (self.tick, self.core, self.claims) = (4_000, false, 1);
        self.contenders.truncate(1);
        let deed = |rng: &mut Rng| Fault::Deed(Deed { kind: *rng.pick(&DEEDS), number: rng.next() });
        let mut faults = Vec::new();
        for kind in self.theme.map_or(&[][..], |theme| theme.founders) {
            faults.push((4 * SECOND + rng.below(4 * SECOND), Fault::Deed(Deed { kind: *kind, number: rng.next() })));
        }
        // The replicas run once before the end of the wait.
        let early = rng.between(12 * MINUTE, 55 * MINUTE);
        faults.push((FIRST_PAUSE, Fault::Standstill { how: Pause::Stop, length: early }));
        let second = FIRST_PAUSE + early + 10 * SECOND;
        faults.push((second, Fault::Standstill { how: Pause::Stop, length: ADMISSION - early }));
        let mut begin = second + ADMISSION - early;
        for _ in 0..rng.between(3, 5) {
            let end = begin + rng.between(14 * SECOND, 24 * SECOND);
            for _ in 0..rng.between(2, 7) {
                faults.push((rng.between(begin, end), deed(rng)));
            }
            if rng.percent(40) {
                let process = rng.index(self.replicas.len());
                faults.push((rng.between(begin, end), Fault::Kill { process, away: rng.between(100_000, 4 * SECOND) }));
            }
            if rng.percent(8) {
                faults.push((rng.between(begin, end), Fault::Crash { member: rng.index(self.members) }));
            }
            let length = rng.logarithmic(MINUTE, 150 * MINUTE);
            faults.push((end, Fault::Standstill { how: *rng.pick(&PAUSES), length }));
            begin = end + length;
        }
        faults.sort_by_key(|(at, _)| *at);
        self.faults = faults.into_iter().map(|(at, fault)| (At(at), fault)).collect();
        self.calm = At(begin + 12 * SECOND);
        self.length = self.calm + END;
    }
}
