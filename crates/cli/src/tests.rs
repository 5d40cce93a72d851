use clap::Subcommand as _;

use super::*;
use redlock_engine::time::Boottime;

/// The arguments on a command line, without the program.
pub(crate) fn parsed<A: clap::Args>(words: &[&str]) -> Result<A, clap::Error> {
    let command = A::augment_args(clap::Command::new("redlock").no_binary_name(true));
    A::from_arg_matches(&command.try_get_matches_from(words)?)
}

/// The time at this number of milliseconds after the boot.
pub(crate) fn at(millis: u64) -> Boottime {
    Boottime::new(std::time::Duration::from_millis(millis))
}

fn tree() -> clap::Command {
    UserCommand::augment_subcommands(clap::Command::new("redlock"))
}

/// Collects the commands without subcommands, each with its full name.
fn leaves(command: &clap::Command, path: &str, found: &mut Vec<(String, clap::Command)>) {
    for child in command.get_subcommands() {
        let path = format!("{path} {}", child.get_name());
        match child.has_subcommands() {
            true => leaves(child, &path, found),
            false => found.push((path, child.clone())),
        }
    }
}

fn commands() -> Vec<(String, clap::Command)> {
    let mut found = Vec::new();
    leaves(&tree(), "redlock", &mut found);
    assert!(found.len() >= 15, "{found:?}");
    found
}

#[test]
fn the_page_about_the_commands_has_them_all() {
    let page = include_str!("../../../docs/command.md");
    for (path, command) in commands() {
        assert!(page.contains(&format!("`{path}")), "docs/command.md has no {path}");
        for argument in command.get_arguments().filter_map(clap::Arg::get_long) {
            assert!(page.contains(&format!("--{argument}")), "docs/command.md does not describe {path} --{argument}");
        }
    }
}

#[test]
fn completions_and_manual_pages_can_be_made() {
    for shell in <clap_complete::Shell as clap::ValueEnum>::value_variants() {
        let script = completion::script(&shell.to_string()).unwrap();
        assert!(String::from_utf8(script).unwrap().contains("REDLOCK_COMPLETE"), "{shell}");
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(tree()).render(&mut page).unwrap();
    assert!(String::from_utf8(page).unwrap().contains("history"));
}
