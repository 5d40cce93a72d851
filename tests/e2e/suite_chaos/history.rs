//! The beliefs of all holders, as they arrive.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use redlock_operator::time::{Clock as _, SystemClock};

use super::outside::Line;
use crate::checker::{Fault, Hold, Loss, LossKind, Millis};

/// The ID of one hold: its holder, and its number among the holds of that holder.
pub(crate) type Id = (String, u64);

#[derive(Default)]
struct Log {
    holds: BTreeMap<Id, Hold>,
    faults: Vec<Fault>,
}

/// Holds and faults of one run.
#[derive(Default)]
pub(crate) struct History(Mutex<Log>);

/// The current time on the clock of the history.
pub(crate) fn now() -> Millis {
    SystemClock.wall().0
}

impl History {
    pub(crate) fn held(&self, id: Id, hold: Hold) {
        self.0.lock().holds.insert(id, hold);
    }

    /// Changes the record of a hold.
    pub(crate) fn change(&self, id: &Id, change: impl FnOnce(&mut Hold)) {
        if let Some(hold) = self.0.lock().holds.get_mut(id) {
            change(hold);
        }
    }

    pub(crate) fn released(&self, id: &Id) {
        self.change(id, |hold| hold.released = hold.released.or(Some(now())));
    }

    pub(crate) fn lost(&self, id: &Id, at: Millis, kind: LossKind) {
        self.change(id, |hold| hold.losses.push(Loss { at, kind }));
    }

    /// Ends the beliefs of a killed holder.
    pub(crate) fn died(&self, who: &str, at: Millis) {
        let mut log = self.0.lock();
        for hold in log.holds.values_mut().filter(|hold| hold.who == who && hold.end() > at) {
            hold.released = Some(at);
        }
    }

    pub(crate) fn fault(&self, fault: Fault) {
        self.0.lock().faults.push(fault);
    }

    /// Records a line of an outside client.
    pub(crate) fn record(&self, line: Line) {
        match line {
            Line::Started { .. } => {}
            Line::Held { who, hold, key, from, until, ttl } => {
                let id = (who.clone(), hold);
                self.held(id, Hold { who, key, from, until, ttl, ..Hold::default() });
            }
            Line::Released { who, hold, at } => self.change(&(who, hold), |hold| hold.released = Some(at)),
        }
    }

    pub(crate) fn holds(&self) -> Vec<Hold> {
        self.0.lock().holds.values().cloned().collect()
    }

    pub(crate) fn faults(&self) -> Vec<Fault> {
        self.0.lock().faults.clone()
    }
}
