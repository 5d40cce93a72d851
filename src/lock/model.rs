//! Pure: decisions about a lock, and their messages.
//!
//! Is the holder's container alive ([`instance`], [`job`], [`verdict`])? Who may hold ([`candidate`], [`nodes`]), and whose turn is it
//! ([`queue`], [`contention`])? What did a dead leader leave behind ([`orphans`])? What is next ([`decide`])? What does the status say
//! ([`status`], [`readiness`])? What does the Lease of an election say ([`lease`])?

pub mod candidate;
pub mod contention;
pub mod decide;
pub mod delay;
pub mod end;
pub mod events;
pub mod foreign;
pub mod grant_writes;
pub mod heartbeat;
pub mod held_for;
pub mod hold;
pub mod instance;
pub mod job;
pub mod key;
pub mod lease;
pub mod nodes;
pub mod orphans;
pub mod queue;
pub mod readiness;
pub mod record;
pub mod refusal;
pub mod said;
pub mod status;
pub mod verdict;

#[cfg(test)]
mod properties;
