//! Who this process is.

use std::fs;

/// `<user>@<host>/<process ID>`: for people, and no two processes of one machine have the same.
pub(in crate::command) fn of_process() -> String {
    let user = std::env::var("USER").ok().filter(|user| !user.is_empty()).unwrap_or_else(|| "redlock".to_owned());
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "localhost" } else { host.trim() };
    format!("{user}@{host}/{}", std::process::id())
}
