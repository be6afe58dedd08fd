//! Bochs as a simulated machine with Intel's virtualization. It emulates one instruction after the
//! other, and its clock is their number.

pub mod acpi;
pub mod machine;
pub mod memory;
pub mod multiboot;
pub mod program;
pub mod unpack;
pub mod watch;

/// Kernel command line of its Linux: as on QEMU's machine, with a trusted TSC of 1 GHz instead of a
/// calibration, without `rdrand` (which Bochs seeds with its start time), idle by `hlt` (Bochs
/// single-steps `mwait`), and without an offset of the stack that each system call draws from the TSC: KVM gives a VMX
/// processor its stack pointer only if it has changed, so that a figure would depend on when it is measured.
pub const KERNEL_WORDS: &str = "console=ttyS0,115200 loglevel=4 nokaslr norandmaps \
                                cryptomgr.notests panic=-1 tsc_early_khz=1000000 \
                                tsc=reliable clearcpuid=rdrand,rdseed idle=halt \
                                randomize_kstack_offset=off";
