//! Jobs: the measurements that a guest is asked for, as words of its command line.
//!
//! `trapline.run=basic,exits/port-out trapline.batches=30 ...`: the same words for the image
//! (kernel command line) and for the agent (arguments). Words without the prefix are ignored. An
//! unknown word with the prefix is an error, because figures of a misunderstood job would be wrong.

mod disk;
mod wake;
mod words;

pub use disk::Disk;
pub use wake::WakePolicy;
pub use words::{Console, Fault, Isolation, Shutdown, Transport, WaitMode, Zeroing};

use crate::arch::NATIVE;
use crate::instruction_set::InstructionSet;
use crate::operation::{Op, OpSet};
use crate::workload::Workload;
use core::fmt;

/// Maximum size of the large file, in MiB.
pub const MOST_FILE_MIB: u32 = 1024;

/// Prefix of every word of a job.
pub const PREFIX: &str = "trapline.";

/// Prefix of the word that gives the init of a Linux guest the number of CPUs of its machine. It
/// is not part of a job: the measurements are the same with any number.
pub const CPUS: &str = "trapline-cpus=";

/// Prefix of the word that gives the init of a Linux guest the script of its job, in percent
/// encoding (RFC 3986, section 2.1). The guest then sets itself up as a simulated machine does, by
/// the script in its initramfs, and runs this one: it hosts guests of its own.
pub const SCRIPT: &str = "trapline-script=";

/// Prefix of a line with the result of a load, printed by the init of a simulated machine: number,
/// name and the rest follow.
pub const LOAD_PREFIX: &str = "trapline-load-";

/// Time until the first record of a guest in a custom VMM, at most, in seconds of the measuring
/// clock.
pub const FIRST_RECORD_SECONDS: u64 = 20;

/// Largest number of CPUs of the image.
pub const MOST_CPUS: u32 = 64;

/// Measurements and their parameters. Defaults are those of the quick preset on hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Operations to measure.
    pub run: OpSet,
    /// Batches (samples) per operation.
    pub batches: u32,
    /// Time after which an operation ends with fewer batches, in ticks. Sent only if it is limited.
    pub budget_ticks: u64,
    /// Minimum length of a batch, in ticks.
    pub batch_ticks: u64,
    /// Starts each operation right after a timer interrupt of the host kernel, and the first one
    /// after the start of the VMM is complete. Set on the instruction clocks, whose figures have
    /// to be reproducible. Not set on the wall clock, because it would keep interrupts, which are
    /// part of the cost, out of short operations. Sent only if set.
    pub aligned: bool,
    /// Pages that `first-touch-4k` writes.
    pub pages: u32,
    /// Blocks of 1 MiB that `malloc-1m` allocates.
    pub blocks: u32,
    /// Doubles in each of the three arrays of `stream`.
    pub doubles: u32,
    /// Passes over each array of `stream`.
    pub passes: u32,
    /// Regions per operation of `populate` for regions larger than [`crate::populate::LARGE`];
    /// for others it is `batches`. Sent only with `populate`.
    pub large_regions: u32,
    /// Timer expiries per operation of `irq`.
    pub expiries: u32,
    /// Time between two expiries, in ticks.
    pub period: u64,
    /// Activity of the guest between two expiries. The words of `irq` are sent only with `irq`.
    pub wait_mode: WaitMode,
    /// Disk of `block` or `files`. Sent only with these.
    pub disk: Option<Disk>,
    /// Size of the part of the disk that is used, in MiB. Sent only with `block`.
    pub disk_mib: u32,
    /// Number of small requests at depth 32, see [`crate::block::Transfer::requests`].
    pub requests: u32,
    /// Size of the large file of `files`, in MiB. Sent only with `files`.
    pub file_mib: u32,
    /// CPUs of the image's machine. Sent only if there are several.
    pub cpus: u32,
    /// Method by which a CPU of `ipc` or `smp` waits. Sent with `ipc`, and with `smp` if it is not the default.
    pub wake: WakePolicy,
    /// Zeroing of the image's memory. Sent only if it is not the default.
    pub zeroing: Zeroing,
    /// Page tables on which programs run. Sent only if they are not the default.
    pub isolation: Isolation,
    /// The peer of `net` is behind a network card or a vsock device; otherwise the agent starts one. Sent only if set.
    pub card: bool,
    /// The image checks the frames of another guest, see [`crate::packet`], and measures nothing. Sent only if set.
    pub receiver: bool,
    /// Destination of records.
    pub console: Console,
    /// The machine has Trapline's own ports, see [`crate::platform`].
    pub ports: bool,
    /// Privilege ring of the image: 0, or 3 if it has to leave ring 0 by itself.
    pub ring: u8,
    /// Waits for a byte on the console after `Ready`.
    pub wait_for_go: bool,
    /// Method by which the image ends the machine. Sent only if it is not the port.
    pub shutdown: Shutdown,
    /// Transport of the machine's virtio devices. Sent only if it is PCI.
    pub transport: Transport,
    /// Parallel jobs of a kernel build that replaces all measurements; 0 for no build. Sent only
    /// to the agent, and only if not 0.
    pub build: u32,
    /// Number that the guest repeats, so that its records are of this job; 0 for none. Sent only if not 0.
    pub nonce: u64,
    /// Misbehaviour before the job runs. Sent only if set.
    pub fault: Option<Fault>,
}

