//! The Redis adapter (under construction).
