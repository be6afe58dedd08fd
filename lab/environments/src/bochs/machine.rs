//! The machine: what Bochs is told to make, with as little in it as it lets one,
//! and its firmware.

use super::acpi;
use super::memory::{Memory, INFO, SEAL, START};
use super::program::{Bochs, MODEL};
use super::watch::{Watcher, GO};
use crate::environment::Facts;
use crate::error::EnvError;
use crate::guest::Statuses;
use crate::process::Command;
use crate::sim::{in_memory, Emulator};
use std::sync::Arc;

/// Where the firmware lies: at the end of the address space.
const ROM: u32 = 0xffff_0000;
const ROM_BYTES: usize = 0x1_0000;

/// Where it lies as well.
const SHADOW: u32 = 0xf_0000;

/// Places in it, see rom.s.
const PLAN: usize = 0x40;
const TABLE: usize = 0x50;
const LIMIT: usize = 0x70;
const PROTECTED: usize = 0x80;
const WORD: usize = 0x180;
const LOST: usize = 0x190;
const CODE: usize = 0x200;

/// What the firmware leaves behind to know a reset by.
const SECOND: u8 = 0x5a;

/// What the processor executes first: a jump to the start of the firmware.
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

/// Bochs ends with 1 whenever a machine ends, for whatever reason: what was heard
/// of it tells more.
pub const STATUSES: Statuses = Statuses {
    done: 1,
    panicked: None,
    reset: None,
};

/// The same of a machine with a Linux.
pub const EMULATOR: Emulator = Emulator {
    name: "Bochs",
    done: STATUSES.done,
    stopped: STATUSES.done,
};

/// A name of a terminal that is always known. Bochs opens one for its display.
const TERMINAL: &str = "TERM=linux";

/// The processor, the clock and the devices. A tick is an instruction and, to the
/// machine's timers, a nanosecond; nothing follows the host's clock.
const WORDS: &str = "\
    clock: sync=none, time0=1704067200, rtc_sync=0\n\
    vga: extension=none, update_freq=1, realtime=0\n\
    pci: enabled=0\n\
    port_e9_hack: enabled=1\n\
    plugin_ctrl: biosdev=0, speaker=0, extfpuirq=0, parallel=0, gameport=0\n\
    display_library: term\n\
    config_interface: textconfig\n\
    panic: action=fatal\n\
    error: action=ignore\n\
    info: action=ignore\n\
    log: /dev/null\n";

fn processor() -> String {
    format!(
        "cpu: model={MODEL}, count=1, ips=1000000000, reset_on_triple_fault=1, ignore_bad_msrs=1\n"
    )
}

/// What is known about every such machine before it is started.
pub fn facts(bochs: &Bochs) -> Facts {
    let words = processor() + WORDS;
    let machine = words.lines().collect::<Vec<_>>().join("; ");
    [("bochs", bochs.version.clone()), ("machine", machine)]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

/// A machine with so much memory.
pub struct Machine<'a> {
    /// Who makes it.
    pub bochs: &'a Bochs,
    /// In MiB.
    pub memory_mib: u32,
    /// Who is told what it executes, if anybody is.
    pub watcher: Option<&'a Watcher>,
}

impl Machine<'_> {
    /// The process that starts the machine with `memory`; it speaks on standard
    /// output, and its serial port on descriptor 3.
    ///
    /// # Errors
    /// There is no memory for its files.
    pub fn command(&self, memory: &Memory) -> Result<Command, EnvError> {
        let mut command = Command::new("/usr/bin/env");
        let mut path = |bytes: &[u8]| -> Result<String, EnvError> {
            let number = command.give(Arc::new(in_memory("bochs", bytes)?));
            Ok(format!("/proc/self/fd/{number}"))
        };
        let rom = path(&firmware(memory))?;
        let display = path(&display_rom())?;
        let ram = path(memory.bytes())?;
        let mib = self.memory_mib;
        let words = format!(
            "{}{WORDS}memory: guest={mib}, host={mib}\n\
             romimage: file={rom}, address={ROM:#x}\n\
             vgaromimage: file={display}\n\
             optramimage1: file={ram}, address={START:#x}\n\
             com1: enabled=1, mode=file, dev=/proc/self/fd/3\n",
            processor(),
        );
        let words = path(words.as_bytes())?;
        let told = self.watcher.map_or(GO, |watcher| &watcher.script);
        let go = path(told.as_bytes())?;
        let command = command.traced_by(self.watcher.map(|watcher| watcher.trace.clone()));
        let command = command.arg(TERMINAL).arg(&self.bochs.program);
        let command = command.words("-q -f").arg(words);
        Ok(match self.bochs.debugger {
            true => command.arg("-rc").arg(go),
            false => command,
        })
    }
}

/// The firmware that enters what is in `memory`.
fn firmware(memory: &Memory) -> Vec<u8> {
    let mut rom = vec![0; ROM_BYTES];
    // SAFETY: rom.s lays out exactly as many bytes there, which nobody writes.
    rom[..CODE].copy_from_slice(unsafe { &FIRMWARE });
    for (at, value) in (PLAN..).step_by(4).zip([memory.entry, INFO, memory.end()]) {
        rom[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    rom[RESET..RESET + JUMP.len()].copy_from_slice(&JUMP);
    let tables = (acpi::TABLES - SHADOW) as usize;
    rom[tables..tables + memory.tables.len()].copy_from_slice(&memory.tables);
    rom
}

/// What Bochs wants for its display: the head of a firmware, which nobody runs. Its
/// bytes add up to nothing.
fn display_rom() -> [u8; 512] {
    let mut rom = [0; 512];
    rom[..4].copy_from_slice(&[0x55, 0xaa, 1, 0xcb]);
    rom[511] = rom.iter().fold(0_u8, |sum, byte| sum.wrapping_sub(*byte));
    rom
}
