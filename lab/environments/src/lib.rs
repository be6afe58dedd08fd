//! Environments: stacks of layers that can run the image or the agent, each
//! behind one small interface.
//!
//! [`all`] gives them, [`boot`] takes one through a planned boot. In between
//! stand the two traits that every environment keeps, [`Environment`] and
//! [`Guest`]; from here on up it does not matter any more whether a figure comes
//! from a process, a virtual machine or a simulated one. VMMs, ours like any
//! other, are processes of their own, so that none can disturb the one who
//! measures; what guests say is untrusted and goes through [`transcript`].

mod bochs;
mod boot;
mod bzimage;
pub mod cache;
mod custom;
pub mod cyclictest;
pub mod disk;
mod environment;
mod error;
mod facts;
mod guest;
pub mod kernel_build;
mod kvm;
mod linux_guest;
mod loads;
mod observe;
mod package;
mod parts;
mod placement;
mod plugin;
mod process;
mod qemu;
mod settings;
pub mod sim;
mod stack;
mod steadiness;
mod toolchain;
mod trace;
pub mod transcript;
mod tsc;
mod unrest;
mod wall;
mod window;
mod witness;

pub use bochs::unpacked_kernel;
pub use boot::{boot, Booted};
pub use cache::Cache;
pub use custom::{BadCommand, CustomVmm};
pub use environment::{
    Availability, Environment, Facts, Guest, Progress, Requirements, SampleSink, Watch, Work,
};
pub use error::EnvError;
pub use kvm::ready_for_linux;
pub use linux_guest::{stock_kernel, Root};
pub use observe::{last_stage, Finished, Offset};
pub use parts::{sha256_of_file, GuestImage, Part, Parts};
pub use plugin::Plugin;
pub use settings::{Settings, Start};
pub use trace::Trace;
pub use tsc::Rate;

/// Every environment, in the order in which tables show them.
pub fn all(settings: &Settings) -> Vec<Box<dyn Environment>> {
    let makers = [
        wall::host,
        wall::kvm,
        wall::qemu_kvm,
        wall::qemu_tcg,
        wall::custom,
        linux_guest::kvm,
        linux_guest::qemu_kvm,
        linux_guest::qemu_tcg,
        linux_guest::uml,
        sim::bare,
        sim::linux,
        sim::kvm,
        sim::qemu_kvm,
        sim::kvm_linux,
        sim::qemu_kvm_linux,
        sim::xen_pvh,
        sim::xen_hvm,
        sim::xen_dom0,
        sim::custom,
        bochs::bare,
        bochs::linux,
        bochs::kvm,
        bochs::qemu_kvm,
        bochs::xen_pvh,
    ];
    let made = makers.into_iter().map(|make| make(settings.clone()));
    made.map(|stack| Box::new(stack) as Box<dyn Environment>)
        .collect()
}
