//! Pure: decisions about a quorum, its objects, and its messages.
//!
//! The specification, parsed once: [`plan`], [`expose`], [`invalid`]. The objects of it: [`build`], [`auth`], [`users`], [`tls`]. What the status
//! records, read back: [`lists`] (whose votes count), [`record`] (what the fence knows), [`effective`] (which times are used). One next
//! step each: [`membership`], [`rollout`], [`rotation`], [`lost_secrets`], and for shared masters [`agreement`].
//! [`counters`] which numbers of the token counters count, [`facts`] what pods and nodes say, [`quantity`] how Kubernetes writes bytes, [`lookup`] which quorum a lock means, [`version`] which servers have known faults, [`status`] the
//! conditions. [`problems`], [`blocked`], [`doing`] and [`events`] are what it says in words.

pub mod agreement;
pub mod auth;
pub mod blocked;
pub mod build;
pub mod condition;
pub mod counters;
pub mod doing;
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
pub mod quantity;
pub mod record;
pub mod rollout;
pub mod rotation;
pub mod status;
pub mod tls;
pub mod users;
pub mod version;

#[cfg(test)]
mod properties;