impl Job {
    /// Job without operations, all parameters at their defaults.
    pub const EMPTY: Job = Job {
        run: OpSet::EMPTY,
        batches: 30,
        budget_ticks: u64::MAX,
        batch_ticks: 200_000,
        aligned: false,
        pages: 65_536,
        blocks: 256,
        doubles: 14_000_000,
        passes: 5,
        large_regions: 1,
        expiries: 10_000,
        period: 10_000_000,
        wait_mode: WaitMode::Halt,
        disk: None,
        disk_mib: 256,
        requests: 32_768,
        file_mib: 64,
        cpus: 1,
        wake: WakePolicy::Halt,
        zeroing: Zeroing::Demand,
        isolation: Isolation::None,
        card: false,
        receiver: false,
        console: Console::Serial,
        ports: false,
        ring: 0,
        wait_for_go: false,
        shutdown: Shutdown::Port,
        transport: Transport::Mmio,
        build: 0,
        nonce: 0,
        fault: None,
    };

    /// Returns true if `op` is to be measured.
    pub fn selects(&self, op: Op) -> bool {
        self.run.contains(op)
    }

    /// Returns true if an operation of `workload` is to be measured.
    fn selects_any(&self, workload: Workload) -> bool {
        self.run.intersects(workload.set())
    }

    /// Returns true if the guest is a Xen domain.
    pub fn is_xen_domain(&self) -> bool {
        matches!(self.shutdown, Shutdown::Xen | Shutdown::XenMachine)
    }

