//! EVAL and EVALSHA: Lua 5.1 like in Redis.
//!
//! `pairs` iterates in the order of Redis, except for keys of more than 31 bytes. Redis' Lua hashes all of their bytes,
//! and the original Lua skips some. The order is the same each time.

use super::cjson;
use super::core::Core;
use super::number::{cut, general, integer};
use super::resp::Reply;
use super::script_errors::{Failure, describe, readable};
use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Value, VmState};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The chunk name in error messages.
pub(super) const CHUNK: &str = "@user_script";
/// The number of checks after which the machine treats a script as endless.
const LONGEST: u32 = 20;
/// Lua instructions between two checks of the running time.
const INSTRUCTIONS: u32 = 100_000;
const NOSCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";

/// The Lua of one process.
pub(super) struct Scripts {
    lua: Lua,
    environment: Table,
    globals: Table,
    run: Function,
    loaded: BTreeMap<String, Function>,
    /// Number of checks since the start of the current script.
    checks: Rc<Cell<u32>>,
}

impl Scripts {
    pub(super) fn new(core: &Rc<RefCell<Core>>) -> Self {
        Self::make(core).expect("the prelude runs")
    }

    fn make(core: &Rc<RefCell<Core>>) -> mlua::Result<Self> {
        let lua = Lua::new_with(StdLib::STRING | StdLib::TABLE | StdLib::MATH, LuaOptions::default())?;
        let checks = Rc::new(Cell::new(0));
        let counter = Rc::clone(&checks);
        lua.set_hook(HookTriggers::new().every_nth_instruction(INSTRUCTIONS), move |_, _| {
            counter.set(counter.get() + 1);
            if counter.get() < LONGEST { Ok(VmState::Continue) } else { Err(Failure::Endless.into()) }
        })?;
        let command = |raises: bool| {
            let core = Rc::clone(core);
            lua.create_function(move |lua, arguments: MultiValue| {
                let reply = request(arguments).map_or_else(Reply::Error, |r| core.borrow_mut().run_for_script(&r));
                match reply {
                    Reply::Error(error) if raises => Err(Failure::Reply(error).into()),
                    reply => to_lua(lua, &reply),
                }
            })
        };
        let prelude = lua.load(include_str!("prelude.lua")).set_name("@prelude").into_function()?;
        let (environment, globals, run) = prelude.call((
            command(true)?,
            command(false)?,
            lua.create_function(|lua, error: Value| readable(lua, error))?,
            lua.create_function(|lua, error: Value| describe(lua, &error))?,
            lua.create_function(sha1hex)?,
            lua.create_function(|lua, value: Value| lua.create_string(cjson::encode(&value)?))?,
            lua.create_function(|lua, text: Value| cjson::decode(lua, &text))?,
            Value::NULL,
        ))?;
        Ok(Self { environment, globals, run, loaded: BTreeMap::new(), checks, lua })
    }

    /// `SCRIPT LOAD`.
    pub(super) fn load(&mut self, code: &[u8]) -> Reply {
        self.digest_of(code).map_or_else(Reply::Error, Reply::text)
    }

    /// `SCRIPT EXISTS`.
    pub(super) fn exist(&self, digests: &[Vec<u8>]) -> Reply {
        let known = |digest: &Vec<u8>| self.loaded.contains_key(&String::from_utf8_lossy(digest).to_ascii_lowercase());
        Reply::Array(digests.iter().map(|digest| Reply::bool(known(digest))).collect())
    }

    pub(super) fn flush(&mut self) {
        self.loaded.clear();
    }

    fn digest_of(&mut self, code: &[u8]) -> Result<String, String> {
        let digest = sha1(code);
        if !self.loaded.contains_key(&digest) {
            let chunk = self.lua.load(code).set_name(CHUNK);
            let function = chunk.set_environment(self.environment.clone()).into_function().map_err(|error| {
                let message = match error {
                    mlua::Error::SyntaxError { message, .. } => message,
                    other => other.to_string(),
                };
                format!("ERR Error compiling script (new function): {message}")
            })?;
            self.loaded.insert(digest.clone(), function);
        }
        Ok(digest)
    }

    /// `EVAL` or `EVALSHA`.
    ///
    /// Returns `None` if the script does not end.
    pub(super) fn run(&mut self, by_digest: bool, request: &[Vec<u8>]) -> Option<Reply> {
        match self.prepare(by_digest, request) {
            Ok((digest, function, keys)) => {
                let (keys, arguments) = request[3..].split_at(keys);
                self.execute(&digest, function, keys, arguments).unwrap_or_else(|error| Some(unexpected(&error)))
            }
            Err(error) => Some(Reply::Error(error)),
        }
    }

    fn prepare(&mut self, by_digest: bool, request: &[Vec<u8>]) -> Result<(String, Function, usize), String> {
        if by_digest && request[1].len() != 40 {
            return Err(NOSCRIPT.to_owned());
        }
        let keys = integer(&request[2]).ok_or("ERR value is not an integer or out of range")?;
        let most = i64::try_from(request.len() - 3).unwrap();
        if keys > most {
            return Err("ERR Number of keys can't be greater than number of args".to_owned());
        }
        let keys = usize::try_from(keys).map_err(|_| "ERR Number of keys can't be negative")?;
        let digest = if by_digest {
            String::from_utf8_lossy(&request[1]).to_ascii_lowercase()
        } else {
            self.digest_of(&request[1])?
        };
        let function = self.loaded.get(&digest).cloned().ok_or(NOSCRIPT)?;
        Ok((digest, function, keys))
    }

