//! `redlock completions`, `man` and `install`: what surrounds the program on a machine.

use std::path::PathBuf;
use std::{fs, io};

use clap_complete::Shell;

use super::cluster::Problem;
use super::console;

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

/// Prints the completions of this tree of commands.
pub fn completions(args: &CompletionsArgs, mut tree: clap::Command) -> anyhow::Result<()> {
    let name = tree.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut tree, name, &mut script);
    io::Write::write_all(&mut io::stdout().lock(), &script)?;
    Ok(())
}

/// Writes a manual page for each command.
pub fn man(args: &DirectoryArgs, tree: clap::Command) -> anyhow::Result<()> {
    prepare(args)?;
    clap_mangen::generate_to(tree, &args.directory)?;
    let pages = fs::read_dir(&args.directory)?.count();
    console::print(format_args!("{pages} files are in {}", args.directory.display()))?;
    Ok(())
}

/// Copies this program into a directory, whole or not at all. An init container calls it.
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
