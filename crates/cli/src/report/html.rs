//! Pure: the picture of `redlock top` as one static page. It loads nothing and runs no script.

use kube::ResourceExt as _;

use super::redact::redact_text;
use crate::cluster::objects::{LockObject, QuorumObject};
use crate::output::Tone;
use crate::output::format::{between, date, span};
use crate::show::lock_row::{state, tone};
use crate::show::picture::lanes::{Hold, Lanes};
use crate::show::picture::{KeyState, Picture, absent_members, member_state, validity, votes};

/// Maximum number of keys on one page. The bundle has all keys.
const KEYS: usize = 500;

const HEAD: &str = r#"<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>redlock report</title>
<style>
body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em;color:#1b1f24;background:#fff}
h1{font-size:1.4em}h2{font-size:1.1em;margin:1.6em 0 .4em}
.bad{border-left:4px solid #b3261e;padding:.3em .8em;margin:.4em 0;background:#fdf1f0}
.key{border:1px solid #d0d7de;border-radius:6px;padding:.6em 1em;margin:.6em 0}
.member{display:inline-block;margin-right:1.4em;white-space:nowrap}
.track{position:relative;height:1.5em;margin:.2em 0;background:#eef1f4;border-radius:3px;overflow:hidden}
.fill,.hold{position:absolute;top:0;bottom:0;box-sizing:border-box;overflow:hidden;white-space:nowrap;font-size:.85em;padding-left:.3em}
.fill{background:#9fd3a6}.hold{background:#c7d8f0;border:1px solid #7d9cc9}.now{background:#9fd3a6;border-color:#4c9a58}
.Good{color:#1a7f37}.Waiting{color:#8a5a00}.Bad{color:#b3261e}.dim{color:#57606a}code{background:#eef1f4;padding:0 .3em}
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}.bad{background:#2d1514}.key{border-color:#30363d}
.track,code{background:#21262d}.fill,.now{background:#23572f}.hold{background:#1f3a5f}.Good{color:#56d364}.Waiting{color:#e3b341}.Bad{color:#ff7b72}}
</style></head><body>
"#;

/// The page. `version` is the version of this command.
pub(super) fn page(picture: &Picture<'_>, place: &str, version: &str) -> String {
    let mut html = String::from(HEAD);
    let (place, version) = (escape(place), escape(version));
    let (counts, now) = (picture.counts(), date(picture.now));
    html += &format!("<h1>Locks in {place}</h1>\n");
    html += &format!("<p class=\"dim\">{counts}. As of {now}. redlock {version}.</p>\n");
    html += &troubles(picture);
    html += "<h2>Quorums</h2>\n";
    html.extend(picture.quorums.iter().map(|quorum| one_quorum(quorum, picture)));
    html += "<h2>Locks</h2>\n";
    html.extend(picture.keys.iter().take(KEYS).map(|key| one_key(key, picture)));
    if picture.keys.len() > KEYS {
        html += &format!("<p>{} more keys are in distributedlocks.yaml.</p>\n", picture.keys.len() - KEYS);
    }
    html + "</body></html>\n"
}

/// Escapes the text of an object for HTML, and removes passwords.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for letter in redact_text(text).chars() {
        match letter {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            _ => escaped.push(letter),
        }
    }
    escaped
}

fn troubles(picture: &Picture<'_>) -> String {
    let troubles = picture.troubles();
    if troubles.is_empty() {
        return "<p class=\"Good\">No lock and no quorum is in trouble.</p>\n".into();
    }
    let one = |trouble: &crate::show::picture::Trouble| {
        let (about, text, next) = (escape(&trouble.about), escape(&trouble.text), escape(&trouble.next));
        format!("<div class=\"bad\"><b>{about}</b> {text}<br>Next: <code>{next}</code></div>\n")
    };
    format!("<h2>In trouble</h2>\n{}", troubles.iter().map(one).collect::<String>())
}

fn one_quorum(quorum: &QuorumObject, picture: &Picture<'_>) -> String {
    let members = quorum.status.members.iter().map(|member| {
        let (mark, text) = member_state(quorum, member, picture.now);
        format!("<span class=\"member\">{} {mark} {}</span>", escape(&member.name), escape(&text))
    });
    let members: String = members.collect();
    let absent =
        absent_members(quorum, picture.now).map(|line| format!("<br><span class=\"dim\">{}</span>", escape(&line)));
    let (name, votes, absent) = (escape(&quorum.full_name()), votes(quorum), absent.collect::<String>());
    format!("<div class=\"key\"><b>{name}</b> {votes}<br>{members}{absent}</div>\n")
}

fn one_key(key: &KeyState<'_>, picture: &Picture<'_>) -> String {
    let mut html = format!("<div class=\"key\"><b>{}</b>\n", escape(&key.lock));
    html.extend(key.holders.iter().map(|lock| holder(lock, picture)));
    if let Some(lock) = key.first().filter(|_| key.holders.is_empty()) {
        html += &format!("<span class=\"{}\">{}</span>\n", class(tone(lock)), escape(&state(lock)));
    }
    let lanes = Lanes::of(key, picture.now);
    for row in &lanes.rows {
        let holds = row.iter().map(|hold| lane(hold, lanes.length));
        html += &format!("<div class=\"track\">{}</div>\n", holds.collect::<String>());
    }
    let reasons = lanes.reasons();
    if !reasons.is_empty() {
        let reasons = escape(&reasons.join(", "));
        html += &format!("<span class=\"dim\">The last {}. Ends: {reasons}.</span><br>\n", span(lanes.length));
    }
    let waiter = |(index, lock): (usize, &&LockObject)| {
        let wait = lock.created().map(|created| span(between(created, picture.now))).unwrap_or_default();
        let (place, who, name) = (index + 1, lock.who(), lock.name_any());
        format!("{place}. {who} (dlock/{name}, {}, priority {}, {wait})", state(lock), lock.spec.priority)
    };
    let queue: Vec<_> = key.queue.iter().enumerate().map(waiter).collect();
    if !queue.is_empty() {
        html += &format!("Queue: {}\n", escape(&queue.join("; ")));
    }
    html + "</div>\n"
}

fn holder(lock: &LockObject, picture: &Picture<'_>) -> String {
    let status = &lock.status;
    let node = status.holder.as_ref().and_then(|holder| holder.node_name.as_ref());
    let node = node.map(|node| format!(" on {node}")).unwrap_or_default();
    let token = status.fencing_token.map(|token| format!(", token {token}")).unwrap_or_default();
    let since = status.acquired_at.map(|at| format!(", for {}", span(between(at, picture.now)))).unwrap_or_default();
    let text = escape(&format!("{} by {}{node}{token}{since}", state(lock), lock.who()));
    let mut html = format!("<span class=\"{}\">{text}</span>\n", class(tone(lock)));
    if let Some(left) = validity(lock, picture.now) {
        let percent = left.left.min(left.ttl) * 100 / left.ttl;
        let text = format!("valid for {} of {}", span(left.left), span(left.ttl));
        html +=
            &format!("<div class=\"track\"><div class=\"fill\" style=\"left:0;width:{percent}%\">{text}</div></div>\n");
    }
    html
}

fn lane(hold: &Hold, length: i64) -> String {
    // Hundredths of a percent, so that a short hold is visible.
    let part = |time: i64| i128::from(time) * 10_000 / i128::from(length);
    let (from, to) = (part(hold.from), part(hold.to).min(10_000));
    let width = (to - from).max(20);
    let class = if hold.reason.is_none() { "hold now" } else { "hold" };
    let end = hold.reason.as_deref().unwrap_or("held");
    let title = escape(&format!("{} {} ({end})", hold.identity, span(hold.to - hold.from)));
    let place = |part: i128| format!("{}.{:02}%", part / 100, part % 100);
    let (left, width, identity) = (place(from), place(width), escape(&hold.identity));
    format!("<div class=\"{class}\" title=\"{title}\" style=\"left:{left};width:{width}\">{identity}</div>")
}

const fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "Good",
        Tone::Waiting => "Waiting",
        Tone::Bad => "Bad",
        Tone::Plain | Tone::Dim | Tone::Title => "dim",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::objects::fake::{held, now, quorum, waiting};

    fn html(locks: &[LockObject], states: [&str; 3]) -> String {
        page(&Picture::of(locks, &[quorum(states)], now()), "namespace shop", "0.1.0")
    }

    #[test]
    fn the_page_has_the_picture_with_the_problems_first() {
        let locks = [held("a"), waiting("b", "Queued", "", Some(1)), waiting("c", "Unreadable", "odd", None)];
        let page = html(&locks, ["Admitted", "Admitted", "Fenced"]);
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text}: {page}"));
        assert!(at("In trouble") < at("<h2>Quorums") && at("<h2>Quorums") < at("<h2>Locks"));
        assert!(at("Next: <code>redlock quorum status -n redlock-system main</code>") < at("<h2>Quorums"));
        at("main-2 ◐ fenced 12s (Restarted)");
        at("style=\"left:0;width:82%\">valid for 8.2s of 10s");
        at("Held by a, token 42, for 60s");
        at("class=\"hold now\" title=\"a 60s (held)\" style=\"left:0.00%;width:100.00%\">a</div>");
        at("Queue: 1. b (dlock/b, Queued, priority 0, 60m00s)");
        assert!(html(&[held("a")], ["Admitted"; 3]).contains("No lock and no quorum is in trouble."));
    }

    #[test]
    fn texts_of_objects_have_no_meaning_in_html_and_no_passwords() {
        let mut odd = waiting("b", "Unreadable", "", None);
        odd.status.conditions[1].message = "<script>alert('x')</script> & redis://user:hunter2@host \"q\"".into();
        odd.spec.claim.as_mut().unwrap().identity = Some("<img src=x onerror=y>".into());
        let page = html(&[odd], ["Admitted"; 3]);
        assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp;"), "{page}");
        assert!(page.contains("&lt;img src=x onerror=y&gt;"), "{page}");
        assert!(!page.contains("hunter2") && !page.contains("<script") && !page.contains("<img"), "{page}");
    }

    #[test]
    fn the_page_loads_nothing() {
        let page = html(&[held("a"), waiting("b", "Queued", "", Some(1))], ["Admitted", "Unreachable", "Fenced"]);
        for part in ["http://", "https://", "src=", "href=", "url(", "@import", "<script", "<link"] {
            assert!(!page.contains(part), "{part}: {page}");
        }
        assert!(page.contains("default-src 'none'"));
    }
}
