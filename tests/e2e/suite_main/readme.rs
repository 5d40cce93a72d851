//! What README says to paste is pasted.

use anyhow::{Context as _, ensure};

use crate::{bench::Bench, cluster::checkout, locks::SOON, poll};

const README: &str = "README.md";
/// Stands above the commands that this test runs.
const MARKER: &str = "<!-- tested by: the_claim_of_readme_works_when_pasted -->\n```sh\n";
/// The line of README in whose place work is done.
const WORK: &str = "echo \"the lock is held: do the work here\"";

/// README's script takes a lock, and its lock is gone when it has ended. While it holds the lock, README's other command shows the holder.
pub(crate) async fn the_claim_of_readme_works_when_pasted(bench: Bench) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(checkout().join(README))?;
    let commands: Vec<&str> =
        text.split(MARKER).skip(1).filter_map(|rest| rest.split_once("\n```").map(|(commands, _)| commands)).collect();
    let [claim, show] = commands.as_slice() else { anyhow::bail!("{README} has {} such blocks", commands.len()) };
    ensure!(claim.contains(WORK), "the script of {README} has no line {WORK}");
    let show = show.replace("dlock scheduler", "\"$claim\"");
    let script = claim.replace(WORK, &format!("echo held; {show}"));
    let output = bench.cluster.shell(&script, &bench.namespace).await?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "the script failed: {said}{errors}");
    let shown = said.split_once("held\n").context("the script did not get as far as its work")?.1;
    let token = shown.split_whitespace().find_map(|word| word.parse::<u64>().ok());
    ensure!(token.is_some(), "no token is shown while the lock is held: {said}");
    let gone = || async {
        let left = bench.kubectl(&["get", "dlock", "-o", "name"]).await?;
        Ok(left.trim().is_empty().then_some(()))
    };
    poll::until(SOON, "the claim of the script is gone", gone).await
}
