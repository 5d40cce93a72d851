//! The figures as a table and as a picture. Each time is a dot, and each row has its median as a line.
//!
//! `failover.tsv` has the times in milliseconds, so that a run of one setup keeps those of the others.

use std::{fmt::Write as _, fs, path::Path, time::Duration};

use anyhow::Context as _;

use crate::figures::{Figures, median};

const BEGIN: &str = "<!-- written by make bench ONLY=failover -->";
const END: &str = "<!-- end of what make bench ONLY=failover has written -->";

/// Sizes in the units of the picture.
const WIDTH: f64 = 760.0;
const LEFT: f64 = 310.0;
const RIGHT: f64 = 20.0;
const ROW: f64 = 34.0;
const AXIS: f64 = 40.0;

/// Writes the table into performance.md, and the picture and the times into failover.svg and failover.tsv, all in `docs`.
pub(super) fn write(figures: &Figures, docs: &Path) -> anyhow::Result<()> {
    let (page, data) = (docs.join("performance.md"), docs.join("failover.tsv"));
    let mut rows = read(&fs::read_to_string(&data).unwrap_or_default())?;
    for (name, times) in figures.rows() {
        match rows.iter_mut().find(|(other, _)| *other == name) {
            Some((_, earlier)) => *earlier = times,
            None => rows.push((name, times)),
        }
    }
    fs::write(data, rows.iter().map(line).collect::<String>())?;
    let text = fs::read_to_string(&page)?;
    let (before, rest) = text.split_once(BEGIN).with_context(|| format!("{BEGIN} is missing"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("{END} is missing"))?;
    fs::write(page, format!("{before}{BEGIN}\n{}{END}{after}", table(&rows)))?;
    Ok(fs::write(docs.join("failover.svg"), picture(&rows))?)
}

fn read(text: &str) -> anyhow::Result<Vec<(String, Vec<Duration>)>> {
    let row = |line: &str| {
        let (name, times) = line.split_once('\t').context("a row without times")?;
        let times: Result<_, std::num::ParseIntError> =
            times.split(' ').map(|time| Ok(Duration::from_millis(time.parse()?))).collect();
        Ok((name.to_owned(), times?))
    };
    text.lines().map(row).collect()
}

fn line((name, times): &(String, Vec<Duration>)) -> String {
    let times: Vec<_> = times.iter().map(|time| time.as_millis().to_string()).collect();
    format!("{name}\t{}\n", times.join(" "))
}

fn table(rows: &[(String, Vec<Duration>)]) -> String {
    let mut text = String::from("| time from | median | worst | number |\n|---|---|---|---|\n");
    for (name, times) in rows {
        let worst = times.iter().max().copied().unwrap_or_default();
        let row = format!("| {name} | {} | {} | {} |\n", seconds(median(times)), seconds(worst), times.len());
        text += &row.replace("->", "→");
    }
    text
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

fn picture(rows: &[(String, Vec<Duration>)]) -> String {
    let longest = rows.iter().flat_map(|(_, times)| times).max().copied().unwrap_or_default().as_secs_f64();
    // A mark each five seconds.
    let end = ((longest / 5.0).ceil() * 5.0).max(5.0);
    let at = |seconds: f64| LEFT + seconds / end * (WIDTH - LEFT - RIGHT);
    let mut marks = String::new();
    let mut mark = 0.0;
    let bottom = 8.0 + ROW * count(rows.len());
    while mark <= end {
        let x = at(mark);
        // A write to a String cannot fail.
        let _always = writeln!(
            marks,
            "<path class=\"mark\" d=\"M{x:.1} 8V{bottom:.1}\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{mark} s</text>",
            bottom + 18.0
        );
        mark += 5.0;
    }
    let mut lines = String::new();
    for (index, (name, times)) in rows.iter().enumerate() {
        let y = 8.0 + ROW * (count(index) + 0.5);
        let name = name.replace("->", "→").replace('&', "&amp;").replace('<', "&lt;");
        let _always =
            writeln!(lines, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>", LEFT - 10.0, y + 4.0);
        for time in times {
            let _always = writeln!(lines, "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\"/>", at(time.as_secs_f64()));
        }
        let x = at(median(times).as_secs_f64());
        let _always = writeln!(lines, "<path class=\"median\" d=\"M{x:.1} {:.1}V{:.1}\"/>", y - 12.0, y + 12.0);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"Time from a fault to the next leader\">\n\
         <style>text{{font:13px sans-serif;fill:#222}}circle{{fill:none;stroke:#1f3a5f}}.mark{{stroke:#ccc}}.median{{stroke:#c6302b;stroke-width:3}}\n\
         @media(prefers-color-scheme:dark){{text{{fill:#ddd}}circle{{stroke:#9fc3f0}}.mark{{stroke:#444}}.median{{stroke:#ff8a80}}}}</style>\n\
         {marks}{lines}</svg>\n",
        bottom + AXIS
    )
}

fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(0.0, f64::from)
}
