//! The algorithm: validity, votes, tokens and values, and the engine that sends requests to all members.
//!
//! docs/dev/algorithm.md describes it.
//!
//! The engine counts votes of admitted processes, and a majority decides. Validities end before the keys expire. The members issue the
//! fencing tokens.
//!
//! This module does not depend on Redis. Members are implementations of [`LockMember`], and time comes from a [`crate::time::Clock`].
//! [`Redlock`] is the engine. Its decisions are pure: [`validity()`], [`Tally`].

mod answers;
mod backoff;
pub(crate) mod deferred_wakes;
mod electorate;
mod member;
mod names;
mod outcome;
mod reading;
pub(crate) mod round_answers;
mod tally;
mod token;
mod validity;
mod value;

mod engine;

pub use answers::{Answers, BoxFuture, KeyState, MemberError, Replies, Reply, StoredValue, Unfit};
pub use backoff::jittered;
pub use electorate::{ClockCheck, ClockSample, CounterCheck, Elector, Electorate};
pub use engine::{LateVotes, Redlock, Settings};
pub use member::{Command, LockMember};
pub use names::{LockKey, MemberName, RunId, TOKEN_KEY, slot_key};
pub use outcome::{
    Acquire, AcquireRequest, Extend, ExtendRequest, Grant, MemberFailure, Missing, Occupant, Released, Seal, Votes,
    is_silence,
};
pub use reading::{MemberReading, Owner, Reading, reading};
pub use round_answers::{AnswerSlot, Expiry};
pub use tally::{Loss, Progress, Tally, Vote};
pub use token::{FencingToken, held_at_once, is_set, recovered, restored};
pub use validity::{Drift, granted_until, longest_ttl, rejoin_delay, renewed_until, repair_until, validity};
pub use value::{LockValue, Nonce, NotANonce};
