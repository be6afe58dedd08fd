//! The kinds of simulated machines with Linux, a row each.

use crate::listener::Emulator;
use trapline_host::Part;
use trapline_model::layers::Machine;

/// Vendor of the processor of a simulated machine. Each has its own kernels in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// AMD: emulated by QEMU's TCG.
    Amd,
    /// Intel: emulated by Bochs.
    Intel,
    /// Arm: emulated by QEMU's TCG.
    Arm,
}

/// A simulated machine, and what Linux on it needs.
pub struct Platform {
    /// Program of QEMU; empty on Bochs.
    pub program: &'static str,
    /// Command that installs it.
    pub remedy: &'static str,
    /// Machine options of QEMU; empty on Bochs.
    pub machine: &'static str,
    /// CPU options, if not those of [`COUNTING`](crate::qemu::COUNTING).
    pub processor: &'static str,
    /// Command line of Linux: no randomness, no self-tests of ciphers (two thirds of the instructions of a boot), and
    /// warnings on the serial port. Mitigations stay as the distribution has them.
    pub words: &'static str,
    /// Ports, or else a serial port, through which init sends its records.
    pub has_ports: bool,
    /// Clock source of Linux, see [`crate::root`].
    pub clock_source: &'static str,
    /// Exit statuses.
    pub emulator: Emulator,
    /// The agent, and the program that reads symbols.
    pub parts: [Part; 2],
}

/// QEMU with AMD's virtualization. Without PCI, Linux boots fast; ACPI provides the local APIC, which all later timers need.
/// pvpanic pauses the machine. A triple fault ends it on a panic (other reboot methods take minutes here).
pub static AMD: Platform = Platform {
    program: "qemu-system-x86_64",
    remedy: "sudo apt-get install --no-install-recommends qemu-system-x86",
    machine: "-M microvm,acpi=on,rtc=on -bios qboot.rom -device pvpanic",
    processor: "",
    words: "console=ttyS0 loglevel=4 nokaslr norandmaps cryptomgr.notests panic=-1 reboot=t",
    has_ports: true,
    clock_source: "tsc",
    emulator: Emulator::QEMU,
    parts: [Part::Agent, Part::Symbols],
};

/// Bochs with Intel's virtualization. Its Linux trusts a TSC of 1 GHz instead of calibrating it, does without `rdrand` (which
/// Bochs seeds with its start time), is idle by `hlt` (Bochs single-steps `mwait`), and draws no offset of the stack from the
/// TSC at each system call: KVM gives a VMX processor its stack pointer only if it has changed, so that a figure would depend on
/// when it is measured.
pub static INTEL: Platform = Platform {
    program: "",
    remedy: "",
    machine: "",
    words: "console=ttyS0,115200 loglevel=4 nokaslr norandmaps cryptomgr.notests panic=-1 tsc_early_khz=1000000 \
            tsc=reliable clearcpuid=rdrand,rdseed idle=halt randomize_kstack_offset=off",
    ..AMD
};

/// QEMU with a processor of Arm, whose counter is the instruction clock. The kernel's console is a second serial port, on PCI;
/// the first one is for records, and the kernel lets a program use its registers. Offsets of stacks would be random numbers
/// that the kernel computes.
pub static ARM: Platform = Platform {
    program: "qemu-system-aarch64",
    remedy: "sudo apt-get install --no-install-recommends qemu-system-arm",
    machine: "-M virt,virtualization=on,gic-version=3,dtb-randomness=off -device pvpanic-pci",
    processor: "-cpu cortex-a57,cntfrq=1000000000",
    words: "console=ttyS0 loglevel=4 nokaslr norandmaps cryptomgr.notests panic=-1 iomem=relaxed \
            randomize_kstack_offset=off",
    has_ports: false,
    clock_source: "arch_sys_counter",
    emulator: Emulator::QEMU_OF_ARM,
    parts: [Part::ArmAgent, Part::ArmSymbols],
};

impl Maker {
    /// Returns that of a machine; AMD for this host, whose guests have the same kernels.
    pub const fn of(machine: Machine) -> Self {
        match machine {
            Machine::Host | Machine::Sim => Self::Amd,
            Machine::SimVmx => Self::Intel,
            Machine::SimArm64 => Self::Arm,
        }
    }

    /// Returns the simulated machine with its processors.
    pub fn platform(self) -> &'static Platform {
        match self {
            Self::Amd => &AMD,
            Self::Intel => &INTEL,
            Self::Arm => &ARM,
        }
    }
}
