//! Environments: stacks of layers that can run the image or the agent, each
//! behind one small interface.
//!
//! [`all`] gives them, [`boot`] takes one through a planned boot. In between
//! stand the two traits that every environment keeps, [`Environment`] and
//! [`Guest`]; from here on up it does not matter any more whether a figure comes
//! from a process, a virtual machine or a simulated one. VMMs, ours like any
//! other, are processes of their own, so that none can disturb the one who
//! measures; what guests say is untrusted and goes through [`trapline_protocol`].

mod bochs;
mod boot;
pub mod disk;
mod environment;
mod guest;
pub mod kernel_build;
mod kvm;
mod layered;
mod linux_guest;
mod loads;
mod needs;
mod observe;
mod recording;
mod replay;
pub mod sim;
mod wall;
mod window;

pub use bochs::unpacked_kernel;
pub use boot::{boot, Booted};
pub use environment::{Availability, Environment, Guest, Progress, Requirements, SampleSink, Work};
pub use kvm::ready_for_linux;
pub use linux_guest::{stock_kernel, Root};
pub use observe::{last_stage, Finished, Offset};
pub use trapline_host::custom_vmm::{CustomVmm, InvalidCommand};
pub use trapline_host::{
    cache, sha256_of_file, Cache, Error as EnvError, Facts, GuestImage, Limits, Part, Parts,
    TscRate,
};
pub use trapline_sim::plugin::Plugin;
pub use trapline_sim::settings::{Settings, Start};
pub use trapline_sim::trace::Trace;

use trapline_model::EnvironmentId;

/// Every environment, in the order in which tables show them.
pub fn all(settings: &Settings) -> Vec<Box<dyn Environment>> {
    let environment = |id| {
        let settings = settings.clone();
        Box::new(layered::Layered { id, settings }) as Box<dyn Environment>
    };
    EnvironmentId::ALL.map(environment).into()
}
