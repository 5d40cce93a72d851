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

    /// A cell that was measured.
    pub(crate) fn cell(&mut self, line: String) {
        println!("{line}");
        self.cells.push(line);
    }

    pub(crate) fn print(&self) {
        println!("\n| what | figure | bound | verdict |\n|---|---|---|---|\n{}", self.rows);
    }

    /// Writes the section of the last run.
    pub(crate) fn write(&self, page: &Path, machine: &str) -> io::Result<()> {
        let text = fs::read_to_string(page)?;
        let (Some(begin), Some(end)) = (text.find(BEGIN), text.find(END)) else {
            return Err(io::Error::other("docs/performance.md has no section for the last run"));
        };
        let cells: String = self.cells.iter().map(|cell| format!("- {cell}\n")).collect();
        let section = format!(
            "{BEGIN}\n{machine}\n\n| what | figure | bound | verdict |\n|---|---|---|---|\n{}\n{} passed, {} failed. The cells, medians of the rounds:\n\n{cells}",
            self.rows, self.passed, self.failed
        );
        fs::write(page, format!("{}{section}{}", &text[..begin], &text[end..]))
    }
}
