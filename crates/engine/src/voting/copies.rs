//! What several members are asked at the same moment is encoded once.

use crate::redlock::Command;
use std::ops::Range;
use std::sync::Arc;

/// So far ahead a request is looked for among those that were encoded.
const NEAR: usize = 16;

/// The bytes of the requests that were written a moment ago. Connections take their jobs in the order in which callers put them, so a
/// request that was encoded for one member is mostly the next one for another.
#[derive(Default)]
pub(super) struct Copies {
    bytes: Vec<u8>,
    parts: Vec<Part>,
    next: usize,
}

struct Part {
    commands: Arc<[Command]>,
    /// Votes are plain commands: members may differ in that.
    plain: bool,
    range: Range<usize>,
}

impl Copies {
    /// Another moment: callers have put other requests.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.parts.clear();
        self.next = 0;
    }

    /// The next member.
    pub(super) const fn rewind(&mut self) {
        self.next = 0;
    }

    /// Writes the request, encoded by `encode` if it was not before.
    pub(super) fn write(
        &mut self,
        out: &mut Vec<u8>,
        commands: &Arc<[Command]>,
        plain: bool,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        let is_it = |part: &Part| Arc::ptr_eq(&part.commands, commands) && part.plain == plain;
        let near = self.parts.iter().enumerate().skip(self.next).take(NEAR);
        let index = near.into_iter().find(|(_, part)| is_it(part)).map_or(self.parts.len(), |(index, _)| index);
        if index == self.parts.len() {
            let begin = self.bytes.len();
            encode(&mut self.bytes);
            let range = begin..self.bytes.len();
            self.parts.push(Part { commands: Arc::clone(commands), plain, range });
        }
        // One that only this member is asked changes nothing in the order of the others.
        if index < self.parts.len() - 1 || self.next == index {
            self.next = index + 1;
        }
        if let Some(bytes) = self.parts.get(index).and_then(|part| self.bytes.get(part.range.clone())) {
            out.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(key: &str) -> Arc<[Command]> {
        [Command::Inspect { key: key.into() }].into()
    }

    #[test]
    fn each_request_is_encoded_once_and_every_member_gets_its_own() {
        let requests = ["a", "b", "c"].map(request);
        let mut copies = Copies::default();
        let mut encoded = 0;
        let mut of = |asked: &[(usize, bool)]| {
            copies.rewind();
            let mut out = Vec::new();
            for (index, plain) in asked {
                copies.write(&mut out, &requests[*index], *plain, |out| {
                    encoded += 1;
                    out.push(b'0' + u8::try_from(*index).unwrap() + if *plain { 5 } else { 0 });
                });
            }
            String::from_utf8(out).unwrap()
        };
        assert_eq!(of(&[(0, false), (1, false), (2, false)]), "012");
        assert_eq!(of(&[(0, false), (1, false), (2, false)]), "012");
        // One that is not asked everything, and one that votes by script.
        assert_eq!(of(&[(0, false), (2, false)]), "02");
        assert_eq!(of(&[(0, true), (1, false), (2, true)]), "517");
        assert_eq!(of(&[(2, false), (0, false)]), "20");
        assert!(encoded <= 6, "{encoded}");
        copies.clear();
        assert_eq!(copies.parts.len(), 0);
    }
}
