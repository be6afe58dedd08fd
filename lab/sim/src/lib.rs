//! Simulated machines: QEMU counting instructions, and Bochs.
//!
//! One executed instruction is one tick of the machine's clock, so that two runs are identical. The
//! machine boots a Linux, or Xen, with the agent as init, or an image on the bare machine. What runs on
//! it is up to the caller, see [`listener::ProgramObserver`].

pub mod base;
pub mod bochs;
pub mod capabilities;
pub mod closure;
pub mod drivers;
pub mod elf32;
pub mod image_format;
pub mod initramfs;
pub mod kernel;
pub mod lengths;
pub mod listener;
pub mod machine;
pub mod module;
pub mod nested;
pub mod platform;
pub mod plugin;
pub mod programs;
pub mod qemu;
pub mod ready;
pub mod root;
pub mod script;
pub mod settings;
pub mod trace;
pub mod vmm_files;
pub mod xen;

mod qmp;
mod snapshot;

/// Path of the agent on the machine, its init.
pub const AGENT: &str = "/init";
/// Path of the program that reads symbol addresses.
pub const SYMBOLS: &str = "/trapline/symbols";
/// Path of `trapline-vmm`.
pub const VMM: &str = "/trapline/vmm";

/// Path of the virtual switch on a machine.
pub const SWITCH: &str = "/trapline/switch";
/// Path of the image.
pub const IMAGE: &str = "/trapline/image";