    fn execute(
        &self,
        digest: &str,
        function: Function,
        keys: &[Vec<u8>],
        arguments: &[Vec<u8>],
    ) -> mlua::Result<Option<Reply>> {
        let list = |texts: &[Vec<u8>]| {
            let texts: mlua::Result<Vec<_>> = texts.iter().map(|text| self.lua.create_string(text)).collect();
            self.lua.create_sequence_from(texts?)
        };
        self.globals.raw_set("KEYS", list(keys)?)?;
        self.globals.raw_set("ARGV", list(arguments)?)?;
        self.checks.set(0);
        let (succeeded, value): (bool, Value) = self.run.call(function)?;
        if succeeded {
            return to_reply(&value).map(Some);
        }
        let Value::Table(failure) = value else { return Ok(Some(Reply::error("ERR an error without a description"))) };
        if failure.raw_get::<bool>("endless")? {
            return Ok(None);
        }
        let error: mlua::LuaString = failure.raw_get("err")?;
        let line: i64 = failure.raw_get("line")?;
        let text = error.to_string_lossy();
        Ok(Some(Reply::Error(format!("{text} script: {digest}, on {CHUNK}:{line}."))))
    }
}

pub(super) fn is_flush_mode(mode: &[u8]) -> bool {
    mode.eq_ignore_ascii_case(b"SYNC") || mode.eq_ignore_ascii_case(b"ASYNC")
}

fn unexpected(error: &mlua::Error) -> Reply {
    Reply::error(format!("ERR {error}"))
}

fn sha1(text: &[u8]) -> String {
    ::redis::Script::new(&String::from_utf8_lossy(text)).get_hash().to_owned()
}

fn sha1hex(lua: &Lua, arguments: MultiValue) -> mlua::Result<mlua::LuaString> {
    match (arguments.len(), arguments.front().and_then(text_of)) {
        (1, Some(text)) => lua.create_string(sha1(&text)),
        _ => Err(Failure::Reply("ERR wrong number of arguments".to_owned()).into()),
    }
}

/// A string, or a number converted to a string.
fn text_of(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        #[allow(clippy::cast_precision_loss, reason = "all numbers of Lua 5.1 are floating-point numbers")]
        Value::Integer(number) => Some(general(*number as f64, 17).into_bytes()),
        Value::Number(number) => Some(general(*number, 17).into_bytes()),
        _ => None,
    }
}

fn request(arguments: MultiValue) -> Result<Vec<Vec<u8>>, String> {
    if arguments.is_empty() {
        return Err("ERR Please specify at least one argument for this redis lib call".to_owned());
    }
    let words: Option<Vec<_>> = arguments.iter().map(text_of).collect();
    words.ok_or_else(|| "ERR Lua redis lib command arguments must be strings or integers".to_owned())
}

fn to_lua(lua: &Lua, reply: &Reply) -> mlua::Result<Value> {
    let field = |name: &str, text: &str| {
        let table = lua.create_table()?;
        table.raw_set(name, text)?;
        Ok(Value::Table(table))
    };
    match reply {
        Reply::Status(text) => field("ok", text),
        Reply::Error(text) => field("err", text),
        Reply::Int(number) => Ok(Value::Integer(*number)),
        Reply::Bulk(text) => Ok(Value::String(lua.create_string(text)?)),
        Reply::Nil | Reply::NilArray => Ok(Value::Boolean(false)),
        Reply::Array(parts) => {
            let table = lua.create_table()?;
            for part in parts {
                table.raw_push(to_lua(lua, part)?)?;
            }
            Ok(Value::Table(table))
        }
    }
}

fn to_reply(value: &Value) -> mlua::Result<Reply> {
    Ok(match value {
        Value::String(text) => Reply::text(&*text.as_bytes()),
        Value::Integer(number) => Reply::Int(*number),
        Value::Number(number) => Reply::Int(cut(*number)),
        Value::Boolean(true) => Reply::Int(1),
        Value::Table(table) => {
            let text = |name: &str| {
                table.raw_get::<Value>(name).map(|value| match value {
                    Value::String(text) => Some(text.to_string_lossy()),
                    _ => None,
                })
            };
            if let Some(error) = text("err")? {
                return Ok(Reply::Error(error));
            }
            if let Some(status) = text("ok")? {
                return Ok(Reply::Status(status));
            }
            if let Value::Number(number) = table.raw_get("double")? {
                return Ok(Reply::text(general(number, 17)));
            }
            let mut parts = Vec::new();
            loop {
                match table.raw_get::<Value>(parts.len() + 1)? {
                    Value::Nil => break,
                    part => parts.push(to_reply(&part)?),
                }
            }
            Reply::Array(parts)
        }
        _ => Reply::Nil,
    })
}
