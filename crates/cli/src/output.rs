//! The output of a command: tables and sentences for users, JSON and YAML for programs.

pub mod format;

use std::io::{self, IsTerminal as _, Write as _};

use serde_json::Value;

/// For programs, or more columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One JSON object. With --watch one on each line.
    Json,
    /// The same as YAML.
    Yaml,
    /// A table with more columns.
    Wide,
    /// Names only, one on each line.
    Name,
}

/// How a command prints.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct OutputArgs {
    /// Print for programs, or more columns. Default: text for people.
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub output: Option<Format>,
}

/// The meaning of a part of a text, which decides its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Nothing special.
    #[default]
    Plain,
    /// The desired state.
    Good,
    /// It waits, and no action is needed.
    Waiting,
    /// The user has to act.
    Bad,
    /// Less important.
    Dim,
    /// A title.
    Title,
}

/// The style of text: its colours, and the width of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    /// Colours are used.
    pub colours: bool,
    /// The width of the terminal, if the output is one.
    pub width: Option<usize>,
}

impl Paint {
    /// No colours, and any width.
    pub const PLAIN: Self = Self { colours: false, width: None };

    /// The text in the colour of its tone.
    #[must_use]
    pub fn tone(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Good => "32",
            Tone::Waiting => "33",
            Tone::Bad => "31",
            Tone::Dim => "2",
            Tone::Title => "1",
        };
        if self.colours { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// The output of a command, in every form.
pub trait Answer {
    /// The value for programs. The names of its fields are stable (docs/stability.md).
    fn value(&self) -> Value;
    /// Text for users. It ends with a line feed.
    fn text(&self, paint: Paint, wide: bool) -> String;
    /// Names only.
    fn names(&self) -> Vec<String>;
}

/// One cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A text with its tone.
    pub fn toned(tone: Tone, text: impl Into<String>) -> Self {
        Self { text: text.into(), tone }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), tone: Tone::Plain }
    }
}

/// A table for users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    titles: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub const fn new(titles: Vec<&'static str>) -> Self {
        Self { titles, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    /// The widths of its columns, none narrower than in `before`.
    #[must_use]
    pub fn widths(&self, before: &[usize]) -> Vec<usize> {
        let width = |column: usize| {
            let cells =
                self.rows.iter().filter_map(|row| row.get(column)).map(|cell| or_dash(&cell.text).chars().count());
            let title = self.titles.get(column).map_or(0, |title| title.len());
            cells.max().unwrap_or(0).max(title).max(before.get(column).copied().unwrap_or(0))
        };
        (0..self.titles.len()).map(width).collect()
    }

    /// Renders the titles and the rows.
    #[must_use]
    pub fn render(&self, paint: Paint) -> String {
        let titles: Vec<_> = self.titles.iter().map(|title| Cell::toned(Tone::Title, *title)).collect();
        let widths = fit(self.widths(&[]), paint.width);
        line(&titles, &widths, paint) + &self.render_rows(&widths, paint)
    }

    /// Renders the rows without the titles.
    #[must_use]
    pub fn render_rows(&self, widths: &[usize], paint: Paint) -> String {
        let widths = fit(widths.to_vec(), paint.width);
        self.rows.iter().map(|row| line(row, &widths, paint)).collect()
    }
}

/// Spaces between two columns.
const GAP: usize = 3;
/// No column gets narrower than this.
const NARROWEST: usize = 8;

/// Narrows the widest columns until a row fits, as far as they stay readable.
fn fit(mut widths: Vec<usize>, width: Option<usize>) -> Vec<usize> {
    let Some(width) = width else { return widths };
    let gaps = GAP * widths.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > width {
        match widths.iter_mut().max() {
            Some(widest) if *widest > NARROWEST => *widest -= 1,
            _ => break,
        }
    }
    widths
}

/// Shortens a text to a width. An ellipsis replaces the rest.
#[must_use]
pub fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept + "\u{2026}"
}

/// Replaces an empty cell by a dash, so that programs such as awk can split the columns.
fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

fn line(cells: &[Cell], widths: &[usize], paint: Paint) -> String {
    let mut text = String::new();
    for (index, cell) in cells.iter().enumerate() {
        let width = widths.get(index).copied().unwrap_or(0);
        let plain = shorten(or_dash(&cell.text), width);
        text.push_str(&paint.tone(cell.tone, &plain));
        if index + 1 < cells.len() {
            text.extend(std::iter::repeat_n(' ', width.saturating_sub(plain.chars().count()) + GAP));
        }
    }
    text.push('\n');
    text
}

