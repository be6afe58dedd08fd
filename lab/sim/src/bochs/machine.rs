//! The machine: the configuration of Bochs with as few devices as possible, and its firmware.

use super::acpi;
use super::memory::{Memory, INFO, SEAL, START};
use super::program::{Bochs, Debugger};
use super::watch::{Watcher, BREAKPOINT, GO};
use crate::listener::Emulator;
use std::sync::Arc;
use trapline_host::exit_status::ExitCodes;
use trapline_host::process::Command;
use trapline_host::{memory_file, Error, Facts};

/// Address of the firmware, at the end of the address space.
const ROM: u32 = 0xffff_0000;
const ROM_BYTES: usize = 0x1_0000;

/// Second address of the firmware.
const SHADOW: u32 = 0xf_0000;

/// Offsets in the firmware, see rom.s.
const PLAN: usize = 0x40;
const TABLE: usize = 0x50;
const LIMIT: usize = 0x70;
const PROTECTED: usize = 0x80;
const WORD: usize = 0x180;
const LOST: usize = 0x190;
const CODE: usize = 0x200;

/// Marker by which the firmware detects a reset.
const SECOND: u8 = 0x5a;

/// Reset vector: a jump to the start of the firmware.
const RESET: usize = 0xfff0;
const JUMP: [u8; 3] = [0xe9, 0x0d, 0x00];

core::arch::global_asm!(
    include_str!("rom.s"),
    ROM = const ROM,
    PLAN = const PLAN,
    TABLE = const TABLE,
    LIMIT = const LIMIT,
    PROTECTED = const PROTECTED,
    WORD = const WORD,
    LOST = const LOST,
    CODE = const CODE,
    SECOND = const SECOND,
    START = const START,
    SEAL = const SEAL,
);

extern "C" {
    /// See rom.s.
    #[link_name = "trapline_rom"]
    static FIRMWARE: [u8; CODE];
}

/// Bochs exits with 1 at any end of the machine; its end follows from the records of the guest.
pub const EXIT_CODES: ExitCodes = ExitCodes {
    done: 1,
    panicked: None,
    reset: None,
};

/// Exit statuses of a machine with Linux.
pub const EMULATOR: Emulator = Emulator {
    name: "Bochs",
    done: EXIT_CODES.done,
    stopped: EXIT_CODES.done,
    // Registers that Linux and Xen look for, page faults of guests, and the end of the machine.
    usual: &["Unknown register", "EPT violation", "shutdown requested"],
};

/// A terminal type that always exists. Bochs opens a terminal for its display.
const TERMINAL: &str = "TERM=linux";

/// A machine as one kind of system needs it.
#[derive(Clone, Copy, Debug)]
pub struct Platform {
    /// CPU model, if not that of the Bochs.
    model: Option<&'static str>,
    /// PCI, and with it a power management timer.
    pub(super) has_pci: bool,
    /// Descriptors of the files of its serial ports.
    serial: &'static [u8],
}

impl Platform {
    /// For Linux, Xen and the image alone. The guest reports by the serial port.
    pub const COMMON: Self = Self {
        model: None,
        has_pci: false,
        serial: &[3],
    };

    /// For NOVA. It calibrates the timer of the local APIC by that of power management. The TSC deadline of Bochs, which
    /// it prefers where there is one, does not follow its writes to the TSC and is not zero after its interrupt. The
    /// first serial port has messages, the second reports.
    pub const NOVA: Self = Self {
        model: Some("corei5_arrandale_m520"),
        has_pci: true,
        serial: &[2, 3],
    };

    fn words(self, bochs: &Bochs) -> String {
        let Self { model, serial, .. } = self;
        let model = model.unwrap_or(bochs.model);
        let pci = if self.has_pci {
            "enabled=1, chipset=i440fx"
        } else {
            "enabled=0"
        };
        // Lines of both would be mixed.
        let log = if serial.contains(&2) {
            "/dev/null"
        } else {
            "/proc/self/fd/2"
        };
        let serial = serial.iter().zip(1..);
        let serial: String = serial
            .map(|(file, port)| {
                format!("com{port}: enabled=1, mode=file, dev=/proc/self/fd/{file}\n")
            })
            .collect();
        format!(
            "cpu: model={model}, count=1, ips=1000000000, reset_on_triple_fault=1, \
             ignore_bad_msrs=1\npci: {pci}\n{serial}log: {log}\n{WORDS}"
        )
    }
}

