//! Data model of the lab: environments, requests, plans and observations.
//!
//! A [`Request`] with its seed expands deterministically to a [`Plan`]. Each boot of the plan yields an
//! [`Observation`], which holds raw data only and is stored before figures are computed. This crate starts no
//! process and opens no file.
#![forbid(unsafe_code)]

pub mod block;
pub mod clock;
pub mod conditions;
mod config;
pub mod cpus;
pub mod environment;
pub mod expand;
pub mod features;
pub mod file;
pub mod forwarders;
pub mod guest_config;
pub mod host;
pub mod irq;
pub mod kernel_build;
pub mod layers;
pub mod line;
pub mod load;
mod named;
pub mod names;
pub mod observed;
mod operation;
mod operations;
mod overrides;
pub mod packets;
pub mod populate;
pub mod preset;
mod properties;
pub mod recorded;
pub mod request;
pub mod sched;
mod scheduling;
pub mod settings;
pub mod slice;
#[doc(hidden)]
pub mod testing;
pub mod time;
mod unavailable;
mod units;
pub mod vmms;

pub use clock::Clock;
pub use conditions::{Conditions, PerCpu};
pub use config::{Config, InvalidConfig};
pub use environment::EnvironmentId;
pub use expand::{expand, LeftOut, Plan, PlannedBoot, Purpose};
pub use features::Feature;
pub use guest_config::{
    Batching, Crossing, GuestConfig, GuestPath, MemoryPages, Mitigations, Peer, Population, Serial,
    Spaces, Switch, VcpuState, Wake, LAYOUTS,
};
pub use host::Host;
pub use load::{Created, Load, Loads};
pub use named::Named;
pub use observed::{Launch, Observation, OperationResult, Outcome, Sample, Timeline};
pub use operation::Operation;
pub use operations::Operations;
pub use overrides::{InvalidSetting, Overrides, UnsupportedSetting};
pub use preset::Preset;
pub use recorded::RecordedRequest;
pub use request::{Aim, Request, EXACT_BOOTS};
pub use sched::{Sched, Scheduler};
pub use scheduling::{Competitor, Halt, Pin, Scheduling, COMPETITOR, ENERGY};
pub use settings::{FileOverride, Setting, SETTINGS};
pub use slice::Slice;
pub use unavailable::Unavailable;
