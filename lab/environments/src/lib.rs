//! Environments: stacks of layers that run the image or the agent.
//!
//! [`all`] returns them, [`boot`] executes a planned boot of one. They implement [`Environment`] and their
//! guests [`Guest`], so that crates above do not distinguish processes, virtual machines and simulated
//! machines. VMMs are separate processes. Output of guests is untrusted, and decoded by
//! [`trapline_protocol`].

mod bochs;
mod boot;
mod custom_vmm;
pub mod disk;
mod environment;
mod files;
mod guest_disk;
mod guest_output;
pub mod kernel_build;
mod kvm;
mod launch;
mod layered;
mod linux_guest;
mod loads;
mod merged;
mod needs;
mod network;
mod nova_conformance;
mod observe;
pub mod packets;
mod process_guest;
mod recording;
mod replay;
pub mod sim;
mod start_barrier;
pub mod symbols;
mod tracing;
mod vmm_command;
mod wall;
mod window;

pub use bochs::unpacked_kernel;
pub use boot::{boot, Booted};
pub use environment::{Environment, Guest, Progress, SampleSink, Work};
pub use kvm::ready_for_linux;
pub use launch::{ClockOffset, FinishedLaunch};
pub use linux_guest::{shell_root, stock_kernel, Root};
pub use network::check_taps;
pub use nova_conformance::{run_nova_conformance, Conformance};
pub use observe::last_stage;
pub use trapline_host::custom_vmm::{CustomVmm, InvalidCommand};
pub use trapline_host::debug_files;
pub use trapline_host::host_noise::NoiseSampler;
pub use trapline_host::process::Guard;
pub use trapline_host::{
    cache, draft, private, sha256_of_file, tool, Activity, Cache, Error as EnvError, Facts,
    GuestImage, Limits, Part, Parts, TscRate,
};
pub use trapline_protocol::Window;
pub use trapline_sim::plugin::Plugin;
pub use trapline_sim::settings::{GivenKernel, Settings, Start};
pub use trapline_sim::trace::Trace;

use trapline_model::EnvironmentId;

/// Returns an environment with these settings: a replayed one if they have recordings.
pub fn environment(id: EnvironmentId, settings: &Settings) -> Box<dyn Environment> {
    let layered = layered::Layered {
        id,
        settings: settings.clone(),
    };
    match settings.recordings() {
        None => Box::new(layered),
        Some(recordings) => Box::new(replay::Replayed {
            layered,
            recordings,
        }),
    }
}

/// Returns all environments in table order.
pub fn all(settings: &Settings) -> Vec<Box<dyn Environment>> {
    EnvironmentId::all()
        .map(|id| environment(id, settings))
        .collect()
}
