//! The table of bounds and verdicts, on the screen and in docs/performance.md.

use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

const BEGIN: &str = "<!-- written by make bench -->";
const END: &str = "<!-- end of what make bench has written -->";

#[derive(Default)]
pub(crate) struct Table {
    rows: String,
    cells: Vec<String>,
    /// The time per cycle of each program relative to this client, by row.
    comparisons: Vec<(String, Vec<(&'static str, f64)>)>,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

impl Table {
    pub(crate) fn at_most(&mut self, what: &str, figure: f64, bound: f64) {
        self.judge(what, figure, "at most", bound, figure <= bound);
    }

    pub(crate) fn at_least(&mut self, what: &str, figure: f64, bound: f64) {
        self.judge(what, figure, "at least", bound, figure >= bound);
    }

    fn judge(&mut self, what: &str, figure: f64, relation: &str, bound: f64, holds: bool) {
        let verdict = if holds { "passed" } else { "**failed**" };
        let _ = writeln!(self.rows, "| {what} | {figure:.2} | {relation} {bound} | {verdict} |");
        if holds { self.passed += 1 } else { self.failed += 1 }
    }

    /// Prints and records a measured cell.
    pub(crate) fn cell(&mut self, line: String) {
        println!("{line}");
        self.cells.push(line);
    }

    pub(crate) fn compare(&mut self, row: &str, programs: Vec<(&'static str, f64)>) {
        self.comparisons.push((row.to_owned(), programs));
    }

    /// One column per program.
    fn comparison(&self) -> String {
        let Some((_, first)) = self.comparisons.first() else { return String::new() };
        let names: Vec<_> = first.iter().map(|(name, _)| *name).collect();
        let mut text = format!(
            "| time per cycle against this client | {} |\n|---|{}\n",
            names.join(" | "),
            "---|".repeat(names.len())
        );
        for (row, programs) in &self.comparisons {
            let figure = |name: &&str| {
                let found = programs.iter().find(|(other, _)| other == name).filter(|(_, ratio)| ratio.is_finite());
                found.map_or_else(|| "no cycle".to_owned(), |(_, ratio)| format!("{ratio:.2}"))
            };
            let figures: Vec<_> = names.iter().map(figure).collect();
            let _ = writeln!(text, "| {row} | {} |", figures.join(" | "));
        }
        text
    }

    fn tables(&self) -> String {
        format!("| what | figure | bound | verdict |\n|---|---|---|---|\n{}\n{}", self.rows, self.comparison())
    }

    pub(crate) fn print(&self) {
        println!("\n{}", self.tables());
    }

    /// Writes the section of the last run.
    pub(crate) fn write(&self, page: &Path, machine: &str) -> io::Result<()> {
        let text = fs::read_to_string(page)?;
        let (Some(begin), Some(end)) = (text.find(BEGIN), text.find(END)) else {
            return Err(io::Error::other("docs/performance.md has no section for the last run"));
        };
        let published = self.cells.iter().filter(|cell| is_published(cell));
        let cells: String = published.map(|cell| format!("- {cell}\n")).collect();
        let section = format!(
            "{BEGIN}\n{machine}\n\n{}\n{} passed, {} failed. Cells of this client, medians of the rounds:\n\n{cells}",
            self.tables(),
            self.passed,
            self.failed
        );
        fs::write(page, format!("{}{section}{}", &text[..begin], &text[end..]))
    }
}

/// Whether the page has a cell: one of this client without frozen members, or the contenders.
fn is_published(cell: &str) -> bool {
    cell.contains(", this client:") && !cell.contains("frozen") || cell.starts_with("8 contenders, 5 ms")
}
