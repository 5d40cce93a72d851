//! The protocol between `run` and its guard: lines of JSON over one socket.

use serde::{Deserialize, Serialize};

use crate::hold::exit::CommandStatus;
use redlock_engine::time::Boottime;

/// A command of `run` to the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum GuardCommand {
    /// The command can run until `ask`, and none of its processes runs after `kill`.
    Until {
        #[serde(with = "boottime")]
        ask: Boottime,
        #[serde(with = "boottime")]
        kill: Boottime,
    },
    /// Pass a signal on to the command.
    Forward(i32),
    /// End the command: its signal now, SIGKILL at that time.
    End {
        #[serde(with = "boottime")]
        kill: Boottime,
    },
}

/// An event of the guard for `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum GuardEvent {
    /// The command has this process ID.
    Started(i32),
    /// The deadline has passed, so the guard ends the command.
    Ending,
    /// The command ended. Its descendants can still run.
    Ended(CommandStatus),
    /// All processes of the command ended.
    Empty,
}

/// Boot time as a duration. All processes of one kernel share this clock.
mod boottime {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Boottime;

    pub(super) fn serialize<S: Serializer>(at: &Boottime, to: S) -> Result<S::Ok, S::Error> {
        at.since_boot().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Boottime, D::Error> {
        Duration::deserialize(from).map(Boottime::new)
    }
}

/// A message as one line.
pub(super) fn line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::at;

    #[test]
    fn a_message_is_one_line_that_the_other_side_reads() {
        let command = GuardCommand::Until { ask: at(1), kill: at(70_000) };
        let sent = line(&command);
        assert_eq!(sent.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(serde_json::from_slice::<GuardCommand>(&sent).unwrap(), command);
        let event = GuardEvent::Ended(CommandStatus::Signal(9));
        assert_eq!(serde_json::from_slice::<GuardEvent>(&line(&event)).unwrap(), event);
    }
}
