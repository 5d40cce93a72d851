//! The operator process: shared caches, leadership, and the wiring of everything else.

pub mod cache;
pub mod context;
pub mod leader;
