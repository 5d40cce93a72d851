//! The part of Redis' protocol (RESP2) that a voting connection needs: commands as arrays of strings, and flat replies.

/// A reply, or what it has read so far, may have so many bytes. A member may be anybody's, and must not fill this process.
const LONGEST_REPLY: usize = 256 << 10;
/// Parts of an array, such as those of the scripts' answers.
const MOST_PARTS: usize = 64;

/// One reply. It borrows from the buffer that it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Simple(&'a [u8]),
    Error(&'a [u8]),
    Int(i64),
    Bulk(&'a [u8]),
    Nil,
    Array(Vec<Value<'a>>),
}

/// What was read is no reply that a voting connection asks for: the connection is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The first reply in the buffer and how many bytes it has; `None` while it is not complete.
pub(super) fn parse(buffer: &[u8]) -> Result<Option<(Value<'_>, usize)>, Malformed> {
    let parsed = value(buffer, true)?;
    if parsed.is_none() && buffer.len() > LONGEST_REPLY { Err(Malformed) } else { Ok(parsed) }
}

fn value(buffer: &[u8], may_be_array: bool) -> Result<Option<(Value<'_>, usize)>, Malformed> {
    let Some((&kind, _)) = buffer.split_first() else { return Ok(None) };
    let Some((line, start)) = line(buffer) else { return Ok(None) };
    let simple = match kind {
        b'+' => Value::Simple(line),
        b'-' => Value::Error(line),
        b':' => Value::Int(number(line).ok_or(Malformed)?),
        b'$' => return bulk(buffer, line, start),
        b'*' if may_be_array => return array(buffer, line, start),
        _ => return Err(Malformed),
    };
    Ok(Some((simple, start)))
}

fn bulk<'a>(buffer: &'a [u8], line: &[u8], start: usize) -> Result<Option<(Value<'a>, usize)>, Malformed> {
    if line == b"-1" {
        return Ok(Some((Value::Nil, start)));
    }
    let length = length(line, LONGEST_REPLY)?;
    let Some(rest) = buffer.get(start..start + length + 2) else { return Ok(None) };
    let (text, end) = rest.split_at(length);
    if end == b"\r\n" { Ok(Some((Value::Bulk(text), start + length + 2))) } else { Err(Malformed) }
}

fn array<'a>(buffer: &'a [u8], line: &[u8], start: usize) -> Result<Option<(Value<'a>, usize)>, Malformed> {
    if line == b"-1" {
        return Ok(Some((Value::Nil, start)));
    }
    let count = length(line, MOST_PARTS)?;
    let (mut parts, mut end) = (Vec::with_capacity(count), start);
    for _ in 0..count {
        let Some((part, length)) = value(&buffer[end..], false)? else { return Ok(None) };
        parts.push(part);
        end += length;
    }
    Ok(Some((Value::Array(parts), end)))
}

/// What stands between the kind and the end of the first line, and where the next one begins.
fn line(buffer: &[u8]) -> Option<(&[u8], usize)> {
    let end = buffer.iter().position(|byte| *byte == b'\n')?;
    let line = buffer.get(1..end)?;
    Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn length(text: &[u8], most: usize) -> Result<usize, Malformed> {
    let length = number(text).and_then(|length| usize::try_from(length).ok());
    length.filter(|length| *length <= most).ok_or(Malformed)
}

/// Begins a command of so many words, each of which is to follow.
pub(super) fn begin(out: &mut Vec<u8>, words: usize) {
    out.push(b'*');
    decimal(out, words as u64);
    out.extend_from_slice(b"\r\n");
}

/// One word of a command.
pub(super) fn word(out: &mut Vec<u8>, word: impl AsRef<[u8]>) {
    let word = word.as_ref();
    out.push(b'$');
    decimal(out, word.len() as u64);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

/// One word that is a number.
pub(super) fn word_of(out: &mut Vec<u8>, number: u64) {
    word(out, digits(number, &mut [0; 20]));
}

/// A whole command.
pub(super) fn command(out: &mut Vec<u8>, words: &[&str]) {
    begin(out, words.len());
    words.iter().for_each(|text| word(out, text));
}

fn decimal(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(digits(number, &mut [0; 20]));
}

fn digits(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    &digits[start..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn replies_are_read_as_they_come() {
        let whole = b"+OK\r\n-ERR no\r\n:-7\r\n$2\r\nab\r\n$-1\r\n*3\r\n:1\r\n$0\r\n\r\n+x\r\n*-1\r\n";
        let expected = [
            Value::Simple(b"OK"),
            Value::Error(b"ERR no"),
            Value::Int(-7),
            Value::Bulk(b"ab"),
            Value::Nil,
            Value::Array(vec![Value::Int(1), Value::Bulk(b""), Value::Simple(b"x")]),
            Value::Nil,
        ];
        let mut rest = &whole[..];
        for value in expected {
            let (_, length) = parse(rest).unwrap().unwrap();
            for cut in 0..length {
                assert_eq!(parse(&rest[..cut]), Ok(None), "{cut} of {value:?}");
            }
            assert_eq!(parse(rest), Ok(Some((value, length))));
            rest = &rest[length..];
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn what_is_too_long_or_nested_is_refused_before_it_is_read() {
        for bad in
            [&b"$1000000\r\n"[..], b"*65\r\n", b"*1\r\n*1\r\n:1\r\n", b"%1\r\n", b":x\r\n", b"$-2\r\n", b"$2\r\nabcd"]
        {
            assert_eq!(parse(bad), Err(Malformed), "{:?}", String::from_utf8_lossy(bad));
        }
        let endless = vec![b'+'; LONGEST_REPLY + 2];
        assert_eq!(parse(&endless), Err(Malformed));
    }

    #[test]
    fn commands_are_arrays_of_strings() {
        let mut out = Vec::new();
        begin(&mut out, 3);
        word(&mut out, "SET");
        word_of(&mut out, 0);
        word_of(&mut out, 18_446_744_073_709_551_615);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\n0\r\n$20\r\n18446744073709551615\r\n");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), kind in "[-+:$*]") {
            let _ = parse(&bytes);
            let mut typed = kind.into_bytes();
            typed.extend(bytes);
            if let Ok(Some((_, length))) = parse(&typed) {
                prop_assert!(length <= typed.len());
            }
        }

        #[test]
        fn a_longer_buffer_changes_no_complete_reply(bytes in "[-+:$*0-9a\r\n]{0,40}", more in "[-+:$*0-9a\r\n]{0,9}") {
            if let Ok(Some(parsed)) = parse(bytes.as_bytes()) {
                let longer = format!("{bytes}{more}");
                prop_assert_eq!(parse(longer.as_bytes()), Ok(Some(parsed)));
            }
        }
    }
}
