//! One plan on many machines, by an engine that exists.
//!
//! A fleet is a directory that all machines see ([`Fleet`]): the plan, the programs, and a store for each slice that is done.
//! The contract with an engine is one command: *run `trapline fleet work DIR N` once for each slice N on any machine that sees
//! DIR* ([`work`]). There is no process that must stay alive: what is done is a file, and what is missing can be
//! submitted again, to [`slurm`], to processes of this host ([`local`]), or to anything else that runs commands.
#![forbid(unsafe_code)]

mod attempt;
mod error;
mod fleet;
pub mod local;
mod package;
mod ranges;
pub mod slurm;
mod work;

pub use attempt::Attempt;
pub use error::FleetError;
pub use fleet::{Fleet, Order};
pub use work::{self_test, work, Check, Worked, ENDS_WITH_PARENT};
