//! The cjson of Redis: 14 digits, `\/`, and `{}` for an empty table.

use super::number::general;
use super::script_errors::Failure;
use mlua::{Lua, Table, Value};

fn fail<T>(text: impl Into<String>) -> mlua::Result<T> {
    Err(Failure::Library(text.into()).into())
}

pub(super) fn encode(value: &Value) -> mlua::Result<Vec<u8>> {
    let mut out = Vec::new();
    write(value, 0, &mut out)?;
    Ok(out)
}

fn write(value: &Value, depth: usize, out: &mut Vec<u8>) -> mlua::Result<()> {
    match value {
        Value::Nil => out.extend(b"null"),
        Value::LightUserData(pointer) if pointer.0.is_null() => out.extend(b"null"),
        Value::Boolean(value) => out.extend(value.to_string().bytes()),
        #[allow(clippy::cast_precision_loss, reason = "all numbers of Lua 5.1 are floating-point numbers")]
        Value::Integer(number) => out.extend(general(*number as f64, 14).bytes()),
        Value::Number(number) if !number.is_finite() => return fail("Cannot serialise number: must not be NaN or Inf"),
        Value::Number(number) => out.extend(general(*number, 14).bytes()),
        Value::String(text) => write_text(&text.as_bytes(), out),
        Value::Table(_) if depth >= 1_000 => return fail("Cannot serialise, excessive depth (1001)"),
        Value::Table(table) => match length(table)? {
            Some(length) => write_list(table, length, depth, out)?,
            None => write_object(table, depth, out)?,
        },
        other => return fail(format!("Cannot serialise {}: type not supported", other.type_name())),
    }
    Ok(())
}

/// The length of a list, or `None` for an empty table and for a table that is not a list.
fn length(table: &Table) -> mlua::Result<Option<i64>> {
    let (mut longest, mut items) = (0, 0);
    for pair in table.pairs::<Value, Value>() {
        match pair?.0 {
            Value::Integer(key) if key >= 1 => {
                longest = longest.max(key);
                items += 1;
            }
            _ => return Ok(None),
        }
    }
    if longest > items * 2 && longest > 10 {
        return fail("Cannot serialise table: excessively sparse array");
    }
    Ok((longest > 0).then_some(longest))
}

fn write_list(table: &Table, length: i64, depth: usize, out: &mut Vec<u8>) -> mlua::Result<()> {
    out.push(b'[');
    for index in 1..=length {
        if index > 1 {
            out.push(b',');
        }
        write(&table.raw_get::<Value>(index)?, depth + 1, out)?;
    }
    out.push(b']');
    Ok(())
}

fn write_object(table: &Table, depth: usize, out: &mut Vec<u8>) -> mlua::Result<()> {
    out.push(b'{');
    for (number, pair) in table.pairs::<Value, Value>().enumerate() {
        let (key, value) = pair?;
        if number > 0 {
            out.push(b',');
        }
        match &key {
            Value::String(text) => write_text(&text.as_bytes(), out),
            Value::Integer(_) | Value::Number(_) => {
                out.push(b'"');
                write(&key, depth, out)?;
                out.push(b'"');
            }
            other => {
                let kind = other.type_name();
                return fail(format!("Cannot serialise {kind}: table key must be a number or string"));
            }
        }
        out.push(b':');
        write(&value, depth + 1, out)?;
    }
    out.push(b'}');
    Ok(())
}

fn write_text(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' => out.extend(b"\\\""),
            b'\\' => out.extend(b"\\\\"),
            b'/' => out.extend(b"\\/"),
            b'\x08' => out.extend(b"\\b"),
            b'\t' => out.extend(b"\\t"),
            b'\n' => out.extend(b"\\n"),
            b'\x0c' => out.extend(b"\\f"),
            b'\r' => out.extend(b"\\r"),
            0..=31 | 127 => out.extend(format!("\\u{byte:04x}").bytes()),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
}

/// Parses JSON.
///
/// An error has the text of Redis, without the exact position.
pub(super) fn decode(lua: &Lua, text: &Value) -> mlua::Result<Value> {
    let Value::String(text) = text else {
        return fail(format!("bad argument #1 to 'decode' (string expected, got {})", text.type_name()));
    };
    let text = text.as_bytes().to_vec();
    let mut reader = Reader { lua, text: &text, at: 0 };
    let value = reader.value(0)?;
    reader.skip();
    if reader.at < text.len() { reader.expected("the end") } else { Ok(value) }
}

struct Reader<'r> {
    lua: &'r Lua,
    text: &'r [u8],
    at: usize,
}

