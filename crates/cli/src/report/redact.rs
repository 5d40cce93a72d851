//! Pure: removes secrets and arbitrary values of users from a report.

use serde_json::Value;

/// The text in place of a removed value.
const LEFT_OUT: &str = "(left out)";
/// Fields with arbitrary values of users, and fields that do not help to find a problem.
const DROPPED: [&str; 9] = [
    "managedFields",
    "env",
    "envFrom",
    "httpHeaders",
    "args",
    "command",
    "data",
    "stringData",
    "kubectl.kubernetes.io/last-applied-configuration",
];
/// A text is removed if the name of its field contains one of these words.
const SECRET: [&str; 5] = ["password", "credential", "authorization", "privatekey", "apikey"];
/// Names before a secret in a text.
///
/// A `token` is secret only in an address, because others are fencing tokens.
const NAMED: [&str; 10] = [
    "password=",
    "password:",
    "password\":",
    "passwd=",
    "auth=",
    "bearer:",
    "bearer ",
    "?token=",
    "&token=",
    "access_token=",
];

/// Removes arbitrary values of users and secrets from an object.
pub fn redact(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().map(|(name, field)| {
                let is_secret = SECRET.iter().any(|word| name.to_lowercase().contains(word)) && field.is_string();
                let is_dropped = DROPPED.contains(&name.as_str()) || is_secret;
                let field = if is_dropped { Value::String(LEFT_OUT.into()) } else { redact(field) };
                (name, field)
            });
            Value::Object(kept.filter(|(name, _)| name != "managedFields").collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(redact).collect()),
        Value::String(text) => Value::String(redact_text(&text)),
        other => other,
    }
}

/// Removes the passwords in addresses, and the values after `password=` and similar names.
pub fn redact_text(text: &str) -> String {
    let named: String = text.split_inclusive('\n').map(redact_named).collect();
    named.split_inclusive(|c: char| c.is_whitespace() || "\"'".contains(c)).map(redact_address).collect()
}

/// Removes the values after [`NAMED`] from a line.
///
/// A value without quotes ends at a space or a quote. A colon can have spaces before the value.
fn redact_named(line: &str) -> String {
    let lower = line.to_ascii_lowercase();
    let (mut kept, mut from) = (String::new(), 0);
    let value_from =
        |from: usize| NAMED.iter().filter_map(|name| Some(from + lower[from..].find(name)? + name.len())).min();
    while let Some(named) = value_from(from) {
        let gap = if line[..named].ends_with(':') { [' ', '\\'] } else { ['\\'; 2] };
        let value = line[named..].trim_start_matches(gap);
        let quote = value.chars().next().filter(|c| "\"'".contains(*c));
        let value = quote.map_or(value, |quote| &value[quote.len_utf8()..]);
        let is_end = |c: char| quote.map_or_else(|| c.is_whitespace() || "\"'".contains(c), |quote| c == quote);
        let (begin, length) = (line.len() - value.len(), value.find(is_end).unwrap_or(value.len()));
        kept.extend([&line[from..begin], if length > 0 { LEFT_OUT } else { "" }]);
        from = begin + length;
    }
    kept + &line[from..]
}

fn redact_address(word: &str) -> String {
    // Each part ends with the scheme of the next address, as in redis://u:p@a,redis://u:p@b.
    let mut parts = word.split("://");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let authority = part.split('/').next().unwrap_or_default();
        let (left_out, rest) = authority.rfind('@').map_or(("", part), |at| (LEFT_OUT, &part[at..]));
        kept.extend(["://", left_out, rest]);
    }
    kept
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_omits_values_that_can_be_secret() {
        let object = json!({
            "metadata": {"name": "main", "managedFields": [1],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"}},
            "spec": {"pod": {"extraContainers": [{"image": "x", "env": [{"name": "TOKEN", "value": "hunter2"}], "args": ["--key=1"],
                "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "X", "value": "hunter2"}]}}}]},
                "clients": [{"name": "outside", "adminPassword": "hunter2", "secretRef": {"name": "s"}}]},
            "status": {"fencingToken": 7, "message": "redis://user:hunter2@host:6379/0 is away"},
        });
        let redacted = redact(object);
        let text = redacted.to_string();
        assert!(!text.contains("hunter2") && !text.contains("--key") && !text.contains("managedFields"), "{text}");
        assert_eq!(redacted["status"]["fencingToken"], 7);
        assert_eq!(redacted["status"]["message"], "redis://(left out)@host:6379/0 is away");
        assert_eq!(redacted["spec"]["clients"][0]["secretRef"]["name"], "s");
        assert_eq!(redacted["metadata"]["annotations"]["a"], "b");
    }

    #[test]
    fn every_address_of_a_list_loses_its_password() {
        let list = "--members=redis://u:hunter2@a:1,rediss://u:hunter,3@b:2/0,redis://c";
        assert_eq!(redact_text(list), "--members=redis://(left out)@a:1,rediss://(left out)@b:2/0,redis://c");
    }

    #[test]
    fn a_value_after_a_name_is_removed_in_every_notation() {
        for text in [
            "password: hunter2",
            "password:   'hunter2 3'",
            "Password=\"hunter2 3\" x",
            r#"{"password":"hunter2","token":5}"#,
            r#"{"message":"password: \"hunter2\""}"#,
            "Authorization: Bearer hunter2",
            "GET https://h/x?token=hunter2 200",
            "GET https://u:hunter2@h/x?a=b&token=hunter2&password=hunter2",
        ] {
            let redacted = redact_text(text);
            assert!(redacted.contains(LEFT_OUT) && !redacted.contains("hunter2"), "{redacted}");
        }
        for text in ["lock acquired token=5", "the password:", "auth= x", "password:\nWARN x"] {
            assert_eq!(redact_text(text), text);
        }
    }

    #[test]
    fn a_log_keeps_all_but_passwords() {
        let log = "INFO renewed shop/reindex password=hunter2\nWARN url=rediss://u:p@h:1/ \"x\"\nINFO auth= é\n";
        let kept =
            "INFO renewed shop/reindex password=(left out)\nWARN url=rediss://(left out)@h:1/ \"x\"\nINFO auth= é\n";
        assert_eq!(redact_text(log), kept);
    }
}
