//! The host: processes, CPU affinity, clocks, noise, packages and the cache.
//!
//! Nothing here depends on an environment.

pub mod affinity;
pub mod cache;
pub mod clock_check;
pub mod control_group;
pub mod custom_vmm;
pub mod cyclictest;
pub mod debug_files;
pub mod draft;
pub mod exit_status;
pub mod facts;
pub mod host_noise;
pub mod identity;
pub mod package;
pub mod private;
pub mod probe;
pub mod process;
#[doc(hidden)]
pub mod testing;
pub mod tool;
pub mod toolchain;
pub mod usage;

mod activity;
mod clock;
pub mod energy;
mod error;
pub mod files;
mod limits;
mod parts;

pub use activity::Activity;
pub use cache::Cache;
pub use clock::TscRate;
pub use error::Error;
pub use facts::Facts;
pub use files::{find_program, hexadecimal, memory_file, sha256_of_file, sha256_of_files};
pub use limits::Limits;
pub use parts::{GuestImage, Part, Parts, MISSING_PARTS};
