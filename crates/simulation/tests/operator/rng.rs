//! Repeatable random numbers: all of them come from the seed.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// An independent generator for a part of the simulation, by name.
    ///
    /// The draws of one part do not change those of the others.
    pub(crate) fn of(seed: u64, part: &str) -> Self {
        Self(hash(seed, part.as_bytes().iter().map(|byte| u64::from(*byte))))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }

    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// Draws the logarithm evenly: small numbers are as frequent as large ones.
    pub(crate) fn logarithmic(&mut self, least: u64, most: u64) -> u64 {
        let (low, high) = ((least.max(1) as f64).ln(), (most.max(1) as f64).ln());
        let share = self.below(1 << 20) as f64 / f64::from(1 << 20);
        ((low + (high - low) * share).exp() as u64).clamp(least, most)
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }
}

fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// A pseudorandom number that is a hash of its inputs.
///
/// Therefore the removal of one fault does not change the latency of other messages.
pub(crate) fn hash(seed: u64, parts: impl IntoIterator<Item = u64>) -> u64 {
    let step = |state: u64, part: u64| mix(state ^ part.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_add(part);
    parts.into_iter().fold(mix(seed), step)
}
