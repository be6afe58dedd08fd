//! What a guest is asked to do, as words of its command line.
//!
//! `trapline.run=basic,exits/port-out trapline.batches=30 …` - the same words
//! for the image (kernel command line) and for the agent (arguments). Words
//! without the prefix belong to somebody else and are passed over; an unknown
//! word with the prefix is an error, because a job half understood would give
//! figures that mean something else.

use crate::block::{self, Disk};
use crate::catalogue::{Op, OpSet, Workload};
use core::fmt;

/// What every word of a job begins with.
pub const PREFIX: &str = "trapline.";

/// What the word begins with that tells the init of a Linux guest how many CPUs its
/// machine has. It is none of a job's: what is measured is the same with any number.
pub const CPUS: &str = "trapline-cpus=";

/// What a line begins with in which the init of a simulated machine tells what a load
/// did: then its number, its name and the rest.
pub const LOAD_PREFIX: &str = "trapline-load-";

/// How long the guest of a VMM that the lab knows nothing about may take to its
/// first record, in seconds of the clock that it is measured by.
pub const FIRST_WORD_SECONDS: u64 = 20;

/// Where a guest's records go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Console {
    /// The first 16550 serial port, [`crate::platform::COM1`].
    Serial,
    /// A port that takes a byte a write and is always ready,
    /// [`crate::platform::DEBUG_CONSOLE`].
    Port,
    /// A port that takes a whole frame a write,
    /// [`crate::platform::FRAME`].
    Frames,
    /// The ring that Xen gives a domain to speak to dom0.
    Xen,
}

impl Console {
    const NAMES: [(&'static str, Console); 4] = [
        ("serial", Console::Serial),
        ("port", Console::Port),
        ("frames", Console::Frames),
        ("xen", Console::Xen),
    ];

    /// The console called `name` on a command line, if there is one.
    pub fn from_name(name: &str) -> Option<Console> {
        named(&Self::NAMES, name)
    }

    fn name(self) -> &'static str {
        name_of(&Self::NAMES, self)
    }
}

fn named<T: Copy>(names: &[(&str, T)], name: &str) -> Option<T> {
    names
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, value)| *value)
}

fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: T) -> &'static str {
    names
        .iter()
        .find(|(_, known)| *known == value)
        .map_or("", |(name, _)| name)
}

/// How a guest shall misbehave, so that those who run guests can be tested with
/// real ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Stop with a message.
    Panic,
    /// Do nothing for ever, as fast as possible.
    Hang,
    /// Wait for an interrupt that never comes.
    Sleep,
    /// Fault while handling a fault while handling a fault.
    Triple,
    /// Write text without end.
    Flood,
    /// Write bytes that look like frames and are none, then do the job.
    Garble,
}

impl Fault {
    const NAMES: [(&'static str, Fault); 6] = [
        ("panic", Fault::Panic),
        ("hang", Fault::Hang),
        ("sleep", Fault::Sleep),
        ("triple", Fault::Triple),
        ("flood", Fault::Flood),
        ("garble", Fault::Garble),
    ];

    fn from_name(name: &str) -> Option<Fault> {
        named(&Self::NAMES, name)
    }

    fn name(self) -> &'static str {
        name_of(&Self::NAMES, self)
    }
}

/// How the image ends its machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// By the port that tells how it went, [`crate::platform::EXIT`].
    #[default]
    Port,
    /// By a reset, as an operating system would: all that a VMM which knows
    /// nothing of Trapline understands.
    Reset,
    /// By asking Xen to shut the domain down.
    Xen,
    /// By asking Xen to end the machine with the domain, as its first may.
    XenMachine,
}

impl End {
    const NAMES: [(&'static str, End); 4] = [
        ("port", End::Port),
        ("reset", End::Reset),
        ("xen", End::Xen),
        ("xen-machine", End::XenMachine),
    ];

    /// The end called `name` on a command line, if there is one.
    pub fn from_name(name: &str) -> Option<End> {
        named(&Self::NAMES, name)
    }

    fn name(self) -> &'static str {
        name_of(&Self::NAMES, self)
    }
}

