//! Load programs that run while interrupts are measured.
//!
//! A load is only described here: a host and a simulated machine run it differently. Console loads are
//! output of the measured guest itself; all others are processes beside it.

use crate::guest_config::{MemoryPages, Population, Serial};
use std::fmt;
use std::str::FromStr;

/// Largest number of processes of load `cpu`.
pub const MOST_PROCESSES: u8 = 64;

/// Range of the memory of load `create-vm`, in MiB: at least the image's own need, at most the reach of the
/// VMM's page table.
const MEMORY_MIB: std::ops::RangeInclusive<u32> = 32..=65_536;

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Load {
    /// This number of processes that execute without end.
    Cpu(u8),
    /// A process that reads and writes a block larger than any cache.
    Memory,
    /// A virtual machine whose guest exits as fast as it can.
    Exits,
    /// A virtual machine that is created, populated and ended repeatedly.
    CreateVm(Created),
    /// The guest writes to its serial port as fast as it can, and the vCPU thread writes each byte.
    ConsoleDirect,
    /// The same, but a separate thread writes, at the pace of a line.
    ConsoleBuffered,
}

/// The virtual machine of load `create-vm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Created {
    /// Memory in MiB, if not the environment's default.
    pub mib: Option<u32>,
    /// Host pages of the memory.
    pub pages: MemoryPages,
    /// Population of the memory.
    pub population: Population,
}

/// Invalid text of loads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLoad {
    /// There is no such load.
    #[error("there is no load '{0}': name none, cpu, cpu:N, memory, exits, create-vm[:MIB][:4k|2m][:demand|steps|whole], console-direct or console-buffered")]
    Unknown(String),
    /// A number is out of range.
    #[error("'{0}': from 1 to {MOST_PROCESSES} processes, and from {least} to {most} MiB", least = MEMORY_MIB.start(), most = MEMORY_MIB.end())]
    OutOfRange(String),
    /// A load is named twice.
    #[error("'{0}' is named twice, or in two forms")]
    Twice(String),
}

impl Load {
    /// Returns the name without numbers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu(_) => "cpu",
            Self::Memory => "memory",
            Self::Exits => "exits",
            Self::CreateVm(_) => "create-vm",
            Self::ConsoleDirect => "console-direct",
            Self::ConsoleBuffered => "console-buffered",
        }
    }

    /// Returns the serial output of a console load; `None` for processes.
    pub fn serial(self) -> Option<Serial> {
        match self {
            Self::ConsoleDirect => Some(Serial::Direct),
            Self::ConsoleBuffered => Some(Serial::Buffered),
            _ => None,
        }
    }

    /// Returns the group of loads of which at most one is allowed.
    fn group(self) -> &'static str {
        match self.serial() {
            Some(_) => "console",
            None => self.name(),
        }
    }
}

impl FromStr for Load {
    type Err = InvalidLoad;

    fn from_str(text: &str) -> Result<Self, InvalidLoad> {
        let (name, options) = match text.split_once(':') {
            Some((name, options)) => (name, Some(options)),
            None => (text, None),
        };
        let out_of_range = || InvalidLoad::OutOfRange(text.to_owned());
        match (name, options) {
            ("cpu", None) => Ok(Self::Cpu(1)),
            ("cpu", Some(number)) => {
                let processes = number.parse().ok();
                let processes = processes.filter(|count| (1..=MOST_PROCESSES).contains(count));
                processes.map(Self::Cpu).ok_or_else(out_of_range)
            }
            ("memory", None) => Ok(Self::Memory),
            ("exits", None) => Ok(Self::Exits),
            ("create-vm", None) => Ok(Self::CreateVm(Created::default())),
            ("create-vm", Some(words)) => created(words, text).map(Self::CreateVm),
            ("console-direct", None) => Ok(Self::ConsoleDirect),
            ("console-buffered", None) => Ok(Self::ConsoleBuffered),
            _ => Err(InvalidLoad::Unknown(text.to_owned())),
        }
    }
}

/// Parses `[MIB][:4k|2m][:demand|steps|whole]`.
fn created(words: &str, load: &str) -> Result<Created, InvalidLoad> {
    let mut created = Created::default();
    let mut words = words.split(':').peekable();
    let pages = |word: &str| {
        MemoryPages::from_name(word)
            .filter(|it| matches!(it, MemoryPages::Small | MemoryPages::Huge))
    };
    let number = words
        .next_if(|word| word.starts_with(|c: char| c.is_ascii_digit()) && pages(word).is_none());
    if let Some(number) = number {
        let mib = number.parse().ok();
        let mib = mib.filter(|mib| MEMORY_MIB.contains(mib));
        created.mib = Some(mib.ok_or_else(|| InvalidLoad::OutOfRange(load.to_owned()))?);
    }
    if let Some(pages) = words.peek().and_then(|word| pages(word)) {
        created.pages = pages;
        words.next();
    }
    if let Some(population) = words.peek().and_then(|word| Population::from_name(word)) {
        created.population = population;
        words.next();
    }
    match words.next() {
        None => Ok(created),
        Some(_) => Err(InvalidLoad::Unknown(load.to_owned())),
    }
}

