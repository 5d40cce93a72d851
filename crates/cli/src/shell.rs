//! `redlock completions`, `man` and `install`: the files of the program on a machine.

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap_complete::Shell;

use crate::cluster::Problem;
use crate::{completion, console, help};

/// For which shell.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Where to.
#[derive(Debug, clap::Args)]
pub struct DirectoryArgs {
    /// The directory. It is created if it does not exist.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Prints the script that completes command lines in a shell.
pub fn completions(args: &CompletionsArgs) -> anyhow::Result<()> {
    let script = completion::script(&args.shell.to_string())?;
    io::Write::write_all(&mut io::stdout().lock(), &script)?;
    Ok(())
}

/// Writes a manual page for each command.
pub fn man(args: &DirectoryArgs, tree: clap::Command) -> anyhow::Result<()> {
    prepare(args)?;
    let mut tree = tree.disable_help_subcommand(true);
    tree.build();
    let pages = write_pages(&tree, None, &args.directory)?;
    console::print(format_args!("{pages} files are in {}", args.directory.display()))?;
    Ok(())
}

/// Writes the pages of a command and its subcommands. Returns their number.
fn write_pages(command: &clap::Command, parent: Option<&str>, directory: &Path) -> io::Result<usize> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let mut page = Vec::new();
    help::manual_page(command, parent, &mut page)?;
    fs::write(directory.join(format!("{name}.1")), page)?;
    let mut pages = 1;
    for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
        pages += write_pages(child, Some(name), directory)?;
    }
    Ok(pages)
}

/// Copies this program into a directory, for example from an init container.
///
/// The copy is complete, or there is none.
pub fn install(args: &DirectoryArgs) -> anyhow::Result<()> {
    prepare(args)?;
    let own = std::env::current_exe()?;
    let target = args.directory.join(if cfg!(windows) { "redlock.exe" } else { "redlock" });
    let half = args.directory.join(format!(".redlock-{:08x}", rand::random::<u32>()));
    let copied = fs::copy(&own, &half).and_then(|_| fs::rename(&half, &target));
    if let Err(error) = copied {
        let _removed = fs::remove_file(&half);
        let what = format!("failed to copy {} to {}: {error}", own.display(), target.display());
        return Err(Problem::new(what, "Check that the volume is mounted and can be written.").into());
    }
    console::print(target.display())?;
    Ok(())
}

fn prepare(args: &DirectoryArgs) -> Result<(), Problem> {
    fs::create_dir_all(&args.directory).map_err(|error| {
        let what = format!("failed to create {}: {error}", args.directory.display());
        Problem::new(what, "Name a directory that can be written.")
    })
}