    /// Parses a job from the words of a command line.
    ///
    /// # Errors
    /// Returns the first invalid word.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Job, InvalidWord<'a>> {
        let mut job = Job::EMPTY;
        for word in words {
            if let Some(setting) = word.strip_prefix(PREFIX) {
                job.set(setting).ok_or(InvalidWord(word))?;
            }
        }
        Ok(job)
    }

    fn set(&mut self, setting: &str) -> Option<()> {
        let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
        match key {
            "run" => self.run = parse_selection(value)?,
            "batches" => self.batches = value.parse().ok()?,
            "budget-ticks" => self.budget_ticks = value.parse().ok()?,
            "batch-ticks" => self.batch_ticks = value.parse().ok()?,
            "aligned" => self.aligned = flag(value)?,
            "pages" => self.pages = value.parse().ok()?,
            "blocks" => self.blocks = value.parse().ok()?,
            "doubles" => self.doubles = value.parse().ok()?,
            "passes" => self.passes = value.parse().ok()?,
            "large-regions" => self.large_regions = value.parse().ok()?,
            "expiries" => self.expiries = value.parse().ok()?,
            "period" => self.period = value.parse().ok().filter(|period| *period != 0)?,
            "between" => self.wait_mode = WaitMode::from_name(value)?,
            "disk" => self.disk = Some(Disk::from_name(value)?),
            "disk-mib" => self.disk_mib = value.parse().ok().filter(|mib| *mib != 0)?,
            "file-mib" => {
                self.file_mib = value
                    .parse()
                    .ok()
                    .filter(|mib| (1..=MOST_FILE_MIB).contains(mib))?
            }
            "requests" => self.requests = value.parse().ok()?,
            "cpus" => self.cpus = value.parse().ok().filter(|n| (1..=MOST_CPUS).contains(n))?,
            "wake" => self.wake = WakePolicy::parse(value)?,
            "zeroing" => self.zeroing = Zeroing::from_name(value)?,
            "isolation" => self.isolation = Isolation::from_name(value)?,
            "card" => self.card = flag(value)?,
            "receiver" => self.receiver = flag(value)?,
            "console" => self.console = Console::from_name(value)?,
            "ports" => self.ports = flag(value)?,
            "ring" => self.ring = value.parse().ok().filter(|ring| matches!(ring, 0 | 3))?,
            "wait" => self.wait_for_go = flag(value)?,
            "end" => self.shutdown = Shutdown::from_name(value)?,
            "transport" => self.transport = Transport::from_name(value)?,
            "build" => self.build = value.parse().ok().filter(|jobs| *jobs != 0)?,
            "nonce" => self.nonce = value.parse().ok()?,
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

/// Parses `basic,exits/port-out`; `none` is the empty set. A workload is that of the instruction set of the parsing program,
/// the guest.
fn parse_selection(text: &str) -> Option<OpSet> {
    if text == "none" {
        return Some(OpSet::EMPTY);
    }
    let named = |name| match Workload::from_name(name) {
        Some(workload) => Some(workload.set_on(NATIVE)),
        None => operations_named(name),
    };
    text.split(',').map(named).collect()
}

/// Returns the operations of the workload `name`, or the operation `workload/name`.
pub fn operations_named(name: &str) -> Option<OpSet> {
    match Workload::from_name(name) {
        Some(workload) => Some(workload.set()),
        None => Op::from_path(name).map(OpSet::from),
    }
}

/// Formats the words that [`Job::parse`] reads, separated by spaces.
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
        if self.selects_any(Workload::Irq) {
            write!(
                f,
                " trapline.expiries={} trapline.period={} trapline.between={}",
                self.expiries,
                self.period,
                self.wait_mode.name()
            )?;
        }
        if self.selects_any(Workload::Populate) {
            write!(f, " trapline.large-regions={}", self.large_regions)?;
        }
        let has_disk = self.selects_any(Workload::Block) || self.selects_any(Workload::Files);
        if let (Some(disk), true) = (self.disk, has_disk) {
            write!(f, " trapline.disk={disk}")?;
        }
        if self.selects_any(Workload::Files) {
            write!(f, " trapline.file-mib={}", self.file_mib)?;
        }
        if self.selects_any(Workload::Block) {
            let (mib, requests) = (self.disk_mib, self.requests);
            write!(f, " trapline.disk-mib={mib} trapline.requests={requests}")?;
        }
        if self.card {
            f.write_str(" trapline.card")?;
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
            yes_no(self.wait_for_go)
        )?;
        self.write_end(f)
    }
}

impl Job {
    /// Writes what only some guests have.
    fn write_end(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.budget_ticks != u64::MAX {
            write!(f, " trapline.budget-ticks={}", self.budget_ticks)?;
        }
        if self.cpus != 1 {
            write!(f, " trapline.cpus={}", self.cpus)?;
        }
        let is_default = self.wake == WakePolicy::Halt;
        if self.selects_any(Workload::Ipc) || self.selects_any(Workload::Smp) && !is_default {
            write!(f, " trapline.wake={}", self.wake)?;
        }
        if self.zeroing != Zeroing::Demand {
            write!(f, " trapline.zeroing={}", self.zeroing.name())?;
        }
        if self.isolation != Isolation::None {
            write!(f, " trapline.isolation={}", self.isolation.name())?;
        }
        if self.receiver {
            f.write_str(" trapline.receiver")?;
        }
        if self.shutdown != Shutdown::Port {
            write!(f, " trapline.end={}", self.shutdown.name())?;
        }
        if self.transport != Transport::Mmio {
            write!(f, " trapline.transport={}", self.transport.name())?;
        }
        if self.build != 0 {
            write!(f, " trapline.build={}", self.build)?;
        }
        if self.nonce != 0 {
            write!(f, " trapline.nonce={}", self.nonce)?;
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
        let is_whole = |on: &InstructionSet| set & all == workload.set_on(*on);
        if set.intersects(all) && InstructionSet::ALL.iter().any(is_whole) {
            write!(f, "{separator}{}", workload.name())?;
            separator = ",";
            continue;
        }
        for op in (set & all).iter() {
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

/// Word of a job with an unknown name or an invalid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidWord<'a>(pub &'a str);

impl fmt::Display for InvalidWord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid word of a job: '{}'", self.0)
    }
}

#[cfg(test)]
mod tests;
