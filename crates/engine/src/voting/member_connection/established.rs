//! An established connection: its stream, its pipeline, and its timers.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::redlock::{Command, MemberError};
use crate::voting::Endpoint;
use crate::voting::connect::Stream;
use crate::voting::encoded_requests::EncodedRequests;
use crate::voting::pending_releases::MAX_IN_FLIGHT;
use crate::voting::pipeline::Link;
use crate::voting::pipeline::Pipeline;
use crate::voting::request_queue::Request;

/// Interval of checks of a connection.
const TICK: Duration = Duration::from_millis(250);
/// Ticks without any answer after which the connection ends: two seconds.
const SILENT_TICKS: u32 = 8;
/// Ticks between two PINGs on a connection with nothing to do.
const PING_TICKS: u32 = 4;
/// Maximum number of reads of one connection per poll.
///
/// It keeps one member from delaying the other members.
const READS: usize = 4;
/// Initial size of the input buffer.
const BUFFER: usize = 16 << 10;
/// Maximum number of bytes that wait for a slow member.
///
/// Beyond it requests fail at once.
const MAX_UNSENT: usize = 1 << 20;

/// One established connection.
///
/// [`super::MemberConnection`] makes it after the login.
pub(super) struct Established {
    pub(super) endpoint: Endpoint,
    stream: Box<dyn Stream>,
    pub(super) pipeline: Pipeline,
    written: usize,
    /// True if TLS has bytes that it could not write at once.
    needs_flush: bool,
    input: Vec<u8>,
    filled: usize,
    ticks: Interval,
    silent_ticks: u32,
    idle_ticks: u32,
    /// Pending releases of the last connection, which this connection delivers a second time.
    ///
    /// A process that was frozen can execute requests of an earlier connection after the first requests of this connection.
    pub(super) delivered_twice: Vec<Command>,
}

impl Established {
    /// Delivers `releases` a second time, after the first answer of the member.
    pub(super) fn new(endpoint: Endpoint, stream: Box<dyn Stream>, pipeline: Pipeline, releases: Vec<Command>) -> Self {
        let mut ticks = interval(TICK);
        // Missed ticks after a suspend do not mean that the member is silent.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            endpoint,
            stream,
            pipeline,
            written: 0,
            needs_flush: false,
            input: vec![0; BUFFER],
            filled: 0,
            ticks,
            silent_ticks: 0,
            idle_ticks: 0,
            delivered_twice: releases,
        }
    }

    /// The number of outstanding replies and releases.
    pub(super) fn in_flight(&self) -> usize {
        self.pipeline.in_flight() + self.delivered_twice.len()
    }

    /// The number of requests that can be written now.
    pub(super) fn room(&self) -> usize {
        let unsent = self.pipeline.out.len() - self.written;
        if unsent < MAX_UNSENT { MAX_IN_FLIGHT.saturating_sub(self.pipeline.in_flight()) } else { 0 }
    }

    pub(super) fn write(&mut self, requests: impl IntoIterator<Item = Request>, encoded: &mut EncodedRequests) {
        if !self.pipeline.is_busy() {
            self.silent_ticks = 0;
        }
        self.pipeline.write(requests, Vec::new(), encoded);
    }

    /// Ready with the reason when the connection has ended.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, link: &watch::Sender<Link>) -> Poll<MemberError> {
        for turn in 0.. {
            if turn == READS {
                cx.waker().wake_by_ref();
                break;
            }
            if self.filled == self.input.len() {
                self.input.resize(self.input.len() * 2, 0);
            }
            let mut buffer = ReadBuf::new(&mut self.input[self.filled..]);
            let read = Pin::new(&mut *self.stream).poll_read(cx, &mut buffer);
            let bytes = buffer.filled().len();
            match read {
                Poll::Pending => break,
                Poll::Ready(Ok(())) if bytes > 0 => self.filled += bytes,
                Poll::Ready(_) => return Poll::Ready(MemberError::closed()),
            }
            if let Err(error) = self.take_replies(link) {
                return Poll::Ready(error);
            }
        }
        while self.ticks.poll_tick(cx).is_ready() {
            if let Err(error) = self.tick() {
                return Poll::Ready(error);
            }
        }
        Poll::Pending
    }

    fn take_replies(&mut self, link: &watch::Sender<Link>) -> Result<(), MemberError> {
        let used = self.pipeline.read(&self.input[..self.filled])?;
        if used > 0 {
            self.silent_ticks = 0;
            self.input.copy_within(used..self.filled, 0);
            self.filled -= used;
            if self.filled == 0 && self.input.len() > BUFFER {
                self.input = vec![0; BUFFER];
            }
            let state = self.pipeline.link();
            link.send_if_modified(|link| {
                let changed = *link != state;
                *link = state;
                changed
            });
        }
        Ok(())
    }

    /// Checks the connection: ends a silent one, and sends PING on an idle one.
    fn tick(&mut self) -> Result<(), MemberError> {
        if self.pipeline.was_answered() && !self.delivered_twice.is_empty() {
            self.pipeline.write([], std::mem::take(&mut self.delivered_twice), &mut EncodedRequests::default());
        }
        if self.pipeline.is_busy() {
            self.silent_ticks += 1;
            let is_dead = self.silent_ticks >= SILENT_TICKS;
            return if is_dead { Err(MemberError::Unreachable("no answer".to_owned())) } else { Ok(()) };
        }
        self.idle_ticks += 1;
        if self.idle_ticks >= PING_TICKS || self.pipeline.needs_write() {
            (self.idle_ticks, self.silent_ticks) = (0, 0);
            self.pipeline.write_on_idle();
        }
        Ok(())
    }

    /// Ready with the reason when the connection has ended.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<MemberError> {
        while self.written < self.pipeline.out.len() {
            let bytes = &self.pipeline.out[self.written..];
            match ready!(Pin::new(&mut *self.stream).poll_write(cx, bytes)) {
                Ok(0) | Err(_) => return Poll::Ready(MemberError::closed()),
                Ok(written) => self.written += written,
            }
        }
        if self.written > 0 {
            self.pipeline.out.clear();
            (self.written, self.needs_flush) = (0, true);
        }
        if self.needs_flush {
            if ready!(Pin::new(&mut *self.stream).poll_flush(cx)).is_err() {
                return Poll::Ready(MemberError::closed());
            }
            self.needs_flush = false;
        }
        Poll::Pending
    }
}
