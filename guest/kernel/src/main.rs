//! The unikernel: one ELF image for every environment.
//!
//! It is read best in the order in which it runs. [`start`] holds the two ways
//! in and the tables that the linker laid out, so that a direct start has
//! nothing to build. [`boot`] reads what the machine was told about itself and
//! about the job. [`memory`] takes the RAM: frames, small pages, blocks.
//! [`console`] speaks, [`panic`] has the last word, [`interrupts`] counts and
//! sleeps, [`threads`] switches, [`hypercall`] calls
//! out, [`populate`] asks for memory, [`xen`] is one hypervisor spoken to in its
//! own way. [`system`] puts these
//! together as the `System` that the workloads run on. [`fault`] misbehaves, when
//! asked to.
//!
//! This crate is compiled twice. In a workspace build it is a stub, whose tests
//! check the parts that need no machine; `build.sh` builds the image, with
//! `--cfg trapline_image` (see build.rs and image.ld).
#![cfg_attr(trapline_image, no_std, no_main)]

#[cfg(any(test, trapline_image))]
mod boot;
#[cfg(trapline_image)]
mod console;
#[cfg(trapline_image)]
mod cpu;
#[cfg(trapline_image)]
mod fault;
#[cfg(trapline_image)]
mod hypercall;
#[cfg(trapline_image)]
mod interrupts;
#[cfg(any(test, trapline_image))]
mod memory;
#[cfg(trapline_image)]
mod panic;
#[cfg(trapline_image)]
mod populate;
#[cfg(trapline_image)]
mod primitives;
#[cfg(trapline_image)]
mod start;
#[cfg(trapline_image)]
mod system;
#[cfg(trapline_image)]
mod threads;
#[cfg(trapline_image)]
mod ticks;
#[cfg(trapline_image)]
mod xen;

#[cfg(not(trapline_image))]
fn main() {
    println!("This is a stub: guest/kernel/build.sh builds the Trapline image, which runs without an operating system.");
}
