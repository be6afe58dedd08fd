//! The only crate that knows /dev/kvm.
//!
//! Setting up goes through `kvm-ioctls`; coming back from the guest does not: an
//! exit must cost what the kernel charges and next to nothing more, so
//! [`KvmVcpu`]'s `run` is one system call and a look at the page that the kernel
//! shares, all of it inlined into the caller's loop. What is rare - strings,
//! signals, the end - leaves that path at once.

mod cpuid;
mod kick;
mod memory_types;
mod probe;
mod registers;
mod stats;
mod tsc;
mod vcpu;
mod vm;

pub use probe::{ring0, Kvm, DEVICE};
pub use vcpu::KvmVcpu;
pub use vm::KvmVm;
