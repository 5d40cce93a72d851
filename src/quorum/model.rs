//! Pure: decisions about a quorum, its objects, and its messages.
//!
//! The specification, parsed once: [`plan`], [`expose`], [`invalid`]. Its objects: [`build`], [`auth`], [`users`],
//! [`tls`]. The records of the status, read back: [`lists`] (whose votes count), [`record`] (the input of the fence),
//! [`effective`] (which times are used). One next step each: [`membership`], [`rollout`], [`rotation`],
//! [`lost_secrets`], and for shared masters [`agreement`].
//!
//! [`counters`] decides which token counters are behind. [`facts`] reads pods and nodes, and [`quantity`] amounts of bytes.
//! [`lookup`] finds the quorum of a lock. [`version`] lists servers with known faults. [`status`] makes the conditions.
//! [`problems`], [`blocked`], [`unanswered`], [`progress`] and [`events`] have the messages.

pub mod agreement;
pub mod auth;
pub mod blocked;
pub mod build;
pub mod counters;
pub mod effective;
pub mod events;
pub mod expose;
pub mod facts;
pub mod invalid;
pub mod lists;
pub mod lookup;
pub mod lost_secrets;
pub mod member;
pub mod membership;
pub mod plan;
pub mod problems;
pub mod progress;
pub mod quantity;
pub mod record;
pub mod rollout;
pub mod rotation;
pub mod status;
pub mod tls;
pub mod unanswered;
pub mod users;
pub mod version;

#[cfg(test)]
mod properties;