/// What a guest does while it waits for an interrupt of workload `irq`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// It halts its processor.
    #[default]
    Halt,
    /// It looks again and again.
    Poll,
    /// It writes to its serial port as fast as it can.
    Flood,
}

impl Wait {
    const NAMES: [(&'static str, Wait); 3] = [
        ("halt", Wait::Halt),
        ("poll", Wait::Poll),
        ("flood", Wait::Flood),
    ];

    /// The way to wait called `name` on a command line, if there is one.
    pub fn from_name(name: &str) -> Option<Wait> {
        named(&Self::NAMES, name)
    }

    /// The name on a command line.
    pub fn name(self) -> &'static str {
        name_of(&Self::NAMES, self)
    }
}

/// A job. Defaults are those of the quick preset on hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Set of [`Op::bit`]: what to measure.
    pub run: OpSet,
    /// Batches (samples) per operation.
    pub batches: u32,
    /// Least length of a batch, in ticks.
    pub batch_ticks: u64,
    /// Each operation begins right after a timer interrupt of the kernel below, and the
    /// first one when the VMM's start is over. Set on the instruction clocks, whose figures
    /// have to be reproducible. Not set on the wall clock: it would keep interrupts, which
    /// are part of what a host costs, out of short operations. Sent only where it is set.
    pub aligned: bool,
    /// Pages that `first-touch-4k` writes.
    pub pages: u32,
    /// Blocks of 1 MiB that `malloc-1m` allocates.
    pub blocks: u32,
    /// Doubles in each of the three arrays of `stream`.
    pub doubles: u32,
    /// Passes over each array of `stream`.
    pub passes: u32,
    /// Regions of each operation of `populate` that are larger than
    /// [`crate::populate::LARGE`]; there are as many others as batches. Sent only where
    /// it is asked for.
    pub large_regions: u32,
    /// Expiries of the timer of `irq`.
    pub expiries: u32,
    /// From one of them to the next, in ticks.
    pub period: u64,
    /// What the guest of `irq` does between them. The words of `irq` are sent only where
    /// it is asked for.
    pub between: Wait,
    /// The disk of `block`, if there is one. Its words are sent only where it is asked for.
    pub disk: Option<Disk>,
    /// How much of it is used, in MiB.
    pub disk_mib: u32,
    /// Small requests that are made of it at depth 32, see
    /// [`crate::block::Transfer::requests`].
    pub requests: u32,
    /// Where records go.
    pub console: Console,
    /// The machine offers Trapline's own ports (see [`crate::platform`]).
    pub ports: bool,
    /// The ring the image shall run in: 0, or 3 to leave ring 0 by itself.
    pub ring: u8,
    /// Wait for a byte on the console after `Ready`.
    pub wait: bool,
    /// How the image ends the machine. Sent only where it is not by the port.
    pub end: End,
    /// Build a kernel with so many jobs instead of measuring anything; 0 for no build. Sent
    /// only where it is asked for, to the agent.
    pub build: u32,
    /// Misbehave before doing the job. Sent only where it is asked for.
    pub fault: Option<Fault>,
}

impl Job {
    /// A job that measures nothing.
    pub const EMPTY: Job = Job {
        run: 0,
        batches: 30,
        batch_ticks: 200_000,
        aligned: false,
        pages: 65_536,
        blocks: 256,
        doubles: 14_000_000,
        passes: 5,
        large_regions: 1,
        expiries: 10_000,
        period: 10_000_000,
        between: Wait::Halt,
        disk: None,
        disk_mib: 256,
        requests: 32_768,
        console: Console::Serial,
        ports: false,
        ring: 0,
        wait: false,
        end: End::Port,
        build: 0,
        fault: None,
    };

