//! One exchange with a member: commands, and then their answers.

use redis::{Pipeline, Value, parse_redis_value_async};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::redis_member::{Stream, wire};
use crate::redlock::MemberError;

/// Maximum bytes of the answers to one exchange. The longest expected answer lists all users.
///
/// The parser collects an answer until it is complete, whatever its size. So a hostile external master could fill the memory of this
/// process, and stop the renewal of every other lock.
const LONGEST_ANSWER: u64 = 256 << 10;

/// Sends the commands, and reads one answer to each of them.
pub(super) async fn exchange(stream: &mut dyn Stream, commands: &Pipeline) -> Result<Vec<Value>, MemberError> {
    let request = commands.get_packed_pipeline();
    // A failed write is not the outcome. A full member refuses the connection with an answer, and closes it.
    let _ = stream.write_all(&request).await;
    let _ = stream.flush().await;
    let mut received = stream.take(LONGEST_ANSWER);
    // It keeps the bytes after one answer for the next one.
    let mut decoder = Default::default();
    let mut answers = Vec::new();
    for _ in 0..commands.len() {
        let answer = parse_redis_value_async(&mut decoder, &mut received).await;
        answers.push(answer.map_err(|error| wire::error(&error))?);
    }
    // A part of an answer without a request would be read as the next answer.
    if decoder.buffer().is_empty() { Ok(answers) } else { Err(wire::unexpected()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(number: usize) -> Pipeline {
        let mut commands = Pipeline::new();
        for _ in 0..number {
            commands.cmd("PING");
        }
        commands
    }

    /// An answer of one string, with this number of bytes.
    fn answer(length: usize) -> Vec<u8> {
        format!("${length}\r\n{}\r\n", "x".repeat(length)).into_bytes()
    }

    #[tokio::test]
    async fn an_answer_that_does_not_end_ends_the_connection() {
        let (mut near, mut far) = tokio::io::duplex(4 << 20);
        for (lengths, is_read) in [([100_000, 100_000], true), ([100_000, 100_000], true), ([100_000, 200_000], false)]
        {
            for length in lengths {
                far.write_all(&answer(length)).await.unwrap();
            }
            let read = exchange(&mut near, &commands(2)).await;
            assert_eq!(read.is_ok(), is_read, "{lengths:?}");
        }
    }

    #[tokio::test]
    async fn more_answers_than_requests_are_an_error() {
        let (mut near, mut far) = tokio::io::duplex(1_024);
        far.write_all(b"+PONG\r\n+PONG\r\n+PO").await.unwrap();
        assert!(exchange(&mut near, &commands(2)).await.is_err());
    }

    #[tokio::test]
    async fn the_last_answer_of_a_closed_connection_is_read() {
        let (mut near, mut far) = tokio::io::duplex(1_024);
        far.write_all(b"-ERR max number of clients reached\r\n").await.unwrap();
        drop(far);
        let refusal = exchange(&mut near, &commands(1)).await.unwrap();
        assert!(matches!(refusal[..], [Value::ServerError(_)]), "{refusal:?}");
        let closed = exchange(&mut near, &commands(1)).await;
        assert_eq!(closed, Err(MemberError::Unreachable("connection closed".to_owned())));
    }
}
