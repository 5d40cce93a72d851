//! Ports of servers that tests and benches start.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 20_000;
const COUNT: u32 = 10_000;

/// A free port of 127.0.0.1 below the ephemeral range.
///
/// The kernel gives an ephemeral port to an outgoing connection, also before the server listens or while it restarts.
/// A process gets each port once.
pub(crate) fn free_port() -> u16 {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    loop {
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        // Processes that run beside each other begin at other ports.
        let offset = std::process::id().wrapping_mul(101).wrapping_add(call) % COUNT;
        if let Ok(port) = u16::try_from(FIRST + offset)
            && TcpListener::bind(("127.0.0.1", port)).is_ok()
        {
            return port;
        }
    }
}
