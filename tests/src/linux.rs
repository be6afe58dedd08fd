//! A distribution's Linux in trapline-vmm on the simulated machine: its files and the VMM's arguments.

use std::ffi::OsString;
use trapline_environments::sim::drivers::{self, Module};
use trapline_environments::sim::kernel::{self, Maker};
use trapline_environments::{Root, Settings};

/// Paths within the machine.
const FILES: [&str; 2] = ["/kernel", "/initrd"];

/// Kernel and initramfs of a Linux guest.
pub struct Linux {
    files: [Vec<u8>; 2],
}

impl Linux {
    /// Returns the kernel of the simulated machine, and an initramfs with the agent and `drivers`.
    ///
    /// # Panics
    /// The kernel is missing, or the agent was not built.
    pub fn with(settings: &Settings, drivers: &[Module]) -> Self {
        let kernel = kernel::chosen(settings, Maker::Amd).expect("a kernel is available");
        let kernel = std::fs::read(kernel.image).expect("file is readable");
        let root = Root::new(settings).expect("agent is built");
        let root = root.on(drivers::archive(drivers)).bytes();
        Self {
            files: [kernel, root.expect("initramfs is packed")],
        }
    }

    /// Returns its files with their paths in the machine.
    pub fn files(&self) -> [(&str, &[u8]); 2] {
        [(FILES[0], &self.files[0]), (FILES[1], &self.files[1])]
    }
}

/// Returns the VMM's arguments for a guest with kernel `parameters`, followed by `options`. The
/// guest does not use random numbers of the CPU, so its boots are reproducible.
pub fn arguments(parameters: &str, options: &[&str]) -> Vec<OsString> {
    let words = format!(
        "console=ttyS0 loglevel=4 nokaslr norandmaps cryptomgr.notests panic=-1 \
         clearcpuid=rdrand,rdseed {parameters}"
    );
    let always = [
        "--kernel",
        FILES[0],
        "--initrd",
        FILES[1],
        "--memory",
        "256M",
        "--no-pv-eoi",
        "--cmdline",
        &words,
    ];
    always.iter().chain(options).map(OsString::from).collect()
}