/// Clock and devices. A tick is one instruction and, for the machine's timers, a nanosecond; the host's
/// clock is not used.
const WORDS: &str = "\
    clock: sync=none, time0=1704067200, rtc_sync=0\n\
    vga: extension=none, update_freq=1, realtime=0\n\
    port_e9_hack: enabled=1\n\
    plugin_ctrl: biosdev=0, speaker=0, extfpuirq=0, parallel=0, gameport=0\n\
    display_library: term\n\
    config_interface: textconfig\n\
    panic: action=fatal\n\
    error: action=report\n\
    info: action=ignore\n";

/// Returns facts common to all such machines.
pub fn facts(bochs: &Bochs, platform: Platform) -> Facts {
    let machine = platform.words(bochs).lines().collect::<Vec<_>>().join("; ");
    [("bochs", bochs.version.clone()), ("machine", machine)]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

/// A machine.
pub struct BochsMachine<'a> {
    /// The emulator.
    pub bochs: &'a Bochs,
    /// In MiB.
    pub memory_mib: u32,
    /// Traces executed instructions.
    pub watcher: Option<&'a Watcher>,
    /// Its processor and devices.
    pub platform: Platform,
}

impl BochsMachine<'_> {
    /// Returns the command that starts the machine with `memory`. Its console is standard output.
    ///
    /// # Errors
    /// There is no memory for its files.
    pub fn command(&self, memory: &Memory) -> Result<Command, Error> {
        let mut command = Command::new("/usr/bin/env");
        let mut path = |bytes: &[u8]| -> Result<String, Error> {
            let number = command.pass_file(Arc::new(memory_file("bochs", bytes)?));
            Ok(format!("/proc/self/fd/{number}"))
        };
        let rom = path(&firmware(memory))?;
        let display = path(&display_rom())?;
        let ram = path(memory.bytes())?;
        let mib = self.memory_mib;
        let words = format!(
            "{}memory: guest={mib}, host={mib}\n\
             romimage: file={rom}, address={ROM:#x}\n\
             vgaromimage: file={display}\n\
             optramimage1: file={ram}, address={START:#x}\n{}",
            self.platform.words(self.bochs),
            self.watcher.map_or("", |_| BREAKPOINT),
        );
        let words = path(words.as_bytes())?;
        let script = self.watcher.map_or(GO.to_owned(), |_| Watcher::script());
        let script = path(script.as_bytes())?;
        let command = command.divert(self.watcher.map(|watcher| watcher.trace.diversion()));
        let command = command.as_emulator();
        let command = command.arg(TERMINAL).arg(&self.bochs.program);
        let command = command.words("-q -f").arg(words);
        Ok(match (self.bochs.debugger, self.watcher) {
            (Debugger::Always, _) => command.arg("-rc").arg(script),
            (Debugger::Option, Some(_)) => command.words("-debugger -rc").arg(script),
            (Debugger::Option, None) | (Debugger::Missing, _) => command,
        })
    }
}

/// Returns the firmware that enters `memory`.
fn firmware(memory: &Memory) -> Vec<u8> {
    let mut rom = vec![0; ROM_BYTES];
    // SAFETY: rom.s defines exactly this many bytes, and nothing writes them.
    rom[..CODE].copy_from_slice(unsafe { &FIRMWARE });
    for (at, value) in (PLAN..).step_by(4).zip([memory.entry, INFO, memory.end()]) {
        rom[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    rom[RESET..RESET + JUMP.len()].copy_from_slice(&JUMP);
    let tables = (acpi::TABLES - SHADOW) as usize;
    rom[tables..tables + memory.tables.len()].copy_from_slice(&memory.tables);
    rom
}

/// Returns the header of a video BIOS, which Bochs requires. The sum of its bytes is zero.
fn display_rom() -> [u8; 512] {
    let mut rom = [0; 512];
    rom[..4].copy_from_slice(&[0x55, 0xaa, 1, 0xcb]);
    rom[511] = rom.iter().fold(0_u8, |sum, byte| sum.wrapping_sub(*byte));
    rom
}
