//! Chance, given by the caller, and delays that depend on nothing but the seed, what waits, and how often it has.

use std::collections::BTreeMap;

use super::{Millis, mix};

/// A source of numbers below a bound. Whoever drives the simulation gives one that can be repeated.
pub trait Chance {
    fn below(&mut self, end: u64) -> u64;

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// `None` of nothing.
    fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T>
    where
        Self: Sized,
    {
        let index = (!items.is_empty()).then(|| self.below(items.len() as u64))?;
        items.get(usize::try_from(index).ok()?)
    }
}

/// SplitMix64, for tests and for whoever has none.
#[derive(Clone, Debug)]
pub struct Seeded(pub u64);

impl Chance for Seeded {
    fn below(&mut self, end: u64) -> u64 {
        // Not by one: the numbers of one seed would be those of the next one, shifted.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0) % end.max(1)
    }
}

/// From the shortest to the longest delay, both included.
pub type Range = (Millis, Millis);

/// Delays by hash: taking one event away changes no delay of another link.
#[derive(Clone, Debug)]
pub(super) struct Delays {
    seed: u64,
    counts: BTreeMap<(&'static str, u64), u64>,
}

impl Delays {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, counts: BTreeMap::new() }
    }

    /// The next number of a link, which is a name and whatever tells links of one name apart.
    pub(super) fn number(&mut self, name: &'static str, part: u64) -> u64 {
        let count = self.counts.entry((name, part)).or_default();
        *count += 1;
        let named = name.bytes().fold(self.seed, |state, byte| mix(state ^ u64::from(byte)));
        mix(mix(named ^ part) ^ *count)
    }

    /// Mostly short: half of the delays lie in the lower quarter of the range.
    pub(super) fn draw(&mut self, name: &'static str, part: u64, (least, most): Range) -> Millis {
        let number = self.number(name, part);
        let width = u64::try_from(most - least).unwrap_or_default();
        let width = if number & 1 == 0 { width / 4 } else { width };
        least + Millis::try_from((number >> 1) % (width + 1)).unwrap_or_default()
    }
}

/// Tells links apart by a text.
pub(super) fn part(text: &str) -> u64 {
    text.bytes().fold(0, |state, byte| mix(state ^ u64::from(byte)))
}
