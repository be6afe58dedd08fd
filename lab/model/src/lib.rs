//! What is to be measured, and what was observed: the vocabulary of the lab.
//!
//! A [`Plan`](expand::Plan) is expanded deterministically from a request and a
//! seed. Running a boot of it yields an [`Observation`], raw and complete, which
//! is stored before anything is computed from it. Nothing here starts a process
//! or opens a file.
#![forbid(unsafe_code)]

pub mod block;
mod capabilities;
pub mod clock;
mod config;
pub mod cpus;
pub mod environment;
pub mod expand;
pub mod file;
pub mod guest_config;
pub mod irq;
pub mod kernel_build;
pub mod layers;
pub mod left_out;
pub mod load;
pub mod names;
pub mod observed;
mod overrides;
pub mod placement;
pub mod populate;
pub mod preset;
pub mod request;
pub mod sched;
mod scheduling;
pub mod settings;
mod sharing;
#[doc(hidden)]
pub mod testing;
pub mod time;
mod unavailable;
mod units;

pub use clock::Clock;
pub use config::{Config, InvalidConfig};
pub use environment::EnvironmentId;
pub use expand::{expand, Kind, Plan, PlannedBoot};
pub use guest_config::{GuestConfig, MemoryPages};
pub use left_out::LeftOut;
pub use load::{Created, Filling, Load, Loads, Serial};
pub use observed::{Launch, Observation, Operation, Outcome, Sample, Timeline};
pub use overrides::{InvalidSetting, Overrides, UnsupportedSetting};
pub use placement::{Conditions, Pin};
pub use preset::Preset;
pub use request::Request;
pub use sched::Sched;
pub use scheduling::{Scheduler, Scheduling};
pub use settings::{FileOverride, Setting, SETTINGS};
pub use sharing::{Halt, PerCpu};
pub use unavailable::Unavailable;
