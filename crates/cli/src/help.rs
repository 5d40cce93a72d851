//! The help of the program: commands in groups, and manual pages.

use std::ffi::OsStr;
use std::io::{self, Write};

use clap::Command;

/// The commands by their purpose, in the order of the help.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Show locks", &["top", "list", "status", "explain", "history", "wait", "quorum"]),
    ("Act on locks", &["step-down", "break"]),
    ("Work under a lock", &["run", "hold", "acquire", "release", "agent"]),
    ("Find a fault", &["doctor", "report"]),
    ("Set up", &["version", "completions", "man", "install"]),
];

/// Environment variables on each manual page. They select the cluster.
const ENVIRONMENT: [(&str, &str); 2] = [
    ("KUBECONFIG", "The kubeconfig file. Default: ~/.kube/config, or in a pod its service account."),
    ("NO_COLOR", "If it is not empty, the output has no colours."),
];
/// Exit codes of the commands that hold a lock.
const HOLDING_CODES: [(&str, &str); 6] = [
    (
        "0 to 255",
        "The exit code of the command under the lock. 128 plus the number of the signal if a signal ended it.",
    ),
    ("122", "Another holder has the lock, and --try or --wait ended the wait."),
    ("123", "The lock was lost, and the command was ended before."),
    ("124", "--max-hold was reached, and the command was ended."),
    ("125", "Any other failure, including wrong options. The error output names it."),
    ("126, 127", "The command cannot be executed, or was not found."),
];
/// Exit codes of the other commands.
const CODES: [(&str, &str); 3] = [
    ("0", "Success, or the answer is yes."),
    ("1", "The answer is no: a wait timed out, or doctor found a fault."),
    ("125", "The command failed, or its options are wrong. The error output names the next step."),
];

/// The command with its subcommands in groups.
#[must_use]
pub fn grouped(tree: Command) -> Command {
    let mut text = String::new();
    for (title, names) in GROUPS {
        text += &format!("{title}:\n");
        for name in names {
            let about = tree.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            text += &format!("  {name:<12} {}\n", about.unwrap_or_default());
        }
        text.push('\n');
    }
    tree.help_template(format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{text}Options:\n{{options}}"))
}

/// Writes the manual page of one command.
pub(super) fn manual_page(command: &Command, parent: Option<&str>, out: &mut dyn Write) -> io::Result<()> {
    let page = clap_mangen::Man::new(command.clone());
    page.render_title(out)?;
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    page.render_options_section(out)?;
    if command.get_subcommands().any(|child| !child.is_hide_set()) {
        page.render_subcommands_section(out)?;
    }
    if let Some(example) = command.get_after_help().map(ToString::to_string) {
        let lines = example.trim_start_matches("Example:").trim_start_matches('\n');
        write!(out, ".SH EXAMPLE\n.nf\n{}\n.fi\n", roff(lines))?;
    }
    let holds = ["run", "hold", "acquire", "agent"].contains(&command.get_name());
    section(out, "EXIT STATUS", if holds { &HOLDING_CODES } else { &CODES })?;
    section(out, "ENVIRONMENT", &ENVIRONMENT)?;
    for argument in command.get_arguments() {
        if let Some(name) = argument.get_env().and_then(OsStr::to_str) {
            entry(out, name, &argument.get_help().map(ToString::to_string).unwrap_or_default())?;
        }
    }
    if let Some(parent) = parent {
        write!(out, ".SH SEE ALSO\n{}(1)\n", roff(parent))?;
    }
    Ok(())
}

fn section(out: &mut dyn Write, title: &str, entries: &[(&str, &str)]) -> io::Result<()> {
    writeln!(out, ".SH {title:?}")?;
    entries.iter().try_for_each(|(name, text)| entry(out, name, text))
}

fn entry(out: &mut dyn Write, name: &str, text: &str) -> io::Result<()> {
    write!(out, ".TP\n{}\n{}\n", roff(name), roff(text))
}

/// Escapes the characters that roff interprets.
fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    let line = |line: &str| if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_owned() };
    escaped.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_page_has_exit_codes_and_the_environment() {
        let command = Command::new("run")
            .about("Run a command.")
            .after_help("Example:\n  redlock run -- true")
            .arg(clap::Arg::new("uid").long("pod-uid").help("The pod.").env("REDLOCK_POD_UID"));
        let mut page = Vec::new();
        manual_page(&command, Some("redlock"), &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        for part in
            [".SH \"EXIT STATUS\"\n.TP\n0 to 255\n", "\n122\n", "KUBECONFIG", "REDLOCK_POD_UID\nThe pod.", "redlock(1)"]
        {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(page.contains(".SH EXAMPLE\n.nf\n  redlock run \\-\\- true\n.fi"), "{page}");
        assert!(!page.contains("EXTRA"));
    }

    #[test]
    fn a_text_has_no_meaning_in_roff() {
        assert_eq!(roff(".SH x\na\\b -c\n'q"), "\\&.SH x\na\\eb \\-c\n\\&'q");
    }
}