/// The printer of a command, with its format and its style.
#[derive(Clone, Copy, Debug)]
pub struct Printer {
    /// The format of `--output`, if it is set.
    pub format: Option<Format>,
    /// The colours and the width of the output.
    pub paint: Paint,
    /// Whether the output is a terminal.
    pub is_terminal: bool,
}

impl Printer {
    /// A printer for standard output. It uses colours on a terminal, unless NO_COLOR is set or TERM is `dumb`.
    #[must_use]
    pub fn new(args: OutputArgs) -> Self {
        let is_terminal = io::stdout().is_terminal();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let colours = is_terminal && !no_color && !dumb;
        let width = if is_terminal { terminal_width() } else { None };
        Self { format: args.output, paint: Paint { colours, width }, is_terminal }
    }

    /// Whether the output is for programs.
    #[must_use]
    pub const fn is_for_programs(&self) -> bool {
        matches!(self.format, Some(Format::Json | Format::Yaml | Format::Name))
    }

    /// Prints an answer in the selected format.
    ///
    /// # Errors
    /// If the standard output cannot be written.
    pub fn show(&self, answer: &impl Answer) -> anyhow::Result<()> {
        let text = match self.format {
            None => answer.text(self.paint, false),
            Some(Format::Wide) => answer.text(self.paint, true),
            Some(Format::Json) => serde_json::to_string_pretty(&answer.value())? + "\n",
            Some(Format::Yaml) => serde_yaml::to_string(&answer.value())?,
            Some(Format::Name) => answer.names().iter().map(|name| format!("{name}\n")).collect(),
        };
        self.write(&text)
    }

    /// Prints one of a sequence of values for programs: JSON on one line, YAML as a document.
    ///
    /// # Errors
    /// If the standard output cannot be written.
    pub fn next_value(&self, value: &Value) -> anyhow::Result<()> {
        let text = match self.format {
            Some(Format::Yaml) => format!("---\n{}", serde_yaml::to_string(value)?),
            // A sequence is about one object, and the user already gave its name.
            Some(Format::Name) => String::new(),
            _ => serde_json::to_string(value)? + "\n",
        };
        self.write(&text)
    }

    /// Prints a line for users. It prints nothing if the output is for programs.
    ///
    /// # Errors
    /// If the standard output cannot be written.
    pub fn print_line(&self, line: &str) -> anyhow::Result<()> {
        match self.format {
            None | Some(Format::Wide) => self.write(&format!("{line}\n")),
            Some(_) => Ok(()),
        }
    }

    /// Prints a text as it is.
    ///
    /// # Errors
    /// If the standard output cannot be written.
    pub fn write(&self, text: &str) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }
}

/// The columns of the terminal. A size of zero is unknown.
fn terminal_width() -> Option<usize> {
    let (columns, _) = ratatui::crossterm::terminal::size().ok()?;
    Some(usize::from(columns)).filter(|columns| *columns > 0)
}

/// Whether the reader closed the output early, as `head` does. That is not a failure.
#[must_use]
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_keeps_to_the_width_of_the_terminal() {
        let mut table = Table::new(vec!["LOCK", "HOLDER"]);
        table.push(vec!["shop/a-very-long-name-of-a-lock".into(), "worker".into()]);
        let narrow = table.render(Paint { colours: false, width: Some(24) });
        assert_eq!(narrow, "LOCK              HOLDER\nshop/a-very-lo\u{2026}   worker\n");
        let least = table.render(Paint { colours: false, width: Some(1) });
        assert!(least.contains("shop/a-\u{2026}   worker"), "a column stays readable: {least}");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(vec!["LOCK", "HOLDER"]);
        table.push(vec!["shop/reindex".into(), Cell::toned(Tone::Good, "worker")]);
        table.push(vec!["shop/é".into(), "".into()]);
        let plain = table.render(Paint::PLAIN);
        assert_eq!(plain, "LOCK           HOLDER\nshop/reindex   worker\nshop/é         -\n");
        let colours = table.render(Paint { colours: true, width: None });
        assert!(colours.contains("\u{1b}[32mworker\u{1b}[0m\n"), "{colours:?}");
        assert_eq!(table.widths(&[20]), [20, 6], "later rows of a watch do not shrink a column");
    }
}
