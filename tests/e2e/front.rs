//! Arguments of the program, and the file with its results.
//!
//! `cargo test --test e2e -- SUITE [FILTER] [--list] [--junit FILE]`

use std::{fmt::Write as _, path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::Parser;

use crate::runner::Test;

/// End-to-end tests on the cluster of `KUBECONFIG`, or else on the local one, one after the other.
#[derive(Debug, Parser)]
#[command(name = "e2e")]
pub(crate) struct Arguments {
    /// The suite to run; `--list` without it lists all of them.
    pub(crate) suite: Option<String>,
    /// Only tests whose name contains this.
    #[arg(default_value = "")]
    filter: String,
    /// Only tests whose name is the filter.
    #[arg(long)]
    exact: bool,
    /// No test whose name contains this.
    #[arg(long, value_name = "TEXT")]
    skip: Vec<String>,
    /// Print the names and run nothing.
    #[arg(long)]
    pub(crate) list: bool,
    /// Where to write the results as JUnit has them.
    #[arg(long, value_name = "FILE", env = "JUNIT")]
    junit: Option<PathBuf>,
}

impl Arguments {
    /// Whether the arguments select a test.
    pub(crate) fn means(&self, test: &Test) -> bool {
        let is_named = if self.exact { test.name == self.filter } else { test.name.contains(&self.filter) };
        is_named && !self.skip.iter().any(|skip| test.name.contains(skip))
    }

    /// Prints the selected tests in the format of libtest.
    pub(crate) fn print(&self, suites: &[(&str, &[Test])]) {
        for (suite, tests) in suites.iter().filter(|(name, _)| self.suite.as_deref().is_none_or(|suite| suite == *name))
        {
            for test in tests.iter().filter(|test| self.means(test)) {
                println!("{suite}::{}: test", test.name);
            }
        }
    }

    /// Writes the results to the file of `--junit`.
    pub(crate) fn report(&self, outcomes: &[Outcome]) -> anyhow::Result<()> {
        let Some(path) = &self.junit else { return Ok(()) };
        let suite = self.suite.as_deref().unwrap_or_default();
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, junit(suite, outcomes)).with_context(|| format!("failed to write {}", path.display()))
    }
}

/// The result of one test.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) test: &'static str,
    pub(crate) took: Duration,
    pub(crate) result: Result<(), Missed>,
}

/// The reason why a test has not passed.
#[derive(Debug)]
pub(crate) enum Missed {
    Failed(String),
    Skipped,
}

impl Outcome {
    pub(crate) fn is_failure(&self) -> bool {
        matches!(self.result, Err(Missed::Failed(_)))
    }
}

fn junit(suite: &str, outcomes: &[Outcome]) -> String {
    let count = |is_it: fn(&Outcome) -> bool| outcomes.iter().filter(|outcome| is_it(outcome)).count();
    let skipped = count(|outcome| matches!(outcome.result, Err(Missed::Skipped)));
    let (failed, took) =
        (count(Outcome::is_failure), outcomes.iter().map(|outcome| outcome.took).sum::<Duration>().as_secs_f64());
    let all = outcomes.len();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"e2e::{suite}\" tests=\"{all}\" \
         failures=\"{failed}\" errors=\"0\" skipped=\"{skipped}\" time=\"{took:.3}\">\n"
    );
    for Outcome { test, took, result } in outcomes {
        let inner = match result {
            Ok(()) => String::new(),
            Err(Missed::Skipped) => "<skipped/>".to_owned(),
            Err(Missed::Failed(why)) => format!("<failure message=\"failed\">{}</failure>", escaped(why)),
        };
        let took = took.as_secs_f64();
        // A write to a String cannot fail.
        let _always = writeln!(
            text,
            "<testcase classname=\"e2e::{suite}\" name=\"{test}\" time=\"{took:.3}\">{inner}</testcase>"
        );
    }
    text + "</testsuite>\n</testsuites>\n"
}

/// Escapes characters with a meaning in XML.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}
