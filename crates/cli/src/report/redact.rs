//! Pure: takes out of a report what does not belong into other hands.

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
    text.split_inclusive(|c: char| c.is_whitespace() || "\"'".contains(c)).map(redact_token).collect()
}

fn redact_token(word: &str) -> String {
    if word.contains("://") {
        // Each part ends with the scheme of the next address, as in redis://u:p@a,redis://u:p@b.
        let mut parts = word.split("://");
        let mut kept = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let authority = part.split('/').next().unwrap_or_default();
            let (left_out, rest) = authority.rfind('@').map_or(("", part), |at| (LEFT_OUT, &part[at..]));
            kept.extend(["://", left_out, rest]);
        }
        if kept != word {
            return kept;
        }
    }
    let lower = word.to_ascii_lowercase();
    for name in ["password=", "password:", "passwd=", "auth=", "bearer:"] {
        if let Some(at) = lower.find(name) {
            let end = at + name.len();
            // The space or line feed at the end of the text stays.
            let tail = word.len() - word.trim_end().len();
            if end < word.len() - tail {
                return format!("{}{LEFT_OUT}{}", &word[..end], &word[word.len() - tail..]);
            }
        }
    }
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_has_no_values_of_peoples_own() {
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
    fn a_log_keeps_all_but_passwords() {
        let log = "INFO renewed shop/reindex password=hunter2\nWARN url=rediss://u:p@h:1/ \"x\"\nINFO auth= é\n";
        assert_eq!(
            redact_text(log),
            "INFO renewed shop/reindex password=(left out)\nWARN url=rediss://(left out)@h:1/ \"x\"\nINFO auth= é\n"
        );
    }
}
