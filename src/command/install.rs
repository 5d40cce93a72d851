//! `redlock install`: copies the program, since an image without a shell has no `cp`.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

/// Where the program goes.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example, in an init container: redlock install /redlock")]
pub struct InstallArgs {
    /// An existing directory. The program is `redlock` in it.
    directory: PathBuf,
}

/// Copies this program.
///
/// # Errors
/// If it cannot be written there.
pub fn run(args: &InstallArgs) -> anyhow::Result<()> {
    let to = args.directory.join("redlock");
    copy(Path::new(super::run::SELF), &to).with_context(|| format!("{} cannot be written", to.display()))
}

/// Under another name first: a program that runs is not written over.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    let new = to.with_extension("new");
    fs::copy(from, &new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    fs::rename(new, to)
}
