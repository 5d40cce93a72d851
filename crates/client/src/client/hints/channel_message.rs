//! Messages between clients on the channel of a key.

/// A message between clients.
///
/// It is one number, because subscribers of Redisson, which owns the channel, must be able to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The client with this ticket waits.
    Waiting(i64),
    /// The client with this ticket waits no longer.
    Departed(i64),
    /// The key was released.
    ///
    /// The client with this ticket goes first.
    Next(i64),
    /// The key was released.
    ///
    /// Each release has its own number, except those of Redisson.
    Released(i64),
}

impl Message {
    pub(super) const fn number(self) -> i64 {
        match self {
            Self::Waiting(ticket) => -ticket,
            Self::Departed(ticket) => -ticket - 1,
            Self::Next(number) | Self::Released(number) => number,
        }
    }

    pub(super) fn of(number: i64) -> Self {
        match number {
            ..0 if number % 2 == 0 => Self::Waiting(number.saturating_neg()),
            ..0 => Self::Departed(-(number + 1)),
            2.. if number % 2 == 0 => Self::Next(number),
            _ => Self::Released(number),
        }
    }

    /// A random number, which no other release or waiter has.
    pub(super) fn fresh() -> i64 {
        rand::random_range(1..i64::MAX / 4)
    }

    pub(super) const fn ticket(fresh: i64) -> i64 {
        fresh * 2
    }

    pub(super) const fn released(fresh: i64) -> Self {
        Self::Released(fresh * 2 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ticket of a client.
    const TICKET: i64 = 2;

    #[test]
    fn a_message_is_one_number() {
        let own = [Message::Waiting(TICKET), Message::Departed(TICKET), Message::Next(TICKET), Message::released(7)];
        for message in own.into_iter().chain([Message::Released(0)]) {
            assert_eq!(Message::of(message.number()), message);
        }
        assert_eq!((Message::of(0), Message::of(1)), (Message::Released(0), Message::Released(1)), "Redisson's");
        assert_eq!((Message::of(i64::MIN), Message::of(-1)), (Message::Waiting(i64::MAX), Message::Departed(0)));
    }
}
