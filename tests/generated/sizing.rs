//! The cost of held locks by their number in docs/sizing.md: a table, and a picture of the memory.
//!
//! `make bench ONLY=scale WRITE=1` measures docs/sizing.tsv. Its first row is the line through the memory of leaders with `Transitions`:
//! MiB without locks, and KiB for each lock. The other rows are validity, locks, grants per second, MiB of the leader and of the other replica.
//! Then they have thousandths of a core, writes per second, the percentage of late renewals, and three times in milliseconds.

use std::fmt::Write as _;

use crate::picture::write_text;
use crate::{check, check_part, read};

const FIGURES: &str = "docs/sizing.tsv";
const PICTURE: &str = "docs/sizing.svg";
const PAGE: &str = "docs/sizing.md";
const BEGIN: &str = "<!-- written by make bench ONLY=scale -->";
const END: &str = "<!-- end of what make bench ONLY=scale has written -->";

const LEFT: f64 = 70.0;
const RIGHT: f64 = 740.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 300.0;
/// MiB at the top of the picture.
const MOST: f64 = 512.0;
/// Locks at the right of the picture.
const LOCKS: f64 = 20_000.0;
/// The memory limit of the chart, in MiB, which is enough for this number of locks.
const LIMIT: f64 = 256.0;
const ENOUGH: f64 = 10_000.0;
/// The limit for all locks of the picture, as docs/installation.md computes it.
const LARGER_LIMIT: f64 = 456.0;

/// Leaders are circles and other replicas are crosses, so the picture is readable without colour.
const STYLE: &str = "<style>text{font:13px sans-serif;fill:#222}path,circle{fill:none;stroke:#1f3a5f;stroke-width:1.5}.axis{stroke:#ccc}
.limit{stroke:#c6302b;stroke-dasharray:6 4}@media(prefers-color-scheme:dark){text{fill:#ddd}path,circle{stroke:#9fc3f0}.axis{stroke:#444}
.limit{stroke:#ff8a80}}</style>
";

/// A number of locks, with the columns of the table.
struct Row<'a>(Vec<&'a str>);

impl Row<'_> {
    fn number(&self, column: usize) -> f64 {
        self.0[column].parse().unwrap()
    }
}

fn table(memory: (f64, f64), rows: &[Row<'_>]) -> String {
    let mut text = String::from(
        "| validity | locks | granted per second | memory of the leader | of the other replica | CPU of both | writes per second | renewals over 1 s late | \
         a lock more | when the leader is deleted | when the leader is killed |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let [validity, locks, granted, leader, other, cpu, writes, late, grant, restart, failover] = row.0[..] else {
            panic!("{:?}", row.0)
        };
        let seconds = |millis: &str| millis.parse::<f64>().unwrap() / 1000.0;
        let (restart, failover) = (seconds(restart), seconds(failover));
        writeln!(
            text,
            "| `{validity}` | {locks} | {granted} | {leader} MiB | {other} MiB | {cpu}m | {writes} | {late} % | {grant} ms | {restart:.1} s | {failover:.1} s |"
        )
        .unwrap();
    }
    let (fixed, each) = memory;
    writeln!(text, "\nMemory of a leader with `Transitions` = {fixed:.0} MiB + {each:.1} KiB for each lock.").unwrap();
    text
}

fn picture((fixed, each): (f64, f64), rows: &[Row<'_>]) -> String {
    let at = |locks: f64, memory: f64| (LEFT + (RIGHT - LEFT) * locks / LOCKS, BOTTOM - (BOTTOM - TOP) * memory / MOST);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 780 350\" role=\"img\">\n<title>Memory of a replica by the number of held locks</title>\n{STYLE}"
    );
    for memory in (0..=MOST as u32).step_by(64) {
        let (_, y) = at(0.0, f64::from(memory));
        writeln!(svg, r#"<path class="axis" d="M{LEFT} {y:.1}H{RIGHT}"/>"#).unwrap();
        write_text(&mut svg, (LEFT - 8.0, y + 4.0), "", "end", &format!("{memory} MiB"));
    }
    for locks in (0..=LOCKS as u32).step_by(5_000) {
        write_text(&mut svg, (at(f64::from(locks), 0.0).0, BOTTOM + 18.0), "", "middle", &format!("{locks} locks"));
    }
    let ((x0, y0), (x1, y1)) = (at(0.0, fixed), at(LOCKS, fixed + each * LOCKS / 1024.0));
    writeln!(svg, r#"<path d="M{x0:.1} {y0:.1}L{x1:.1} {y1:.1}"/>"#).unwrap();
    let ((enough, limit), (_, larger)) = (at(ENOUGH, LIMIT), at(LOCKS, LARGER_LIMIT));
    writeln!(svg, r#"<path class="limit" d="M{LEFT} {limit:.1}H{enough:.1}L{RIGHT} {larger:.1}"/>"#).unwrap();
    let label = "limit of the chart, and the limit to set for more locks";
    write_text(&mut svg, (LEFT + 8.0, limit - 6.0), "", "start", label);
    for row in rows {
        let (x, leader) = at(row.number(1), row.number(3));
        writeln!(svg, r#"<circle cx="{x:.1}" cy="{leader:.1}" r="5"/>"#).unwrap();
        let (_, other) = at(row.number(1), row.number(4));
        writeln!(svg, r#"<path d="M{:.1} {:.1}l8 8m0 -8l-8 8"/>"#, x - 4.0, other - 4.0).unwrap();
    }
    let legend = "circles: the leader, and the line through them; crosses: the other replica";
    write_text(&mut svg, (LEFT, BOTTOM + 42.0), "", "start", legend);
    svg + "</svg>\n"
}

#[test]
fn the_cost_of_locks_is_printed_from_its_measurement() {
    let text = read(FIGURES);
    let (memory, rows) = text.split_once('\n').unwrap();
    let memory: Vec<f64> = memory.split('\t').skip(1).map(|number| number.parse().unwrap()).collect();
    let memory = (memory[0], memory[1]);
    let rows: Vec<Row<'_>> = rows.lines().map(|line| Row(line.split('\t').collect())).collect();
    check(PICTURE, &picture(memory, &rows));
    check_part(PAGE, BEGIN, END, &table(memory, &rows));
}
