//! The picture of README.md, drawn from a recorded run.
//!
//! `a_restarted_member_waits_while_a_lock_changes_hands` (crates/client/tests/redis) records docs/restart.json.

use std::fmt::Write as _;

use serde_json::Value;

use crate::{check, read};

const RECORDING: &str = "docs/restart.json";
const PICTURE: &str = "docs/restart.svg";
const MEMBERS: u64 = 3;

/// Maximum length of a bar without space for the word "token", in milliseconds.
const NARROW: f64 = 2500.0;
const LEFT: f64 = 104.0;
const RIGHT: f64 = 884.0;
const HEIGHT: f64 = 26.0;
const LOCK_ROW: f64 = 44.0;
const FIRST_MEMBER: f64 = 104.0;
const ROW: f64 = 34.0;
const AXIS: f64 = FIRST_MEMBER + ROW * MEMBERS as f64 + 6.0;

/// Shapes carry the meaning, so the picture is readable without colour.
///
/// Votes are full, a wait is hatched, and an expiry is dashed.
const HEAD: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 250" font-family="system-ui, sans-serif" font-size="13" role="img">
<title>A member restarts while a lock changes hands twice</title>
<style>
  text { fill: #1b1f24 } .line { stroke: #57606a; fill: none } .full { fill: #2b5c9e; stroke: #2b5c9e } .on { fill: #ffffff }
  .held { fill: #ffffff; stroke: #1b1f24; stroke-width: 1.5 } .hatch { fill: url(#hatch); stroke: #57606a } .stripe { stroke: #8c959f; stroke-width: 2 }
  .plate { fill: #ffffff; stroke: #57606a } .back { fill: #ffffff }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .line { stroke: #9198a1 } .full { fill: #79b0f2; stroke: #79b0f2 } .on { fill: #0d1117 }
    .held { fill: #0d1117; stroke: #e6edf3 } .hatch { stroke: #9198a1 } .stripe { stroke: #6e7681 } .plate { fill: #0d1117; stroke: #9198a1 } .back { fill: #0d1117 }
  }
</style>
<defs><pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="stripe" d="M0 0V8"/></pattern></defs>
<rect class="back" width="900" height="250" rx="6"/>
"##;

struct Picture {
    svg: String,
    /// Milliseconds of the whole width.
    span: f64,
}

impl Picture {
    fn x(&self, at: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * at / self.span
    }

    fn text(&mut self, x: f64, y: f64, class: &str, anchor: &str, text: &str) {
        write_text(&mut self.svg, (x, y), class, anchor, text);
    }

    /// A bar in the row at `y`, with a text in its middle.
    fn bar(&mut self, (from, to): (f64, f64), y: f64, class: &str, text: &str) {
        let (x, width) = (self.x(from), self.x(to) - self.x(from));
        let size = format!(r#"width="{width:.1}" height="{HEIGHT}""#);
        writeln!(self.svg, r#"<rect x="{x:.1}" y="{y:.1}" {size} rx="4" class="{class}"/>"#).unwrap();
        let on = if class == "full" { "on" } else { "" };
        self.text(x + width / 2.0, y + 17.5, on, "middle", text);
    }

    /// A short text on a plate over a hatched bar.
    fn plate(&mut self, at: f64, y: f64, text: &str) {
        let (x, top, width) = (self.x(at), y + 4.0, 10.0 + 7.0 * text.chars().count() as f64);
        let size = format!(r#"width="{width:.1}" height="18""#);
        writeln!(self.svg, r#"<rect x="{x:.1}" y="{top:.1}" {size} rx="9" class="plate"/>"#).unwrap();
        self.text(x + width / 2.0, y + 17.5, "", "middle", text);
    }

    /// A bar for each holder, and the end of each hold.
    ///
    /// A stopped holder has its lock until the lock expires.
    fn lock(&mut self, events: &[Value]) {
        self.text(LEFT - 10.0, LOCK_ROW + 17.5, "", "end", "the lock");
        let of_lock: Vec<&Value> = events.iter().filter(|event| event["holder"].is_string()).collect();
        let at = |event: &Value| event["at"].as_f64().unwrap();
        for (index, event) in of_lock.iter().enumerate().filter(|(_, event)| event["event"] == "acquired") {
            let (holder, end) = (event["holder"].as_str().unwrap(), of_lock[index + 1]);
            let token = event["token"].to_string();
            let word = if at(end) - at(event) > NARROW { "token " } else { "" };
            let name = format!("{holder}, {word}…{}", &token[token.len() - 4..]);
            self.bar((at(event), at(end)), LOCK_ROW, "held", &name);
            let Some(next) = of_lock.get(index + 2) else { continue };
            let (x, follows) = (self.x(at(end)), at(next) - at(end));
            let next_holder = next["holder"].as_str().unwrap();
            let text = if end["event"] == "released" {
                format!("{holder} releases. {next_holder} follows after {follows:.0} ms")
            } else {
                let (to, middle) = (self.x(at(next)), LOCK_ROW + HEIGHT / 2.0);
                writeln!(self.svg, r#"<path class="line" stroke-dasharray="5 4" d="M{x:.1} {middle:.1}H{to:.1}"/>"#)
                    .unwrap();
                format!("{holder} is lost. Its lock expires, and {next_holder} follows after {:.1} s", follows / 1000.0)
            };
            writeln!(self.svg, r#"<path class="line" d="M{x:.1} {:.1}v{:.1}"/>"#, LOCK_ROW - 14.0, HEIGHT + 14.0)
                .unwrap();
            // The texts of a release and of an expiry are on different sides of their marks.
            let (x, anchor) = if end["event"] == "released" { (x + 4.0, "end") } else { (x + 6.0, "start") };
            let x = if anchor == "end" { x - 10.0 } else { x };
            self.text(x, LOCK_ROW - 6.0, "", anchor, &text);
        }
    }

    /// Votes, a restart, and the wait with its countdown.
    fn member(&mut self, index: u64, events: &[Value], max_ttl: f64) {
        let y = FIRST_MEMBER + ROW * index as f64;
        self.text(LEFT - 10.0, y + 17.5, "", "end", &format!("member {}", index + 1));
        let (mut state, mut since) = ("voting", 0.0);
        let last = (self.span, "end");
        let of_member = events.iter().filter(|event| event["member"] == index);
        let changes: Vec<(f64, &str)> = of_member
            .map(|event| (event["at"].as_f64().unwrap(), event["state"].as_str().unwrap()))
            .chain([last])
            .collect();
        for (at, next) in changes {
            match state {
                "voting" => self.bar((since, at), y, "full", "votes"),
                "waiting" => {
                    self.bar((since, at), y, "hatch", "");
                    self.plate(since + 120.0, y, "restarted, no vote");
                    for left in [6.0, 4.0, 2.0] {
                        let text = format!("votes in {left:.0} s");
                        self.plate(since + max_ttl - 1000.0 * left, y, &text);
                    }
                }
                _ => {}
            }
            (state, since) = (next, at);
        }
    }

    fn axis(&mut self) {
        writeln!(self.svg, r#"<path class="line" d="M{LEFT} {AXIS}H{RIGHT}"/>"#).unwrap();
        for second in (0..=(self.span / 1000.0) as u32).step_by(2) {
            let x = self.x(f64::from(second) * 1000.0);
            writeln!(self.svg, r#"<path class="line" d="M{x:.1} {AXIS}v5"/>"#).unwrap();
            self.text(x, AXIS + 20.0, "", "middle", &format!("{second} s"));
        }
    }
}

/// A text of a picture.
pub(crate) fn write_text(svg: &mut String, (x, y): (f64, f64), class: &str, anchor: &str, text: &str) {
    writeln!(svg, r#"<text x="{x:.1}" y="{y:.1}" class="{class}" text-anchor="{anchor}">{text}</text>"#).unwrap();
}

fn draw(recording: &Value) -> String {
    let events = recording["events"].as_array().unwrap();
    let span = events.last().unwrap()["at"].as_f64().unwrap();
    let mut picture = Picture { svg: HEAD.to_owned(), span };
    picture.lock(events);
    for index in 0..MEMBERS {
        picture.member(index, events, recording["maxTTL"].as_f64().unwrap());
    }
    picture.axis();
    picture.svg + "</svg>\n"
}

#[test]
fn the_picture_of_the_readme_is_drawn_from_the_recorded_run() {
    let recording: Value = serde_json::from_str(&read(RECORDING)).unwrap();
    check(PICTURE, &draw(&recording));
    assert!(read("README.md").contains(&format!("({PICTURE})")));
}
