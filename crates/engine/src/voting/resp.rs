//! The subset of Redis' protocol (RESP2) that a voting connection needs.
//!
//! Commands are arrays of strings, and replies are flat.

/// Maximum size of a reply, complete or not.
///
/// A member can be under foreign control, and must not fill the memory of this process.
const MAX_REPLY_BYTES: usize = 256 << 10;
/// Maximum number of elements of an array, such as an answer of a script.
const MAX_ELEMENTS: usize = 64;

/// One reply.
///
/// It borrows from the input buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Simple(&'a [u8]),
    Error(&'a [u8]),
    Int(i64),
    Bulk(&'a [u8]),
    Nil,
    Array(Vec<Value<'a>>),
}

/// The input is no reply that a voting connection expects.
///
/// The connection must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Parses the first reply in the buffer, and returns it with its size.
///
/// `None` if it is incomplete.
pub(super) fn parse(buffer: &[u8]) -> Result<Option<(Value<'_>, usize)>, Malformed> {
    let parsed = parse_value(buffer, true)?;
    if parsed.is_none() && buffer.len() > MAX_REPLY_BYTES { Err(Malformed) } else { Ok(parsed) }
}

fn parse_value(buffer: &[u8], allow_array: bool) -> Result<Option<(Value<'_>, usize)>, Malformed> {
    let Some((&kind, _)) = buffer.split_first() else { return Ok(None) };
    let Some((line, start)) = parse_line(buffer) else { return Ok(None) };
    let simple = match kind {
        b'+' => Value::Simple(line),
        b'-' => Value::Error(line),
        b':' => Value::Int(parse_number(line).ok_or(Malformed)?),
        b'$' => return parse_bulk(buffer, line, start),
        b'*' if allow_array => return parse_array(buffer, line, start),
        _ => return Err(Malformed),
    };
    Ok(Some((simple, start)))
}

fn parse_bulk<'a>(buffer: &'a [u8], line: &[u8], start: usize) -> Result<Option<(Value<'a>, usize)>, Malformed> {
    if line == b"-1" {
        return Ok(Some((Value::Nil, start)));
    }
    let length = parse_length(line, MAX_REPLY_BYTES)?;
    let Some(rest) = buffer.get(start..start + length + 2) else { return Ok(None) };
    let (text, end) = rest.split_at(length);
    if end == b"\r\n" { Ok(Some((Value::Bulk(text), start + length + 2))) } else { Err(Malformed) }
}

fn parse_array<'a>(buffer: &'a [u8], line: &[u8], start: usize) -> Result<Option<(Value<'a>, usize)>, Malformed> {
    if line == b"-1" {
        return Ok(Some((Value::Nil, start)));
    }
    let count = parse_length(line, MAX_ELEMENTS)?;
    let (mut elements, mut end) = (Vec::with_capacity(count), start);
    for _ in 0..count {
        let Some((element, length)) = parse_value(&buffer[end..], false)? else { return Ok(None) };
        elements.push(element);
        end += length;
    }
    Ok(Some((Value::Array(elements), end)))
}

/// Returns the first line without its kind and end, and the start of the next line.
fn parse_line(buffer: &[u8]) -> Option<(&[u8], usize)> {
    let end = buffer.iter().position(|byte| *byte == b'\n')?;
    let line = buffer.get(1..end)?;
    Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
}

fn parse_number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn parse_length(text: &[u8], max: usize) -> Result<usize, Malformed> {
    let length = parse_number(text).and_then(|length| usize::try_from(length).ok());
    length.filter(|length| *length <= max).ok_or(Malformed)
}

/// Begins a command with this number of arguments, its name included.
///
/// The caller adds each of them.
pub(super) fn begin(out: &mut Vec<u8>, elements: usize) {
    out.push(b'*');
    decimal(out, elements as u64);
    out.extend_from_slice(b"\r\n");
}

/// Adds one argument.
pub(super) fn bulk(out: &mut Vec<u8>, text: impl AsRef<[u8]>) {
    let text = text.as_ref();
    out.push(b'$');
    decimal(out, text.len() as u64);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

/// Adds one argument that is a number.
pub(super) fn bulk_number(out: &mut Vec<u8>, number: u64) {
    bulk(out, digits(number, &mut [0; 20]));
}

/// Adds a whole command.
pub(super) fn command(out: &mut Vec<u8>, arguments: &[&str]) {
    begin(out, arguments.len());
    arguments.iter().for_each(|text| bulk(out, text));
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
    use proptest::prelude::*;

    use super::*;

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
    fn long_and_nested_replies_are_refused() {
        for bad in
            [&b"$1000000\r\n"[..], b"*65\r\n", b"*1\r\n*1\r\n:1\r\n", b"%1\r\n", b":x\r\n", b"$-2\r\n", b"$2\r\nabcd"]
        {
            assert_eq!(parse(bad), Err(Malformed), "{:?}", String::from_utf8_lossy(bad));
        }
        let endless = vec![b'+'; MAX_REPLY_BYTES + 2];
        assert_eq!(parse(&endless), Err(Malformed));
    }

    #[test]
    fn commands_are_arrays_of_strings() {
        let mut out = Vec::new();
        begin(&mut out, 3);
        bulk(&mut out, "SET");
        bulk_number(&mut out, 0);
        bulk_number(&mut out, 18_446_744_073_709_551_615);
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
