//! The subset of Redis' protocol that a fake master needs: commands as arrays of strings, and replies.

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Ok,
    Pong,
    Int(i64),
    Text(String),
    Nil,
    Array(Vec<Self>),
    Error(String),
}

impl Reply {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let line = match self {
            Self::Ok => "+OK".to_owned(),
            Self::Pong => "+PONG".to_owned(),
            Self::Int(number) => format!(":{number}"),
            Self::Text(text) => format!("${}\r\n{text}", text.len()),
            Self::Nil => "$-1".to_owned(),
            Self::Array(elements) => {
                out.extend_from_slice(format!("*{}\r\n", elements.len()).as_bytes());
                return elements.iter().for_each(|element| element.write(out));
            }
            Self::Error(text) => format!("-{text}"),
        };
        out.extend_from_slice(line.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

/// The input is no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Removes the first command from the buffer.
///
/// `None` if it is incomplete.
pub(super) fn take(buffer: &mut Vec<u8>) -> Result<Option<Vec<String>>, Malformed> {
    let Some((count, mut at)) = length(buffer, 0, b'*')? else { return Ok(None) };
    let mut arguments = Vec::new();
    for _ in 0..count {
        let Some((length, start)) = length(buffer, at, b'$')? else { return Ok(None) };
        let Some(argument) = buffer.get(start..start + length) else { return Ok(None) };
        arguments.push(String::from_utf8_lossy(argument).into_owned());
        at = start + length + 2;
    }
    if buffer.len() < at {
        return Ok(None);
    }
    buffer.drain(..at);
    Ok(Some(arguments))
}

/// The number in a line that begins with `kind`, and the start of the next line.
fn length(buffer: &[u8], at: usize, kind: u8) -> Result<Option<(usize, usize)>, Malformed> {
    let rest = buffer.get(at..).unwrap_or_default();
    let Some(end) = rest.windows(2).position(|bytes| bytes == b"\r\n") else { return Ok(None) };
    let number = rest[..end].strip_prefix(&[kind]).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    Ok(Some((number.ok_or(Malformed)?, at + end + 2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_commands_are_removed_one_by_one() {
        let all = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n";
        let mut buffer = Vec::new();
        let mut taken = Vec::new();
        for byte in all {
            buffer.push(*byte);
            taken.extend(take(&mut buffer).unwrap());
        }
        assert_eq!(taken, [vec!["GET", "k"], vec!["PING"]]);
        assert!(buffer.is_empty());
        assert_eq!(take(&mut b"PING\r\n".to_vec()), Err(Malformed));
    }
}