    /// Whether `op` is to be measured.
    pub fn wants(&self, op: Op) -> bool {
        self.run & op.bit() != 0
    }

    /// Whether the guest is told that it is a domain of Xen.
    pub fn in_xen(&self) -> bool {
        matches!(self.end, End::Xen | End::XenMachine)
    }

    /// Reads a job from a command line or from arguments.
    ///
    /// # Errors
    /// The first word that is not understood.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Job, BadWord<'a>> {
        let mut job = Job::EMPTY;
        for word in words {
            if let Some(setting) = word.strip_prefix(PREFIX) {
                job.set(setting).ok_or(BadWord(word))?;
            }
        }
        Ok(job)
    }

    fn set(&mut self, setting: &str) -> Option<()> {
        let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
        match key {
            "run" => self.run = parse_selection(value)?,
            "batches" => self.batches = value.parse().ok()?,
            "batch-ticks" => self.batch_ticks = value.parse().ok()?,
            "aligned" => self.aligned = flag(value)?,
            "pages" => self.pages = value.parse().ok()?,
            "blocks" => self.blocks = value.parse().ok()?,
            "doubles" => self.doubles = value.parse().ok()?,
            "passes" => self.passes = value.parse().ok()?,
            "large-regions" => self.large_regions = value.parse().ok()?,
            "expiries" => self.expiries = value.parse().ok()?,
            "period" => self.period = value.parse().ok().filter(|period| *period != 0)?,
            "between" => self.between = Wait::from_name(value)?,
            "disk" => self.disk = Some(Disk::from_name(value)?),
            "disk-mib" => self.disk_mib = value.parse().ok().filter(|mib| *mib != 0)?,
            "requests" => self.requests = value.parse().ok()?,
            "console" => self.console = Console::from_name(value)?,
            "ports" => self.ports = flag(value)?,
            "ring" => self.ring = value.parse().ok().filter(|ring| matches!(ring, 0 | 3))?,
            "wait" => self.wait = flag(value)?,
            "end" => self.end = End::from_name(value)?,
            "build" => self.build = value.parse().ok().filter(|jobs| *jobs != 0)?,
            "fault" => self.fault = Some(Fault::from_name(value)?),
            _ => return None,
        }
        Some(())
    }
}

fn flag(value: &str) -> Option<bool> {
    match value {
        "" | "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// Reads `basic,exits/port-out` as a set of [`Op::bit`]; `none` is the empty set.
fn parse_selection(text: &str) -> Option<OpSet> {
    if text == "none" {
        return Some(0);
    }
    text.split(',')
        .try_fold(0, |set, name| Some(set | selected(name)?))
}

/// The operations that a workload's or an operation's name stands for.
pub fn selected(name: &str) -> Option<OpSet> {
    match Workload::from_name(name) {
        Some(workload) => Some(workload.set()),
        None => Op::from_path(name).map(Op::bit),
    }
}

/// The words that [`Job::parse`] reads, separated by spaces.
impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yes_no = |flag| if flag { "yes" } else { "no" };
        f.write_str("trapline.run=")?;
        write_selection(self.run, f)?;
        write!(
            f,
            " trapline.batches={} trapline.batch-ticks={}",
            self.batches, self.batch_ticks
        )?;
        if self.aligned {
            f.write_str(" trapline.aligned")?;
        }
        write!(
            f,
            " trapline.pages={} trapline.blocks={}",
            self.pages, self.blocks
        )?;
        write!(
            f,
            " trapline.doubles={} trapline.passes={}",
            self.doubles, self.passes
        )?;
        if Workload::Irq.operations().any(|op| self.wants(op)) {
            write!(
                f,
                " trapline.expiries={} trapline.period={} trapline.between={}",
                self.expiries,
                self.period,
                self.between.name()
            )?;
        }
        if Workload::Populate.operations().any(|op| self.wants(op)) {
            write!(f, " trapline.large-regions={}", self.large_regions)?;
        }
        if self.run & block::operations() != 0 {
            if let Some(disk) = self.disk {
                write!(f, " trapline.disk={disk}")?;
            }
            let (mib, requests) = (self.disk_mib, self.requests);
            write!(f, " trapline.disk-mib={mib} trapline.requests={requests}")?;
        }
        let console = self.console.name();
        write!(
            f,
            " trapline.console={console} trapline.ports={}",
            yes_no(self.ports)
        )?;
        write!(
            f,
            " trapline.ring={} trapline.wait={}",
            self.ring,
            yes_no(self.wait)
        )?;
        if self.end != End::Port {
            write!(f, " trapline.end={}", self.end.name())?;
        }
        if self.build != 0 {
            write!(f, " trapline.build={}", self.build)?;
        }
        self.fault.map_or(Ok(()), |fault| {
            write!(f, " trapline.fault={}", fault.name())
        })
    }
}

