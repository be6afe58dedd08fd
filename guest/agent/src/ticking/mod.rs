//! Workload `irq` without a hypervisor: what a timer's interrupt costs a program of
//! Linux, in two ways.
//!
//! [`own`] is a thread with a timer, as cyclictest (rt-tests) has it. [`host`] has
//! the structure of a virtual machine without being one: a process that makes
//! blocking calls and keeps time for another, which it interrupts by a signal, as a
//! VMM does with its guest. [`signal`] is how interrupts arrive where the thread
//! does not simply sleep until its timer is due.

pub mod host;
pub mod own;
mod signal;
