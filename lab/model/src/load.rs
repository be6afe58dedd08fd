//! What disturbs interrupts while they are measured.
//!
//! A load is only described here: who carries it out differs between a host and a
//! simulated machine. Those of the console are the guest's own doing; all others are
//! processes beside it.

use std::fmt;
use std::str::FromStr;

/// Burners of one load, at the most.
pub const MOST_BURNERS: u8 = 64;

/// Memory of a virtual machine that is created again and again, in MiB: what the
/// image needs itself, and what a page table of the VMM's reaches.
const LEAST_MIB: u32 = 32;
const MOST_MIB: u32 = 65_536;

/// One thing that disturbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Load {
    /// So many processes that execute without end.
    Cpu(u8),
    /// A process that reads and writes a block larger than any cache.
    Memory,
    /// Another virtual machine whose guest exits as fast as it can.
    Exits,
    /// Another virtual machine is created, its memory populated and it ended, again and
    /// again.
    CreateVm(Created),
    /// The guest writes to its serial port as fast as it can, and its virtual CPU's
    /// thread writes each byte.
    ConsoleDirect,
    /// The same, and another thread writes, at the pace of a line.
    ConsoleBuffered,
}

/// A virtual machine that is created again and again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Created {
    /// Its memory in MiB, if not what suits the environment.
    pub mib: Option<u32>,
    /// Of which pages that is, if not of an anonymous file's.
    pub pages: Option<Pages>,
    /// Who populates it.
    pub filling: Filling,
}

/// Pages of a machine's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pages {
    /// 4 KiB.
    Small,
    /// 2 MiB.
    Huge,
}

/// Who populates a machine's memory, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Filling {
    /// The guest, by touching it.
    #[default]
    Demand,
    /// The VMM before the guest runs, in bounded steps.
    Steps,
    /// The VMM before the guest runs, in one call of the kernel.
    Whole,
}

/// Who writes what a guest sends over its serial line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Serial {
    /// The virtual CPU's thread, when a line is complete: what the VMM does by itself.
    #[default]
    Lines,
    /// The virtual CPU's thread, each byte.
    Direct,
    /// A thread of its own.
    Buffered,
}

/// What was typed is no load, or they do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLoad {
    /// There is no such load.
    #[error("there is no load '{0}': name none, cpu, cpu:N, memory, exits, create-vm[:MIB][:4k|2m][:demand|steps|whole], console-direct or console-buffered")]
    Unknown(String),
    /// A number is out of range.
    #[error("'{0}': from 1 to {MOST_BURNERS} burners, and from {LEAST_MIB} to {MOST_MIB} MiB")]
    OutOfRange(String),
    /// A load was named twice.
    #[error("'{0}' is named twice, or in two forms")]
    Twice(String),
}

impl Load {
    /// Its name without numbers.
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

    /// What the guest's serial line has to be for it; `None` if processes make it.
    pub fn serial(self) -> Option<Serial> {
        match self {
            Self::ConsoleDirect => Some(Serial::Direct),
            Self::ConsoleBuffered => Some(Serial::Buffered),
            _ => None,
        }
    }

    /// What nobody names twice.
    fn kind(self) -> &'static str {
        match self.serial() {
            Some(_) => "console",
            None => self.name(),
        }
    }
}

impl FromStr for Load {
    type Err = BadLoad;

    fn from_str(text: &str) -> Result<Self, BadLoad> {
        let (name, number) = match text.split_once(':') {
            Some((name, number)) => (name, Some(number)),
            None => (text, None),
        };
        let out_of_range = || BadLoad::OutOfRange(text.to_owned());
        match (name, number) {
            ("cpu", None) => Ok(Self::Cpu(1)),
            ("cpu", Some(number)) => {
                let burners = number.parse().ok();
                let burners = burners.filter(|count| (1..=MOST_BURNERS).contains(count));
                burners.map(Self::Cpu).ok_or_else(out_of_range)
            }
            ("memory", None) => Ok(Self::Memory),
            ("exits", None) => Ok(Self::Exits),
            ("create-vm", None) => Ok(Self::CreateVm(Created::default())),
            ("create-vm", Some(words)) => created(words, text).map(Self::CreateVm),
            ("console-direct", None) => Ok(Self::ConsoleDirect),
            ("console-buffered", None) => Ok(Self::ConsoleBuffered),
            _ => Err(BadLoad::Unknown(text.to_owned())),
        }
    }
}

