//! End-to-end tests of the built programs.
//!
//! One test program: it is linked once, and its tests share stored runs and both CPUs.

mod bisect;
mod block;
mod boot_bochs;
mod boot_dom0;
mod boot_failures;
mod boot_guests;
mod boot_snapshots;
mod cache;
mod command_line;
mod compare;
mod conformance;
mod custom;
mod cycles;
mod defined_vmms;
mod disk;
mod dist;
mod examples;
mod explain;
mod export;
mod failures;
mod gate;
mod guest;
mod image;
mod intel;
mod irq;
mod kernel_build;
mod linux;
mod measured;
mod misbehaviour;
mod missing_features;
mod nested;
mod net;
mod network;
mod nova;
mod plan;
mod populate;
mod process;
mod processes;
mod recipe;
mod replay;
mod report;
mod simultaneous;
mod xen;
