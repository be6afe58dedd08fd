//! The process backend: a guest without a hypervisor.
//!
//! The guest is a sandboxed process of its own ([`sandbox`]), whose code runs natively at ring 3. Instructions that
//! cannot run there stop it for the VMM: privileged ones, accesses to memory that does not exist, and system calls,
//! which are hypercalls ([`vcpu`]). Stops are reported by a signal handler in the process ([`signalled`]), or the VMM
//! traces it ([`tracee`]); [`crossing`] selects. Each address space of a guest with several can have a process of its own
//! ([`spaces`]), between which the guest switches ([`handover`]). The process has the mappings that the guest's page tables
//! describe ([`trapline_emulation::paging`], [`mappings`]). Interrupts are delivered by frames on the guest's stack ([`delivery`]).
//!
//! Guests run in 64-bit mode on one vCPU. Those at ring 0 work as far as their privileged instructions are listed
//! in [`trapline_emulation::decode`]; `popf` cannot change their interrupt flag, because it does not trap.

mod child;
mod config;
mod control;
mod copied;
mod crossing;
mod delivery;
mod failure;
mod filter;
mod handler;
mod handover;
mod hypervisor;
mod layout;
mod listener;
mod mappings;
mod memory;
mod pages;
mod registers;
mod rewrite;
mod sandbox;
mod shared;
mod signalled;
mod signals;
mod spaces;
mod tracee;
mod vcpu;
mod vm;

pub use config::{Config, Switch};
pub use crossing::Crossing;
pub use hypervisor::Process;
pub use vcpu::ProcessVcpu;
pub use vm::ProcessVm;
