//! Pure: the history of a key as lanes, in which an overlap of two holds is visible.

use super::KeyState;
use crate::output::format::between;
use redlock_api::MilliTime;

/// One hold in a lane. Times are milliseconds after the beginning of the first hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The holder.
    pub identity: String,
    /// The beginning.
    pub from: i64,
    /// The end, or the time of the picture.
    pub to: i64,
    /// The reason of the end. `None`: the hold has not ended.
    pub reason: Option<String>,
}

/// The holds of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lanes {
    /// The rows. No two holds of one row overlap, so a second row shows an overlap.
    pub rows: Vec<Vec<Hold>>,
    /// The time that the lanes show, in milliseconds.
    pub length: i64,
}

impl Lanes {
    /// Puts each known hold of a key into the first free row.
    #[must_use]
    pub fn of(key: &KeyState<'_>, now: MilliTime) -> Self {
        let mut holds = Vec::new();
        for lock in key.objects() {
            let past = lock.status.history.iter();
            let past = past.filter_map(|hold| Some((hold.from?, hold.to, hold.identity.clone(), Some(&hold.reason))));
            let present = lock.status.acquired_at.filter(|_| lock.is_held()).map(|from| (from, now, lock.who(), None));
            holds.extend(past.chain(present));
        }
        holds.sort_by_key(|(from, to, ..)| (*from, *to));
        let Some(first) = holds.first().map(|(from, ..)| *from) else { return Self::default() };
        let mut rows: Vec<Vec<Hold>> = Vec::new();
        for (from, to, identity, reason) in holds {
            let (from, to) = (between(first, from), between(first, to));
            let hold = Hold { identity, from, to: to.max(from), reason: reason.cloned() };
            match rows.iter_mut().find(|row| row.last().is_none_or(|last| last.to <= from)) {
                Some(row) => row.push(hold),
                None => rows.push(vec![hold]),
            }
        }
        Self { rows, length: between(first, now).max(1) }
    }

    /// The rows as text: `|a=====|  |b====>`.
    #[must_use]
    pub fn text(&self, width: usize) -> Vec<String> {
        self.rows.iter().map(|row| text(row, self.length, width)).collect()
    }

    /// The reasons of the ends, in the order of time.
    #[must_use]
    pub fn reasons(&self) -> Vec<String> {
        let mut ends: Vec<_> = self.rows.iter().flatten().filter(|hold| hold.reason.is_some()).collect();
        ends.sort_by_key(|hold| hold.to);
        ends.into_iter().filter_map(|hold| hold.reason.clone()).collect()
    }
}

/// The text of one row. A hold has at least one cell, which can cut off its name.
fn text(row: &[Hold], length: i64, width: usize) -> String {
    let mut cells = vec![' '; width];
    let column = |time: i64| {
        let scaled = i128::from(time) * width as i128 / i128::from(length);
        usize::try_from(scaled).unwrap_or(0).min(width)
    };
    for hold in row {
        let begin = column(hold.from).min(width.saturating_sub(1));
        let end = column(hold.to).max(begin + 1).min(width);
        let mut name = hold.identity.chars();
        for cell in cells.iter_mut().take(end).skip(begin + 1) {
            *cell = name.next().unwrap_or('=');
        }
        if let Some(cell) = cells.get_mut(begin) {
            *cell = '|';
        }
        if let Some(cell) = cells.get_mut(end.saturating_sub(1)).filter(|_| end > begin + 1) {
            *cell = if hold.reason.is_none() { '>' } else { '|' };
        }
    }
    cells.into_iter().collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::Picture;
    use super::*;
    use crate::cluster::objects::fake::{held, lock, now};

    /// A hold of `x` in the past, and one of `a` for the last minute.
    fn lanes(from: &str, to: &str) -> Lanes {
        let past = format!("{{identity: x, from: 2026-01-01T{from}Z, to: 2026-01-01T{to}Z, reason: Expired}}");
        let past = lock("l", &format!("{{spec: {{key: reindex}}, status: {{history: [{past}]}}}}"));
        Lanes::of(&Picture::of(&[held("a"), past], [], now()).keys[0], now())
    }

    #[test]
    fn only_holds_that_overlap_have_lanes_of_their_own() {
        for (from, to, expected) in [
            ("11:58:00.000", "11:58:30.000", &["|x==|     |a=======>"][..]),
            ("11:58:00.000", "11:59:30.000", &["|x============|", "          |a=======>"]),
            ("10:00:00.000", "10:00:00.100", &["|                  |"]),
        ] {
            let lanes = lanes(from, to);
            assert_eq!(lanes.text(20), expected, "{from} {to}");
            assert_eq!(lanes.reasons(), ["Expired"], "{from} {to}");
        }
        let free = lock("b", "{spec: {key: other}}");
        let picture = Picture::of([&free], [], now());
        assert_eq!(Lanes::of(&picture.keys[0], now()), Lanes::default());
    }
}