/// Formats the options that differ from the default.
impl fmt::Display for Created {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(mib) = self.mib {
            write!(f, ":{mib}")?;
        }
        if self.pages != MemoryPages::default() {
            write!(f, ":{}", self.pages.name())?;
        }
        match self.population {
            Population::Demand => Ok(()),
            population => write!(f, ":{}", population.name()),
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Cpu(processes) if *processes != 1 => write!(f, ":{processes}"),
            Self::CreateVm(created) => created.fmt(f),
            _ => Ok(()),
        }
    }
}

/// A set of loads, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loads(Vec<Load>);

impl Loads {
    /// Returns the loads that are processes beside the guest.
    pub fn programs(&self) -> impl Iterator<Item = Load> + '_ {
        let all = self.0.iter().copied();
        all.filter(|load| load.serial().is_none())
    }

    /// Returns the serial output of the console load, if there is one.
    pub fn console(&self) -> Option<Serial> {
        self.0.iter().find_map(|load| load.serial())
    }

    /// Returns whether there are none.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for Loads {
    type Err = InvalidLoad;

    fn from_str(text: &str) -> Result<Self, InvalidLoad> {
        if text == "none" {
            return Ok(Self::default());
        }
        let loads: Result<Vec<Load>, _> = text.split(',').map(str::parse).collect();
        let mut loads = loads?;
        loads.sort_by_key(|load| (load.group(), *load));
        let is_duplicate = |pair: &&[Load]| pair[0].group() == pair[1].group();
        match loads.windows(2).find(is_duplicate) {
            Some(pair) => Err(InvalidLoad::Twice(pair[1].to_string())),
            None => Ok(Self(loads)),
        }
    }
}

impl fmt::Display for Loads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("none");
        }
        let names: Vec<_> = self.0.iter().map(Load::to_string).collect();
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_parsed_in_any_order_and_formatted_in_one() {
        for (text, formatted) in [
            ("none", "none"),
            ("cpu:1", "cpu"),
            ("memory,cpu:2", "cpu:2,memory"),
            ("exits,create-vm:512", "create-vm:512,exits"),
            ("console-buffered,create-vm", "console-buffered,create-vm"),
            ("create-vm:2048:2m:steps", "create-vm:2048:2m:steps"),
            ("create-vm:4k:demand", "create-vm:4k"),
            ("create-vm:whole", "create-vm:whole"),
        ] {
            let loads: Loads = text.parse().unwrap();
            assert_eq!(loads.to_string(), formatted);
            assert_eq!(formatted.parse(), Ok(loads));
        }
    }

    #[test]
    fn invalid_loads_are_rejected() {
        let error = |text: &str| text.parse::<Loads>().unwrap_err();
        let unknown = |name: &str| InvalidLoad::Unknown(name.to_owned());
        assert_eq!(error("cpu,disk"), unknown("disk"));
        assert_eq!(error("none,cpu"), unknown("none"));
        assert_eq!(error(""), unknown(""));
        assert_eq!(error("exits:3"), unknown("exits:3"));
        for text in [
            "create-vm:x",
            "create-vm:64:1g",
            "create-vm:file",
            "create-vm:whole:4k",
            "create-vm:",
        ] {
            assert_eq!(error(text), unknown(text));
        }
        for text in [
            "cpu:0",
            "cpu:65",
            "cpu:-1",
            "create-vm:1",
            "create-vm:9x:4k",
        ] {
            assert_eq!(error(text), InvalidLoad::OutOfRange(text.to_owned()));
        }
        for text in ["cpu,cpu:2", "console-direct,console-buffered"] {
            assert!(matches!(error(text), InvalidLoad::Twice(_)), "{text}");
        }
    }

    #[test]
    fn only_console_loads_are_output_of_the_guest() {
        let loads: Loads = "cpu,console-direct".parse().unwrap();
        assert_eq!(loads.console(), Some(Serial::Direct));
        assert_eq!(loads.programs().collect::<Vec<_>>(), [Load::Cpu(1)]);
        assert!(Loads::default().console().is_none() && Loads::default().is_none());
    }
}
