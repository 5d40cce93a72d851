//! RESP2: requests in, replies out.

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Status(String),
    /// An error with its code, without the `-`.
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Nil,
    NilArray,
    Array(Vec<Reply>),
}

impl Reply {
    pub(super) fn ok() -> Self {
        Self::Status("OK".to_owned())
    }

    pub(super) fn error(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }

    pub(super) fn text(text: impl AsRef<[u8]>) -> Self {
        Self::Bulk(text.as_ref().to_vec())
    }

    pub(super) fn texts<T: AsRef<[u8]>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::Array(texts.into_iter().map(Self::text).collect())
    }

    pub(super) fn bool(value: bool) -> Self {
        Self::Int(i64::from(value))
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Status(text) => out.extend(format!("+{}\r\n", one_line(text)).as_bytes()),
            Self::Error(text) => out.extend(format!("-{}\r\n", one_line(text)).as_bytes()),
            Self::Int(number) => out.extend(format!(":{number}\r\n").as_bytes()),
            Self::Bulk(bytes) => {
                out.extend(format!("${}\r\n", bytes.len()).as_bytes());
                out.extend(bytes);
                out.extend(b"\r\n");
            }
            Self::Nil => out.extend(b"$-1\r\n"),
            Self::NilArray => out.extend(b"*-1\r\n"),
            Self::Array(parts) => {
                out.extend(format!("*{}\r\n", parts.len()).as_bytes());
                parts.iter().for_each(|part| part.write(out));
            }
        }
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

/// A request: the command and its arguments.
pub(super) type Request = Vec<Vec<u8>>;

/// Bytes that a connection has sent and the server has not executed.
#[derive(Default)]
pub(super) struct Input(Vec<u8>);

impl Input {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The next complete request, if there is one.
    ///
    /// An invalid request closes the connection, and so does a long one before authentication.
    pub(super) fn next(&mut self, authenticated: bool) -> Result<Option<Request>, String> {
        loop {
            let Some(first) = self.0.first() else { return Ok(None) };
            let (request, used) = match if *first == b'*' { array(&self.0, authenticated)? } else { inline(&self.0)? } {
                None => return Ok(None),
                Some(parsed) => parsed,
            };
            self.0.drain(..used);
            // Redis ignores empty requests.
            if !request.is_empty() {
                return Ok(Some(request));
            }
        }
    }
}

/// A line up to its end, and the start of the next one.
fn line(bytes: &[u8], from: usize) -> Option<(&[u8], usize)> {
    let end = bytes[from..].windows(2).position(|pair| pair == b"\r\n")?;
    Some((&bytes[from..from + end], from + end + 2))
}

fn number(text: &[u8]) -> Option<i64> {
    super::number::integer(text)
}

fn array(bytes: &[u8], authenticated: bool) -> Result<Option<(Request, usize)>, String> {
    let Some((count, mut at)) = line(bytes, 1) else { return Ok(None) };
    let count = number(count).filter(|count| *count <= i64::from(i32::MAX)).ok_or("invalid multibulk length")?;
    if !authenticated && count > 10 {
        return Err("unauthenticated multibulk length".to_owned());
    }
    let mut request = Vec::new();
    for _ in 0..count {
        let Some(&kind) = bytes.get(at) else { return Ok(None) };
        let Some((length, start)) = line(bytes, at + 1) else { return Ok(None) };
        if kind != b'$' {
            return Err(format!("expected '$', got '{}'", char::from(kind)));
        }
        let length = number(length).filter(|length| (0..=512 << 20).contains(length)).ok_or("invalid bulk length")?;
        if !authenticated && length > 16_384 {
            return Err("unauthenticated bulk length".to_owned());
        }
        let end = start + usize::try_from(length).unwrap();
        if bytes.len() < end + 2 {
            return Ok(None);
        }
        request.push(bytes[start..end].to_vec());
        at = end + 2;
    }
    Ok(Some((request, at)))
}

/// An inline request: a line of words.
fn inline(bytes: &[u8]) -> Result<Option<(Request, usize)>, String> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let text = String::from_utf8_lossy(&bytes[..end]);
    if text.contains(['"', '\'']) {
        return Err("quotes in inline requests are not modelled".to_owned());
    }
    Ok(Some((text.split_ascii_whitespace().map(|word| word.as_bytes().to_vec()).collect(), end + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<Request>, String> {
        let mut input = Input::default();
        let mut requests = Vec::new();
        // The test delivers single bytes, because a request can arrive in any fragments.
        for byte in bytes {
            input.push(&[*byte]);
            while let Some(request) = input.next(true)? {
                requests.push(request);
            }
        }
        Ok(requests)
    }

    #[test]
    fn requests_are_read_in_any_pieces() {
        let requests = all(b"*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\n*0\r\nPING x\r\n*1\r\n$0\r\n\r\n").unwrap();
        let words: Vec<Vec<String>> = requests
            .iter()
            .map(|words| words.iter().map(|w| String::from_utf8_lossy(w).into_owned()).collect())
            .collect();
        assert_eq!(words, [vec!["ECHO", "a\r\n"], vec!["PING", "x"], vec![""]]);
    }

    #[test]
    fn an_invalid_request_is_refused() {
        for (bytes, error) in [
            (&b"*x\r\n"[..], "invalid multibulk length"),
            (b"*1\r\n:3\r\n", "expected '$', got ':'"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
        ] {
            assert_eq!(all(bytes), Err(error.to_owned()));
        }
    }
}
