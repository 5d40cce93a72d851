//! Commands on hashes, which Redisson's locks use.

use super::core::Core;
use super::keyspace::Value;
use super::number::integer;
use super::resp::Reply;
use super::strings::{WRONGTYPE, argument};
use std::collections::BTreeMap;

impl Core {
    pub(super) fn hash(&mut self, name: &str, request: &[Vec<u8>]) -> Option<Reply> {
        if !matches!(name, "hset" | "hget" | "hexists" | "hincrby" | "hdel") {
            return None;
        }
        Some(self.hash_command(name, request).unwrap_or_else(Reply::Error))
    }

    fn hash_command(&mut self, name: &str, request: &[Vec<u8>]) -> Result<Reply, String> {
        let now = self.millis();
        let key = &request[1];
        let by = if name == "hincrby" { argument(&request[3])? } else { 0 };
        let (mut fields, end) = match self.keys.get(key, now) {
            None => (BTreeMap::new(), None),
            Some(entry) => match &entry.value {
                Value::Hash(fields) => (fields.clone(), entry.end),
                Value::String(_) => return Err(WRONGTYPE.to_owned()),
            },
        };
        let reply = match name {
            "hget" => return Ok(fields.get(&request[2]).map_or(Reply::Nil, Reply::text)),
            "hexists" => return Ok(Reply::bool(fields.contains_key(&request[2]))),
            "hset" => {
                let (pairs, rest) = request[2..].as_chunks::<2>();
                if !rest.is_empty() {
                    return Err("ERR wrong number of arguments for 'hset' command".to_owned());
                }
                let added = pairs.iter().filter(|[field, value]| fields.insert(field.clone(), value.clone()).is_none());
                Reply::Int(i64::try_from(added.count()).unwrap())
            }
            "hincrby" => {
                let old = fields.get(&request[2]).map_or(Some(0), |text| integer(text));
                let sum = old.ok_or("ERR hash value is not an integer")?.checked_add(by);
                let sum = sum.ok_or("ERR increment or decrement would overflow")?;
                fields.insert(request[2].clone(), sum.to_string().into_bytes());
                Reply::Int(sum)
            }
            _ => {
                let removed = request[2..].iter().filter(|field| fields.remove(*field).is_some()).count();
                Reply::Int(i64::try_from(removed).unwrap())
            }
        };
        if fields.is_empty() {
            self.keys.remove(key, now);
        } else if reply != Reply::Int(0) || name != "hdel" {
            self.keys.set(key, Value::Hash(fields), end);
        }
        Ok(reply)
    }
}
