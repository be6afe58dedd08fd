//! The VMM as the root task of the NOVA microhypervisor, without any other operating system.
//!
//! NOVA boots it with two modules: this program, and the image with its command line; or with three: this program, a
//! Linux kernel with its command line, and an initramfs. [`root`] receives memory, ports and modules from NOVA, creates the
//! virtual machine through the VM interface ([`hypervisor`], [`vcpu`]) and runs the monitor's run loop in the handler of the
//! vCPU's exits. In place of the image it runs a part of the conformance suite if its command line says so.
//!
//! The crate is compiled twice, as the image is: in a workspace build it is a stub, whose tests check the parts that
//! need no NOVA; with `--cfg trapline_image` it is the root task. Method: the hypercalls and data structures of NOVA,
//! interface version 10 (`include/syscall.hpp`, `hip.hpp`, `utcb.hpp`, `mtd.hpp` of its source).
#![cfg_attr(trapline_image, no_std, no_main)]
// Tests of the stub use a part of each module.
#![cfg_attr(not(trapline_image), allow(dead_code))]

extern crate alloc;

#[cfg(trapline_image)]
mod conformance;
#[cfg(trapline_image)]
mod events;
#[cfg(trapline_image)]
mod heap;
#[cfg(any(test, trapline_image))]
mod hip;
#[cfg(trapline_image)]
mod hypercall;
#[cfg(trapline_image)]
mod hypervisor;
#[cfg(trapline_image)]
mod lines;
#[cfg(trapline_image)]
mod linux;
#[cfg(trapline_image)]
mod machine;
#[cfg(trapline_image)]
mod memory;
#[cfg(trapline_image)]
mod ports;
#[cfg(any(test, trapline_image))]
mod pvclock;
#[cfg(trapline_image)]
mod root;
#[cfg(any(test, trapline_image))]
mod rtc;
#[cfg(trapline_image)]
mod timer;
#[cfg(any(test, trapline_image))]
mod utcb;
#[cfg(trapline_image)]
mod vcpu;

#[cfg(not(trapline_image))]
fn main() {
    println!("This is a stub: scripts/freestanding.sh builds the root task, which runs on NOVA.");
}