/// What `MIB`, `4k` or `2m`, and `demand`, `steps` or `whole` describe, each at most once
/// and in this order.
fn created(words: &str, load: &str) -> Result<Created, BadLoad> {
    let mut created = Created::default();
    let mut words = words.split(':').peekable();
    let number = words.next_if(|word| {
        word.starts_with(|c: char| c.is_ascii_digit()) && Pages::from_name(word).is_none()
    });
    if let Some(number) = number {
        let mib = number.parse().ok();
        let mib = mib.filter(|mib| (LEAST_MIB..=MOST_MIB).contains(mib));
        created.mib = Some(mib.ok_or_else(|| BadLoad::OutOfRange(load.to_owned()))?);
    }
    if let Some(pages) = words.peek().and_then(|word| Pages::from_name(word)) {
        created.pages = Some(pages);
        words.next();
    }
    if let Some(filling) = words.peek().and_then(|word| Filling::from_name(word)) {
        created.filling = filling;
        words.next();
    }
    match words.next() {
        None => Ok(created),
        Some(_) => Err(BadLoad::Unknown(load.to_owned())),
    }
}

impl Pages {
    /// Its name, here and on a command line of `trapline-vmm`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "4k",
            Self::Huge => "2m",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Small, Self::Huge]
            .into_iter()
            .find(|pages| pages.name() == name)
    }
}

impl Filling {
    /// Its name; those of the VMM's are also on its command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Demand => "demand",
            Self::Steps => "steps",
            Self::Whole => "whole",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Demand, Self::Steps, Self::Whole]
            .into_iter()
            .find(|filling| filling.name() == name)
    }
}

/// What is not as it is by itself.
impl fmt::Display for Created {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(mib) = self.mib {
            write!(f, ":{mib}")?;
        }
        if let Some(pages) = self.pages {
            write!(f, ":{}", pages.name())?;
        }
        match self.filling {
            Filling::Demand => Ok(()),
            filling => write!(f, ":{}", filling.name()),
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Cpu(burners) if *burners != 1 => write!(f, ":{burners}"),
            Self::CreateVm(created) => created.fmt(f),
            _ => Ok(()),
        }
    }
}

/// All that disturbs, in one order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loads(Vec<Load>);

impl Loads {
    /// What processes beside the guest do.
    pub fn beside(&self) -> impl Iterator<Item = Load> + '_ {
        let all = self.0.iter().copied();
        all.filter(|load| load.serial().is_none())
    }

    /// What the guest's serial line has to be, if the guest floods it.
    pub fn flood(&self) -> Option<Serial> {
        self.0.iter().find_map(|load| load.serial())
    }

    /// Whether there are none.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Load> for Loads {
    fn from_iter<I: IntoIterator<Item = Load>>(loads: I) -> Self {
        let mut loads: Vec<Load> = loads.into_iter().collect();
        loads.sort_by_key(|load| (load.kind(), *load));
        Self(loads)
    }
}

impl FromStr for Loads {
    type Err = BadLoad;

    fn from_str(text: &str) -> Result<Self, BadLoad> {
        if text == "none" {
            return Ok(Self::default());
        }
        let loads: Result<Self, BadLoad> = text.split(',').map(str::parse).collect();
        let loads = loads?;
        let twice = loads
            .0
            .windows(2)
            .find(|pair| pair[0].kind() == pair[1].kind());
        match twice {
            Some(pair) => Err(BadLoad::Twice(pair[1].to_string())),
            None => Ok(loads),
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

impl Serial {
    /// Its name on a command line of `trapline-vmm`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lines => "lines",
            Self::Direct => "direct",
            Self::Buffered => "buffered",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_read_in_any_order_and_told_in_one() {
        for (text, told) in [
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
            assert_eq!(loads.to_string(), told);
            assert_eq!(told.parse(), Ok(loads));
        }
    }

    #[test]
    fn what_is_no_load_is_named() {
        let error = |text: &str| text.parse::<Loads>().unwrap_err();
        let unknown = |name: &str| BadLoad::Unknown(name.to_owned());
        assert_eq!(error("cpu,disk"), unknown("disk"));
        assert_eq!(error("none,cpu"), unknown("none"));
        assert_eq!(error(""), unknown(""));
        assert_eq!(error("exits:3"), unknown("exits:3"));
        for text in [
            "create-vm:x",
            "create-vm:64:1g",
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
            assert_eq!(error(text), BadLoad::OutOfRange(text.to_owned()));
        }
        for text in ["cpu,cpu:2", "console-direct,console-buffered"] {
            assert!(matches!(error(text), BadLoad::Twice(_)), "{text}");
        }
    }

    #[test]
    fn only_the_console_is_the_guests_own_doing() {
        let loads: Loads = "cpu,console-direct".parse().unwrap();
        assert_eq!(loads.flood(), Some(Serial::Direct));
        assert_eq!(loads.beside().collect::<Vec<_>>(), [Load::Cpu(1)]);
        assert!(Loads::default().flood().is_none() && Loads::default().is_none());
    }
}
