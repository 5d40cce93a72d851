//! The leader's node is disconnected.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::support::{
    HTTPD, LOST_NODE_LIMIT, PROBE_PERIOD, SECOND, check_waited, leader, led_by, liveness, message_of_held, ordered,
    past, placed, run, with, worker,
};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, token},
    operators,
};

const TTL: Duration = Duration::from_secs(3);

/// With a liveness check the operator detects the fault immediately.
///
/// Without one it waits until the node is lost.
pub(crate) async fn a_leader_on_a_node_that_is_cut_off_is_followed(bench: Bench) -> anyhow::Result<()> {
    operators::all_available(&bench.cluster).await?;
    let safe = operators::node_of_leader(&bench.cluster).await?;
    let cut = ["node1", "node2", "node3"].into_iter().find(|node| *node != safe).context("no other node")?;
    for (name, node) in [("app-0", cut), ("app-1", safe.as_str())] {
        run(&bench, placed(worker(&bench, name, "app", HTTPD), node)).await?;
    }
    let asked = Lock::create(&bench, with(ordered("asked", "app", TTL, None), liveness())).await?;
    let unasked = Lock::create(&bench, ordered("unasked", "app", TTL, None)).await?;
    let mut tokens = Vec::new();
    for lock in [&asked, &unasked] {
        let held = lock.held(SOON).await?;
        ensure!(leader(&held.object).as_deref() == Some("app-0"), "{:?}", held.object.status);
        tokens.push(token(&held.object)?);
    }
    let (start, mark) = (bench.now(), asked.recorder.mark());
    bench.cluster.faults.cut_node(cut).await?;
    let cut_within = bench.now().since(start);
    let next = led_by(&asked, mark, "app-1", TTL + SOON).await?;
    let took = next.at.since(start);
    bench.figures.add("node cut off, liveness check -> next leader (ttl 3 s)", took);
    ensure!(took < cut_within + TTL + PROBE_PERIOD + SECOND, "the next leader was there only after {took:?}");
    check_waited(&asked, tokens[0], &next, Duration::ZERO, SECOND)?;
    ensure!(past(&next)?.reason == "HolderUnhealthy", "{:?}", past(&next)?);

    let ending = unasked.reason("Ending", LOST_NODE_LIMIT).await?;
    ensure!(message_of_held(&ending).contains("node"), "{}", message_of_held(&ending));
    let next = led_by(&unasked, 0, "app-1", TTL + SOON).await?;
    bench.figures.add("node cut off, nobody asks -> next leader (ttl 3 s)", next.at.since(start));
    check_waited(&unasked, tokens[1], &next, Duration::ZERO, SECOND)?;
    ensure!(past(&next)?.reason == "HolderGone", "{:?}", past(&next)?);
    bench.cluster.faults.heal_nodes().await?;
    operators::all_ready(&bench.cluster).await
}
