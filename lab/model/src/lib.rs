//! What is to be measured, and what was observed: the vocabulary of the lab.
//!
//! A [`Plan`](expand::Plan) is expanded deterministically from a request and a
//! seed. Running a boot of it yields an [`Observation`], raw and complete, which
//! is stored before anything is computed from it. Nothing here starts a process
//! or opens a file.
#![forbid(unsafe_code)]

pub mod block;
mod contender;
pub mod cpus;
pub mod expand;
pub mod file;
pub mod identity;
pub mod irq;
pub mod kernel_build;
pub mod left_out;
pub mod load;
pub mod names;
pub mod observed;
pub mod placement;
pub mod populate;
pub mod preset;
pub mod request;
pub mod sched;
mod scheduling;
mod sharing;
pub mod time;
mod variant;

pub use contender::{BadContender, Contender, Unfit};
pub use expand::{expand, Kind, Plan, PlannedBoot};
pub use identity::{Clock, EnvironmentId, MachineSpec, MemoryPages};
pub use left_out::LeftOut;
pub use load::{Created, Filling, Load, Loads, Serial};
pub use observed::{Launch, Observation, Operation, Outcome, Sample, Timeline};
pub use placement::{Conditions, Pin};
pub use preset::Preset;
pub use request::Request;
pub use sched::Sched;
pub use scheduling::{Scheduler, Scheduling};
pub use sharing::{Halt, PerCpu};
pub use variant::{BadVariant, Given, Variant};