fn write_selection(set: OpSet, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut separator = "";
    for workload in Workload::ALL {
        let all = workload.set();
        if set & all == all {
            write!(f, "{separator}{}", workload.name())?;
            separator = ",";
            continue;
        }
        for op in workload.operations().filter(|op| set & op.bit() != 0) {
            write!(f, "{separator}{}/{}", workload.name(), op.name())?;
            separator = ",";
        }
    }
    if separator.is_empty() {
        f.write_str("none")
    } else {
        Ok(())
    }
}

/// A word of a job that was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadWord<'a>(pub &'a str);

impl fmt::Display for BadWord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is no word of a job that this guest understands",
            self.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn a_job_survives_its_own_words() {
        let job = Job {
            run: selected("basic").unwrap()
                | Op::PortOut.bit()
                | Op::OwnTimer.bit()
                | Op::Touch9.bit()
                | Op::Read4k1.bit(),
            disk: Disk::from_name("vda"),
            disk_mib: 64,
            requests: 77,
            batches: 7,
            aligned: true,
            large_regions: 3,
            expiries: 2048,
            period: 250_000,
            between: Wait::Flood,
            ring: 3,
            console: Console::Frames,
            ports: true,
            end: End::Reset,
            build: 2,
            fault: Some(Fault::Garble),
            ..Job::EMPTY
        };
        let words = job.to_string();
        assert!(
            words.starts_with(
                "trapline.run=basic,exits/port-out,irq/own-timer,populate/touch-9,block/read-4k-1 "
            ),
            "{words}"
        );
        assert_eq!(Job::parse(words.split(' ')), Ok(job));
        assert!(words.contains(" trapline.end=reset "), "{words}");
        for word in [
            "end",
            "period",
            "large-regions",
            "disk",
            "requests",
            "build",
        ] {
            let word = std::format!("trapline.{word}=");
            assert!(!Job::EMPTY.to_string().contains(&word));
        }
        assert!(!job.in_xen());
        for end in ["xen", "xen-machine"] {
            let word = std::format!("trapline.end={end}");
            let told = Job::parse([word.as_str()]).unwrap();
            assert!(told.in_xen(), "{end}");
            assert!(told.to_string().ends_with(&word), "{told}");
        }
        assert_eq!(
            Job::parse(Job::EMPTY.to_string().split(' ')),
            Ok(Job::EMPTY)
        );
    }

    #[test]
    fn words_of_others_are_passed_over_and_unknown_ones_named() {
        assert_eq!(Job::parse(["console=ttyS0", "quiet"]), Ok(Job::EMPTY));
        for word in [
            "trapline.rum=basic",
            "trapline.ring=1",
            "trapline.end=never",
            "trapline.period=0",
            "trapline.between=sleep",
            "trapline.disk=../vda",
            "trapline.disk-mib=0",
            "trapline.run=exits/port-oot",
        ] {
            assert_eq!(Job::parse([word]), Err(BadWord(word)));
        }
    }
}