impl Reader<'_> {
    fn skip(&mut self) {
        while self.text.get(self.at).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Skips spaces, and consumes the next character if it is this one.
    fn takes(&mut self, character: u8) -> bool {
        self.skip();
        let found = self.text.get(self.at) == Some(&character);
        self.at += usize::from(found);
        found
    }

    fn expected<T>(&mut self, what: &str) -> mlua::Result<T> {
        self.skip();
        let found = match self.text.get(self.at) {
            None => "T_END",
            Some(b'{') => "T_OBJ_BEGIN",
            Some(b'}') => "T_OBJ_END",
            Some(b'[') => "T_ARR_BEGIN",
            Some(b']') => "T_ARR_END",
            Some(b',') => "T_COMMA",
            Some(b':') => "T_COLON",
            Some(b'"') => "T_STRING",
            Some(b'0'..=b'9' | b'-') => "T_NUMBER",
            Some(_) => "invalid token",
        };
        fail(format!("Expected {what} but found {found} at character {}", self.at + 1))
    }

    fn value(&mut self, depth: usize) -> mlua::Result<Value> {
        if depth > 1_000 {
            return fail(format!("Found too many nested data structures ({depth}) at character {}", self.at + 1));
        }
        self.skip();
        let rest = &self.text[self.at..];
        for (word, value) in [("true", Value::Boolean(true)), ("false", Value::Boolean(false)), ("null", Value::NULL)] {
            if rest.starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        match rest.first() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => self.string(),
            Some(b'0'..=b'9' | b'-') => self.number(),
            _ => self.expected("value"),
        }
    }

    fn list(&mut self, depth: usize) -> mlua::Result<Value> {
        self.at += 1;
        let table = self.lua.create_table()?;
        if self.takes(b']') {
            return Ok(Value::Table(table));
        }
        for index in 1.. {
            table.raw_set(index, self.value(depth + 1)?)?;
            if self.takes(b']') {
                break;
            }
            if !self.takes(b',') {
                return self.expected("comma or array end");
            }
        }
        Ok(Value::Table(table))
    }

    fn object(&mut self, depth: usize) -> mlua::Result<Value> {
        self.at += 1;
        let table = self.lua.create_table()?;
        if self.takes(b'}') {
            return Ok(Value::Table(table));
        }
        loop {
            self.skip();
            if self.text.get(self.at) != Some(&b'"') {
                return self.expected("object key string");
            }
            let key = self.string()?;
            if !self.takes(b':') {
                return self.expected("colon");
            }
            table.raw_set(key, self.value(depth + 1)?)?;
            if self.takes(b'}') {
                return Ok(Value::Table(table));
            }
            if !self.takes(b',') {
                return self.expected("comma or object end");
            }
        }
    }

    fn number(&mut self) -> mlua::Result<Value> {
        let rest = &self.text[self.at..];
        let end = rest.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'));
        let digits = &rest[..end.unwrap_or(rest.len())];
        let Some(number) = std::str::from_utf8(digits).ok().and_then(|text| text.parse::<f64>().ok()) else {
            return fail(format!("Expected value but found invalid number at character {}", self.at + 1));
        };
        self.at += digits.len();
        Ok(Value::Number(number))
    }

    fn string(&mut self) -> mlua::Result<Value> {
        let start = self.at;
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let Some(&byte) = self.text.get(self.at) else {
                let at = self.at + 1;
                return fail(format!("Expected value but found unexpected end of string at character {at}"));
            };
            self.at += 1;
            match byte {
                b'"' => return Ok(Value::String(self.lua.create_string(text)?)),
                b'\\' => text.extend(self.escape(start)?),
                byte => text.push(byte),
            }
        }
    }

    fn escape(&mut self, start: usize) -> mlua::Result<Vec<u8>> {
        let escaped = self.text.get(self.at).copied();
        self.at += 1;
        Ok(vec![match escaped {
            Some(byte @ (b'"' | b'\\' | b'/')) => byte,
            Some(b'b') => b'\x08',
            Some(b'f') => b'\x0c',
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => {
                let first = self.unit(start)?;
                let mut units = vec![first];
                if (0xD800..0xDC00).contains(&first) && self.text[self.at..].starts_with(b"\\u") {
                    self.at += 2;
                    units.push(self.unit(start)?);
                }
                return match String::from_utf16(&units) {
                    Ok(text) => Ok(text.into_bytes()),
                    Err(_) => self.bad_escape(start),
                };
            }
            _ => return self.bad_escape(start),
        }])
    }

    fn unit(&mut self, start: usize) -> mlua::Result<u16> {
        let digits = self.text.get(self.at..self.at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        self.at += 4;
        match digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()) {
            Some(unit) => Ok(unit),
            None => self.bad_escape(start),
        }
    }

    fn bad_escape<T>(&self, start: usize) -> mlua::Result<T> {
        fail(format!("Expected value but found invalid escape code at character {}", start + 1))
    }
}
