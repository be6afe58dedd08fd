//! A distribution's Linux in our VMM on the simulated machine: what it boots, and the words
//! that the VMM is started with.

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
    /// The simulated machine's own kernel, and our init with these drivers.
    ///
    /// # Panics
    /// If there is no such kernel, or the agent was not built.
    pub fn with(settings: &Settings, drivers: &[Module]) -> Self {
        let kernel = kernel::chosen(settings, Maker::Amd).expect("it was there just now");
        let kernel = std::fs::read(kernel.image).expect("it can be read");
        let root = Root::new(settings).expect("the agent is built");
        let root = root.on(drivers::archive(drivers)).bytes();
        Self {
            files: [kernel, root.expect("it is composed")],
        }
    }

    /// Its files, for the machine.
    pub fn files(&self) -> [(&str, &[u8]); 2] {
        [(FILES[0], &self.files[0]), (FILES[1], &self.files[1])]
    }
}

/// The VMM's arguments for a guest whose kernel is told so, with these options more. The
/// guest leaves the processor's random numbers alone, so that its boots are alike.
pub fn arguments(told: &str, options: &[&str]) -> Vec<OsString> {
    let words = format!(
        "console=ttyS0 loglevel=4 nokaslr norandmaps cryptomgr.notests panic=-1 \
         clearcpuid=rdrand,rdseed {told}"
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
