//! The unikernel: one ELF image for every environment.
//!
//! In the order of execution: [`start`] has the two entry points and the tables, which the linker
//! lays out. [`boot`] reads start info and command line. [`memory`] manages RAM: frames, page
//! tables, blocks. [`console`] sends records, [`panic`] reports panics and ends the machine, [`acpi`] switches it off,
//! [`interrupts`] handles interrupts and halts, [`ticks`] handles periodic timers, [`threads`]
//! switches threads, [`hypercall`] calls the hypervisor, [`populate`] requests memory, [`xen`] is
//! the interface to Xen, [`virtio`] the driver of disks, [`files`] reads an archive on one, [`pci`] finds its devices on PCI,
//! [`smp`] starts further CPUs, [`devices`] are those of applications, [`process`] runs programs at ring 3. [`system`] implements `System` for the
//! workloads. [`fault`] injects faults.
//!
//! This crate is compiled twice. In a workspace build it is a stub, whose tests check the parts that
//! need no machine; `scripts/freestanding.sh` builds the image with `--cfg trapline_image` (see build.rs and
//! image.ld).
#![cfg_attr(trapline_image, no_std, no_main)]

#[cfg(any(test, trapline_image))]
mod acpi;
#[cfg(any(test, trapline_image))]
mod boot;
#[cfg(trapline_image)]
mod console;
#[cfg(trapline_image)]
mod cpu;
#[cfg(trapline_image)]
mod devices;
#[cfg(trapline_image)]
mod fault;
#[cfg(any(test, trapline_image))]
mod files;
#[cfg(trapline_image)]
mod hypercall;
#[cfg(trapline_image)]
mod interrupts;
#[cfg(any(test, trapline_image))]
mod memory;
#[cfg(trapline_image)]
mod panic;
#[cfg(any(test, trapline_image))]
mod pci;
#[cfg(trapline_image)]
mod populate;
#[cfg(trapline_image)]
mod primitives;
#[cfg(any(test, trapline_image))]
mod process;
#[cfg(any(test, trapline_image))]
mod smp;
#[cfg(trapline_image)]
mod start;
#[cfg(trapline_image)]
mod system;
#[cfg(trapline_image)]
mod threads;
#[cfg(trapline_image)]
mod ticks;
#[cfg(any(test, trapline_image))]
mod virtio;
#[cfg(trapline_image)]
mod xen;

#[cfg(not(trapline_image))]
fn main() {
    println!("This is a stub: scripts/freestanding.sh builds the Trapline image, which runs without an operating system.");
}
