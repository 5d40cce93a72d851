//! DistributedLock: from an object in the API server to a key on a majority of Redis members, and back into its status.
//!
//! Pure: [`instance`] (is the holder's container alive?), [`candidate`] (who may hold), [`queue`] (whose turn is it),
//! [`standing`] (may the holder keep it?), [`orphans`] (what did a dead leader leave behind?), [`decide`] (what next?), [`status`] (what to publish). On every replica:
//! [`holds`], [`renewal`], [`adopt`], [`sightings`]. Whatever is held is located by its [`record`]. On the leader, for as long as its [`tenure`] makes sense: [`controller`] wires [`reconcile`],
//! which looks by `contender` and `peers` and acts through `grant`, `publication`, `ending`, [`labels`] and [`writes`].

pub mod access;
pub mod adopt;
pub mod candidate;
mod contender;
pub mod contention;
pub mod controller;
pub mod decide;
mod ending;
mod foreign;
mod grant;
pub mod heartbeat;
pub mod holds;
pub mod index;
pub mod instance;
pub mod labels;
pub mod nodes;
pub mod orphans;
pub mod others;
mod peers;
mod publication;
pub mod publications;
pub mod queue;
mod readiness;
pub mod reconcile;
pub mod record;
pub mod renewal;
pub mod replicas;
pub mod shares;
pub mod shunned;
pub mod sightings;
pub mod standing;
pub mod status;
pub mod tenure;
mod turns;
pub mod unreadable;
mod view;
pub mod vitals;
pub mod writes;

#[cfg(test)]
mod fuzz;
