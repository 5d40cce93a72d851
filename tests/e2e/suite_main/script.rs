//! The script of the quick start, and the query of docs/election.md while it runs.

use anyhow::{Context as _, ensure};

use crate::{bench::Bench, cluster::checkout, locks::SOON, poll};

/// The line above the commands that this test runs.
const MARKER: &str = "<!-- tested by: the_script_of_the_quick_start_works_when_pasted -->\n```sh\n";
/// The line of the script that the test replaces.
const WORK: &str = "echo \"the lock is held: do the work here\"";

/// The block of a page that this test runs.
fn block(page: &str) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(checkout().join(page)).with_context(|| page.to_owned())?;
    let blocks: Vec<&str> =
        text.split(MARKER).skip(1).filter_map(|rest| rest.split_once("\n```").map(|(commands, _)| commands)).collect();
    let [block] = blocks.as_slice() else { anyhow::bail!("{page} has {} such blocks", blocks.len()) };
    Ok((*block).to_owned())
}

/// The script takes a lock, and deletes it at its end.
///
/// While it holds the lock, the other page's command prints the holder.
pub(crate) async fn the_script_of_the_quick_start_works_when_pasted(bench: Bench) -> anyhow::Result<()> {
    let (claim, show) = (block("docs/quickstart.md")?, block("docs/election.md")?);
    ensure!(claim.contains(WORK), "the script has no line {WORK}");
    let show = show.replace("dlock scheduler", "\"$claim\"");
    // The output ends without a line feed.
    let script = claim.replace(WORK, &format!("echo held; {show}; echo"));
    let output = bench.cluster.shell_in(&bench.namespace, &script).await?;
    let (answer, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "the script failed: {answer}{errors}");
    let reported = answer.split_once("held\n").context("the script did not get as far as its work")?.1;
    let token = reported.split_whitespace().find_map(|word| word.parse::<u64>().ok());
    ensure!(token.is_some(), "the command printed no token while the lock was held: {answer}");
    let gone = || async {
        let left = bench.kubectl(&["get", "dlock", "-o", "name"]).await?;
        Ok(left.trim().is_empty().then_some(()))
    };
    poll::until(SOON, "the claim of the script is gone", gone).await
}
