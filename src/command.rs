//! The commands of people and applications.
//!
//! They stand on top of everything: they use the API's types and the library, never what decides about locks and quorums.

pub mod acquire;
pub mod hold;
pub mod install;
pub mod release;
pub mod run;
