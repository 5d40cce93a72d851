//! README.md and docs/quickstart.md, command by command, on an empty cluster.
//!
//! The tests replace only the names of the images and of the chart.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::{CHART, check_empty, empty, images};
use crate::{
    bench::Bench,
    cluster::{Cluster, checkout},
    operators, poll,
};

const PUBLISHED_CHART: &str =
    concat!("oci://ghcr.io/redlock-operator/charts/redlock-operator --version ", env!("CARGO_PKG_VERSION"));
/// The application of the quick start.
///
/// The tests use Redis' image instead, which has a shell and busybox.
const APPLICATION: &str = "docker.io/library/busybox:1.36";
/// The limit until a Service has the leader's endpoint after the label is set.
const SERVICE_LIMIT: Duration = Duration::from_secs(30);

/// The commands of a page below one heading.
struct Block {
    heading: String,
    text: String,
}

impl Block {
    /// Lines that begin a command.
    fn commands(&self) -> usize {
        self.text.lines().filter(|line| line.starts_with("kubectl ") || line.starts_with("helm ")).count()
    }
}

fn blocks(page: &str) -> anyhow::Result<Vec<Block>> {
    let text = std::fs::read_to_string(checkout().join(page)).with_context(|| page.to_owned())?;
    let (mut blocks, mut heading, mut lines) = (Vec::new(), String::new(), text.lines());
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix("## ") {
            title.clone_into(&mut heading);
        } else if line == "```sh" {
            let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push(Block { heading: heading.clone(), text: block.join("\n") });
        }
    }
    Ok(blocks)
}

struct Reader<'a> {
    cluster: &'a Cluster,
    /// The chart of this checkout, with the images of this cluster.
    chart: String,
}

impl Reader<'_> {
    async fn once(&self, block: &Block) -> anyhow::Result<String> {
        let text = block.text.replace(PUBLISHED_CHART, &self.chart).replace(APPLICATION, &self.cluster.member_image);
        ensure!(!text.contains("oci://"), "{}: another chart than the published one", block.heading);
        self.cluster.shell(&text).await.with_context(|| format!("{}:\n{text}", block.heading))
    }

    async fn follow(&self, block: &Block) -> anyhow::Result<String> {
        if !block.text.contains("get --raw") {
            return self.once(block).await;
        }
        poll::until(SERVICE_LIMIT, "the Service answers", || async { Ok(self.once(block).await.ok()) }).await
    }
}

pub(crate) async fn the_first_pages_lead_to_a_leader_and_an_empty_cluster_again(bench: Bench) -> anyhow::Result<()> {
    let cluster = &bench.cluster;
    let settings: String = images(cluster).await?.iter().map(|setting| format!(" --set {setting}")).collect();
    let reader = Reader { cluster, chart: format!("{CHART}{settings}") };
    let test = async {
        empty(cluster).await?;
        readme(&bench, &reader).await?;
        empty(cluster).await?;
        quickstart(&bench, &reader).await
    };
    operators::then_as_before(cluster, test).await
}

/// Checks that at most five commands lead to a held lock.
async fn readme(bench: &Bench, reader: &Reader<'_>) -> anyhow::Result<()> {
    let begun = bench.now();
    let mut commands = 0;
    for block in blocks("README.md")?.iter().filter(|block| ["Install", "The first lock"].contains(&&*block.heading)) {
        commands += block.commands();
        let output = reader.follow(block).await?;
        if block.heading == "The first lock" {
            ensure!(output.contains("condition met") && output.contains("Held"), "{output}");
            bench.figures.add("README: empty cluster -> first lock held", bench.now().since(begun));
        }
    }
    ensure!((2..=5).contains(&commands), "{commands} commands to a held lock");
    Ok(())
}

/// Checks that one more manifest leads to a leader, and that two commands remove everything.
async fn quickstart(bench: &Bench, reader: &Reader<'_>) -> anyhow::Result<()> {
    let blocks = blocks("docs/quickstart.md")?;
    let manifests =
        blocks.iter().filter(|block| block.heading.starts_with("3.") && block.text.contains("apply")).count();
    ensure!(manifests == 1, "{manifests} manifests to a leader");
    let back: usize = blocks.iter().filter(|block| block.heading.starts_with("5.")).map(Block::commands).sum();
    ensure!(back == 2, "{back} commands back");
    let mut output = String::new();
    for block in &blocks {
        output.push_str(&reader.follow(block).await?);
    }
    for part in ["condition met", "the lock is held: do the work here", "scheduler-", " HolderGone"] {
        ensure!(output.contains(part), "{part:?} is not in:\n{output}");
    }
    check_empty(&bench.cluster).await
}
