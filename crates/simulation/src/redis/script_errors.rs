//! Errors of failed scripts.

use super::script::CHUNK;
use mlua::{Lua, Table, Value};
use std::fmt;

/// Errors that the server's own functions raise.
#[derive(Debug)]
pub(super) enum Failure {
    /// The error of a command, with its code.
    Reply(String),
    /// The message of a library, without the position of the call.
    Library(String),
    /// The script does not end.
    Endless,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply(text) | Self::Library(text) => f.write_str(text),
            Self::Endless => f.write_str("the script does not end"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for mlua::Error {
    fn from(failure: Failure) -> Self {
        Self::external(failure)
    }
}

fn failure(error: &mlua::Error) -> Option<&Failure> {
    error.chain().find_map(|cause| cause.downcast_ref::<Failure>())
}

/// An error as `pcall` returns it to a script.
pub(super) fn readable(lua: &Lua, error: Value) -> mlua::Result<Value> {
    match &error {
        Value::Table(table) => match table.raw_get::<Value>("err")? {
            Value::String(text) => Ok(Value::String(text)),
            _ => Ok(error),
        },
        Value::Error(inner) => {
            let text = failure(inner).map_or_else(|| inner.to_string(), ToString::to_string);
            Ok(Value::String(lua.create_string(text)?))
        }
        _ => Ok(error),
    }
}

/// The error that ends a script: its text, its line, and whether the script never ends.
pub(super) fn describe(lua: &Lua, error: &Value) -> mlua::Result<Table> {
    let line = line(lua);
    let mut endless = false;
    let text = match error {
        Value::Table(table) => match table.raw_get::<Value>("err")? {
            Value::String(text) => text.to_string_lossy(),
            _ => "ERR unknown error".to_owned(),
        },
        Value::Error(inner) => match failure(inner) {
            Some(Failure::Reply(text)) => text.clone(),
            Some(Failure::Library(text)) => format!("ERR {}:{line}: {text}", &CHUNK[1..]),
            Some(Failure::Endless) => {
                endless = true;
                String::new()
            }
            None => format!("ERR {inner}"),
        },
        Value::String(text) => format!("ERR {}", text.to_string_lossy()),
        other => format!("ERR {}", other.to_string()?),
    };
    let table = lua.create_table()?;
    table.raw_set("err", text)?;
    table.raw_set("line", line)?;
    table.raw_set("endless", endless)?;
    Ok(table)
}

/// The current line of the script.
///
/// A tail call leaves no trace of the script: then the line is 1.
fn line(lua: &Lua) -> usize {
    (0..64)
        .map_while(|level| {
            lua.inspect_stack(level, |frame| {
                let own = frame.source().source.is_some_and(|source| source == CHUNK);
                own.then(|| frame.current_line()).flatten()
            })
        })
        .flatten()
        .next()
        .unwrap_or(1)
}
