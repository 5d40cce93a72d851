//! The figures of failovers in docs/performance.md: a table, and a picture with a dot for each time and a line for each median.
//!
//! `make bench ONLY=failover WRITE=1` measures docs/failover.tsv, in milliseconds.

use std::fmt::Write as _;

use crate::picture::write_text;
use crate::{check, check_part, read};

const TIMES: &str = "docs/failover.tsv";
const PICTURE: &str = "docs/failover.svg";
const PAGE: &str = "docs/performance.md";
const BEGIN: &str = "<!-- written by make bench ONLY=failover -->";
const END: &str = "<!-- end of what make bench ONLY=failover has written -->";

const LEFT: f64 = 310.0;
const RIGHT: f64 = 740.0;
const TOP: f64 = 8.0;
const ROW: f64 = 34.0;

/// The dots are hollow and the medians are tall, so the picture is readable without colour.
const STYLE: &str = "<style>text{font:13px sans-serif;fill:#222}circle{fill:none;stroke:#1f3a5f}.mark{stroke:#ccc}.median{stroke:#c6302b;stroke-width:3}
@media(prefers-color-scheme:dark){text{fill:#ddd}circle{stroke:#9fc3f0}.mark{stroke:#444}.median{stroke:#ff8a80}}</style>
";

/// One setup, with its times in seconds, in ascending order.
struct Row {
    name: String,
    times: Vec<f64>,
}

impl Row {
    fn of(line: &str) -> Self {
        let (name, times) = line.split_once('\t').unwrap();
        let mut times: Vec<f64> =
            times.split(' ').map(|millis| f64::from(millis.parse::<u32>().unwrap()) / 1000.0).collect();
        times.sort_by(f64::total_cmp);
        Self { name: name.to_owned(), times }
    }

    fn median(&self) -> f64 {
        let half = self.times.len() / 2;
        if self.times.len() % 2 == 1 { self.times[half] } else { (self.times[half - 1] + self.times[half]) / 2.0 }
    }

    fn worst(&self) -> f64 {
        *self.times.last().unwrap()
    }
}

fn table(rows: &[Row]) -> String {
    let mut text = String::from("| time from | median | worst | number |\n|---|---|---|---|\n");
    for row in rows {
        let (median, worst, number) = (row.median(), row.worst(), row.times.len());
        writeln!(text, "| {} | {median:.2} s | {worst:.2} s | {number} |", row.name).unwrap();
    }
    text
}

fn picture(rows: &[Row]) -> String {
    let bottom = TOP + ROW * rows.len() as f64;
    let end = (rows.iter().map(Row::worst).fold(5.0, f64::max) / 5.0).ceil() * 5.0;
    let x = |seconds: f64| LEFT + (RIGHT - LEFT) * seconds / end;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 {:.0}\" role=\"img\">\n<title>Time from a fault to the next leader</title>\n{STYLE}",
        bottom + 40.0
    );
    for second in (0..=end as u32).step_by(5) {
        let x = x(f64::from(second));
        writeln!(svg, r#"<path class="mark" d="M{x:.1} {TOP}V{bottom:.1}"/>"#).unwrap();
        write_text(&mut svg, (x, bottom + 18.0), "", "middle", &format!("{second} s"));
    }
    for (index, row) in rows.iter().enumerate() {
        let y = TOP + ROW * (index as f64 + 0.5);
        write_text(&mut svg, (LEFT - 10.0, y + 4.0), "", "end", &row.name);
        for time in &row.times {
            writeln!(svg, r#"<circle cx="{:.1}" cy="{y:.1}" r="4"/>"#, x(*time)).unwrap();
        }
        let median = x(row.median());
        writeln!(svg, r#"<path class="median" d="M{median:.1} {:.1}v24"/>"#, y - 12.0).unwrap();
    }
    svg + "</svg>\n"
}

#[test]
fn the_figures_of_failovers_are_drawn_from_their_times() {
    let rows: Vec<Row> = read(TIMES).lines().map(Row::of).collect();
    check(PICTURE, &picture(&rows));
    check_part(PAGE, BEGIN, END, &table(&rows));
}
