//! The rows of a run: programs and their measurements.

use crate::measure::{Measured, ratio};

/// A measured program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Floor,
    Ours,
    /// This client with all members, in a row where some are frozen.
    Healthy,
    Untokened,
    Rslock,
    Rival(usize),
}

/// One row: the programs, and what was measured of each, round by round.
pub(crate) struct Row(pub(crate) Vec<(Program, Vec<Measured>)>);

impl Row {
    pub(crate) fn of(&self, program: Program) -> &[Measured] {
        self.0.iter().find(|(other, _)| *other == program).map_or(&[], |(_, measured)| measured)
    }

    pub(crate) fn ratio(&self, these: Program, those: Program, of: fn(&Measured) -> f64) -> f64 {
        ratio(self.of(these), self.of(those), of)
    }
}
