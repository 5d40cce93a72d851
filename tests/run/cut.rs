//! The network between a test's programs and its members, which can be cut.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    thread,
};

/// The traffic that passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passes {
    All,
    /// Members receive requests, and their answers are lost.
    RequestsOnly,
    /// Connections stay open, and no data passes, as with a cut cable.
    Nothing,
}

#[derive(Debug)]
struct Shared {
    passes: AtomicU8,
    is_over: AtomicBool,
}

/// Proxies with one address for each member.
pub(crate) struct Network {
    shared: Arc<Shared>,
    ports: Vec<u16>,
}

impl Network {
    pub(crate) fn before(members: &[u16]) -> Self {
        let shared = Arc::new(Shared { passes: AtomicU8::new(Passes::All as u8), is_over: AtomicBool::new(false) });
        let ports = members.iter().map(|member| listen(shared.clone(), *member)).collect();
        Self { shared, ports }
    }

    pub(crate) fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Limits the traffic to this from now on.
    pub(crate) fn let_pass(&self, what: Passes) {
        self.shared.passes.store(what as u8, Ordering::SeqCst);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // The accepting thread checks `is_over` at the next connection.
        self.ports.iter().for_each(|port| drop(TcpStream::connect(("127.0.0.1", *port))));
    }
}

fn listen(shared: Arc<Shared>, member: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            if shared.is_over.load(Ordering::SeqCst) {
                return;
            }
            if let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", member))) {
                join(&shared, &client, &server);
            }
        }
    });
    port
}

/// Forwards bytes in both directions until one end is closed.
fn join(shared: &Arc<Shared>, client: &TcpStream, server: &TcpStream) {
    let ways = [(client, server, Passes::RequestsOnly), (server, client, Passes::All)];
    for (from, to, at_least) in ways {
        let (shared, from, to) = (shared.clone(), from.try_clone().unwrap(), to.try_clone().unwrap());
        thread::spawn(move || carry(&shared, from, to, at_least));
    }
}

/// Forwards bytes of one direction while the network lets at least this traffic pass.
fn carry(shared: &Shared, mut from: TcpStream, mut to: TcpStream, at_least: Passes) {
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        let passes = shared.passes.load(Ordering::SeqCst) <= at_least as u8;
        if passes && to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
