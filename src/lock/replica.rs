//! On every replica: the renewal of held locks, and the adoption of holds that another one published.

pub mod access;
pub mod adopt;
pub mod hold_table;
pub mod holder;
pub mod liveness;
pub mod location;
pub mod observation_times;
pub mod renewal;
