//! Executes plans: boots every environment of a plan in order and streams the observations to a sink.
//!
//! [`Inventory`] lists the environments of this host. [`run::perform`] measures a request and stores it;
//! [`run::continue_run`] measures what an interrupted run has left. [`profiles`] counts instructions in
//! the same boots. Progress is reported as [`RunEvent`]s; this crate prints nothing.
#![forbid(unsafe_code)]

mod affinity;
pub mod bisect;
mod boot;
mod boots;
pub mod comparison;
mod concurrent;
mod context;
pub mod counters;
mod debug_symbols;
mod event;
pub mod exact;
mod failure;
pub mod file_overrides;
pub mod floor;
mod interrupt;
mod inventory;
pub mod irq_tracer;
mod lengths;
mod long;
mod options;
pub mod profiles;
mod recorded;
mod resume;
pub mod run;
mod run_owner;
pub use run_owner::is_running_elsewhere;
mod seed;
pub mod series_settings;
mod sink;
mod source_lines;
mod symbols;
mod timeout;
mod windows;

pub use affinity::packet_cpus;
pub use concurrent::check_concurrent;
pub use context::RunContext;
pub use event::{EventHandler, RunEvent};
pub use failure::{Failure, Status};
pub use interrupt::Interrupt;
pub use inventory::{EnvironmentEntry, Inventory};
pub use options::BootOptions;
pub use recorded::PARTS;
pub use resume::{Resume, RANDOM_FACTS};
pub use seed::{random_seed, seed_of_slices};
pub use sink::{ObservationSink, StoreSink};
