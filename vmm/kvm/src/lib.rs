//! The KVM backend; no other crate uses /dev/kvm.
//!
//! Set-up uses `kvm-ioctls`. The exit path does not: `run` of [`KvmVcpu`] is one system call and a look at
//! the shared `kvm_run` page, inlined into the caller's loop. Rare exits (string accesses, signals,
//! shutdown) leave that path at once.

mod cpuid;
mod kick;
mod memory;
mod memory_types;
mod probe;
mod registers;
mod stats;
mod tsc;
mod user_apic;
mod vcpu;
mod vm;

pub use probe::{ring0, Kvm, DEVICE};
pub use user_apic::{KvmUserApic, KvmUserApicVm};
pub use vcpu::user_apic::UserApicVcpu;
pub use vcpu::KvmVcpu;
pub use vm::KvmVm;
