//! The processes of fake masters, and the network that leads to them.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::watch;
use tokio::time::sleep;

use super::FakeMember;
use super::commands::{Execution, Loaded};
use super::protocol;
use crate::redlock::BoxFuture;
use crate::time::Clock;
use crate::voting::{Connect, Stream};

/// Maximum number of bytes in flight per direction.
const BUFFER_BYTES: usize = 256 << 10;

/// The process of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    /// Counts the processes of the member.
    number: u64,
    runs: bool,
    is_frozen: bool,
}

impl Life {
    pub(super) const fn begun() -> Self {
        Self { number: 0, runs: true, is_frozen: false }
    }

    pub(super) fn begin(&mut self) {
        *self = Self { number: self.number + 1, runs: true, is_frozen: false };
    }

    pub(super) fn end(&mut self) {
        self.runs = false;
    }

    pub(super) fn freeze(&mut self) {
        self.is_frozen = true;
    }

    pub(super) fn thaw(&mut self) {
        self.is_frozen = false;
    }

    const fn is_process(self, number: u64) -> bool {
        self.runs && self.number == number
    }
}

/// The network of the fake members, by the names in their URLs.
pub(super) struct Network(pub(super) Arc<[FakeMember]>);

impl Connect for Network {
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let index = self.0.iter().position(|member| member.address() == address);
            let index = index.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            let life = *self.0[index].life.borrow();
            if !life.runs {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            // A frozen process accepts a connection, and does not answer.
            let (ours, theirs) = duplex(BUFFER_BYTES);
            tokio::spawn(serve(Arc::clone(&self.0), index, life.number, theirs));
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

/// Serves one connection until the process or the client ends it.
async fn serve(members: Arc<[FakeMember]>, index: usize, process: u64, mut stream: DuplexStream) {
    let member = &members[index];
    let mut life = member.life.subscribe();
    let mut ended = life.clone();
    tokio::select! {
        biased;
        _ = ended.wait_for(|life| !life.is_process(process)) => {}
        _ = answer(member, process, &mut life, &mut stream) => {}
    }
}

async fn answer(
    member: &FakeMember,
    process: u64,
    life: &mut watch::Receiver<Life>,
    stream: &mut DuplexStream,
) -> io::Result<()> {
    let (mut input, mut out, mut loaded) = (Vec::new(), Vec::new(), Loaded::default());
    while stream.read_buf(&mut input).await? > 0 {
        let latency = member.state().latency;
        if !latency.is_zero() {
            sleep(latency).await;
        }
        if life.wait_for(|life| !life.is_frozen).await.is_err() {
            return Ok(());
        }
        execute(member, process, &mut input, &mut out, &mut loaded)?;
        stream.write_all(&out).await?;
        out.clear();
    }
    Ok(())
}

/// Executes all complete commands together, as a process does for one connection.
fn execute(
    member: &FakeMember,
    process: u64,
    input: &mut Vec<u8>,
    out: &mut Vec<u8>,
    loaded: &mut Loaded,
) -> io::Result<()> {
    let run_id = format!("{:032x}{process:08x}", member.index);
    let (now, wall) = (member.clock.boottime(), member.clock.wall());
    let mut state = member.state();
    let mut execution = Execution { store: &mut state.store, loaded, run_id: &run_id, now, wall };
    while let Some(command) = protocol::take(input).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))? {
        execution.execute(&command).write(out);
    }
    Ok(())
}
