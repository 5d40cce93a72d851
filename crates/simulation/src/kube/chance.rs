//! Random numbers from the caller, and reproducible delays.
//!
//! A delay depends only on the seed, the link, and the number of earlier delays of the link.

use std::collections::BTreeMap;

use super::{Millis, mix};

/// A source of numbers below a bound.
///
/// The driver of the simulation passes one that can be repeated.
pub trait Chance {
    fn below(&mut self, end: u64) -> u64;

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// Returns `None` if there are no items.
    fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T>
    where
        Self: Sized,
    {
        let index = (!items.is_empty()).then(|| self.below(items.len() as u64))?;
        items.get(usize::try_from(index).ok()?)
    }
}

/// SplitMix64, for tests and for drivers without a source of their own.
#[derive(Clone, Debug)]
pub struct Seeded(pub u64);

impl Chance for Seeded {
    fn below(&mut self, end: u64) -> u64 {
        // Mix the seed: without this, seeds that differ by one give the same numbers, shifted.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0) % end.max(1)
    }
}

/// The shortest and the longest delay, both included.
pub type Range = (Millis, Millis);

/// Delays by hash: the removal of one event changes no delay of another link.
#[derive(Clone, Debug)]
pub(super) struct Delays {
    seed: u64,
    counts: BTreeMap<(&'static str, u64), u64>,
}

impl Delays {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, counts: BTreeMap::new() }
    }

    /// The next number of a link.
    ///
    /// `part` distinguishes links of one name.
    pub(super) fn number(&mut self, name: &'static str, part: u64) -> u64 {
        let count = self.counts.entry((name, part)).or_default();
        *count += 1;
        let named = name.bytes().fold(self.seed, |state, byte| mix(state ^ u64::from(byte)));
        mix(mix(named ^ part) ^ *count)
    }

    /// Draws a mostly short delay: half of the delays lie in the lower quarter of the range.
    pub(super) fn draw(&mut self, name: &'static str, part: u64, (least, most): Range) -> Millis {
        let number = self.number(name, part);
        let width = u64::try_from(most - least).unwrap_or_default();
        let width = if number & 1 == 0 { width / 4 } else { width };
        least + Millis::try_from((number >> 1) % (width + 1)).unwrap_or_default()
    }
}

/// Hashes a text that distinguishes links of one name.
pub(super) fn part(text: &str) -> u64 {
    text.bytes().fold(0, |state, byte| mix(state ^ u64::from(byte)))
}
