//! On every replica, also on those that do not lead: held locks are renewed, and what another replica has published is taken up.

pub mod access;
pub mod adopt;
pub mod hold_table;
pub mod holder;
pub mod liveness;
pub mod location;
pub mod observation_times;
pub mod renewal;
