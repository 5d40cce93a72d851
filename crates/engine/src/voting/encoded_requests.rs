//! Encodes requests once for several members.

use std::ops::Range;
use std::sync::Arc;

use crate::redlock::Command;

/// Maximum number of encoded requests that are compared with the next request.
const LOOKAHEAD: usize = 16;

/// The bytes of recently written requests.
///
/// The I/O task has one buffer for all its connections.
///
/// Connections take requests in the order in which callers enqueue them. So a request that was encoded for one member
/// is usually the next one for another.
#[derive(Default)]
pub(super) struct EncodedRequests {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    next: usize,
}

struct Entry {
    commands: Arc<[Command]>,
    /// True if votes are plain commands.
    ///
    /// Members can differ in that.
    plain: bool,
    range: Range<usize>,
}

impl EncodedRequests {
    /// Forgets all requests, after all members have received them.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.next = 0;
    }

    /// Starts at the first request for the next member.
    pub(super) const fn rewind(&mut self) {
        self.next = 0;
    }

    /// Writes the request.
    ///
    /// `encode` encodes it if it is new.
    pub(super) fn write(
        &mut self,
        out: &mut Vec<u8>,
        commands: &Arc<[Command]>,
        plain: bool,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        let matches = |entry: &Entry| Arc::ptr_eq(&entry.commands, commands) && entry.plain == plain;
        let candidates = self.entries.iter().enumerate().skip(self.next).take(LOOKAHEAD);
        let index =
            candidates.into_iter().find(|(_, entry)| matches(entry)).map_or(self.entries.len(), |(index, _)| index);
        if index == self.entries.len() {
            let begin = self.bytes.len();
            encode(&mut self.bytes);
            let range = begin..self.bytes.len();
            self.entries.push(Entry { commands: Arc::clone(commands), plain, range });
        }
        // A request for this member alone does not change the order of the other requests.
        if index < self.entries.len() - 1 || self.next == index {
            self.next = index + 1;
        }
        if let Some(bytes) = self.entries.get(index).and_then(|entry| self.bytes.get(entry.range.clone())) {
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
        let mut encoded = EncodedRequests::default();
        let mut encodings = 0;
        let mut of = |asked: &[(usize, bool)]| {
            encoded.rewind();
            let mut out = Vec::new();
            for (index, plain) in asked {
                encoded.write(&mut out, &requests[*index], *plain, |out| {
                    encodings += 1;
                    out.push(b'0' + u8::try_from(*index).unwrap() + if *plain { 5 } else { 0 });
                });
            }
            String::from_utf8(out).unwrap()
        };
        assert_eq!(of(&[(0, false), (1, false), (2, false)]), "012");
        assert_eq!(of(&[(0, false), (1, false), (2, false)]), "012");
        // A member with fewer requests, and a member that votes by script.
        assert_eq!(of(&[(0, false), (2, false)]), "02");
        assert_eq!(of(&[(0, true), (1, false), (2, true)]), "517");
        assert_eq!(of(&[(2, false), (0, false)]), "20");
        assert!(encodings <= 6, "{encodings}");
        encoded.clear();
        assert_eq!(encoded.entries.len(), 0);
    }
}
