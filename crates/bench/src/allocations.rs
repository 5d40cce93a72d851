//! Allocations of this client per cycle.

use redlock_client::Client;

use crate::callers::TTL;
use crate::client_of;
use crate::servers::Servers;

const CYCLES: u64 = 1000;

async fn cycles(client: &Client) {
    for _ in 0..CYCLES {
        if let Ok(guard) = client.lock("counted").ttl(TTL).try_acquire().await {
            let _ = guard.release().await;
        }
    }
}

/// Allocations and bytes per cycle, of caller and driver together.
///
/// They are counted per thread, so everything runs on one thread.
pub(crate) fn per_cycle(servers: &Servers) -> (f64, f64) {
    let counting = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let client = client_of(servers.urls(), true).await;
            cycles(&client).await;
            client
        });
        let counted = allocation_counter::measure(|| runtime.block_on(cycles(&client)));
        [counted.count_total, counted.bytes_total].map(|total| total as f64 / CYCLES as f64)
    };
    let [allocations, bytes] = std::thread::scope(|scope| scope.spawn(counting).join().unwrap());
    (allocations, bytes)
}
