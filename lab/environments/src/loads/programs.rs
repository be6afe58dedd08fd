//! Programs of the loads on this host.

use crate::kvm;
use crate::vmm_command::with_pages;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use trapline_host::facts::available_mib;
use trapline_host::process::Command;
use trapline_host::{Error, Part, Parts};
use trapline_model::{Created, Load, Loads, Population, COMPETITOR};

/// Job of a guest that exits without end: each byte written to a console port is an exit to the VMM.
pub const EXITING_JOB: &str = "trapline.run=none trapline.console=port trapline.fault=flood";

/// Job of a guest that only ends.
const EMPTY_JOB: &str = "trapline.run=none trapline.console=port";

/// Smallest memory block, in MiB: larger than the caches of a CPU whose cache sizes are unknown.
const MIN_BLOCK_MIB: u64 = 64;

/// Default memory of a created virtual machine, in MiB.
const CREATED_MIB: u32 = 2048;

/// Memory of the image itself and of its VMM, in MiB.
const IMAGE_MIB: u32 = 24;
const VMM_MIB: u64 = 64;

/// Locations of load programs.
#[derive(Clone, Debug)]
pub struct LoadPrograms {
    /// Parts of Trapline.
    pub parts: Parts,
    /// Image for virtual machines.
    pub image: PathBuf,
}

/// A load process.
#[derive(Clone, Debug)]
pub struct LoadCommand {
    /// Name of the load.
    pub name: &'static str,
    /// Its command.
    pub command: Command,
    /// Unit of its work.
    pub unit: &'static str,
    /// Source of its count.
    pub counter: WorkCounter,
}

/// Source of the count of a load's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkCounter {
    /// A number in the file that is its standard output.
    Number,
    /// The events of `trapline-vmm`, written when it exits.
    Events,
    /// The size of its standard output.
    Output,
}

impl LoadPrograms {
    /// Returns the processes of `loads`, which run for longer than `timeout`.
    ///
    /// # Errors
    /// A part, memory or `/dev/kvm` is missing.
    pub fn commands(&self, loads: &Loads, timeout: Duration) -> Result<Vec<LoadCommand>, Error> {
        let seconds = seconds(timeout);
        let mut commands = Vec::new();
        for load in loads.programs() {
            match load {
                Load::Cpu(processes) => {
                    let command = self.in_agent(load, "turns", "cpu", seconds)?;
                    commands.extend(std::iter::repeat_n(command, processes.into()));
                }
                Load::Memory => {
                    let block = format!("memory:{}", block_mib());
                    commands.push(self.in_agent(load, "bytes", &block, seconds)?);
                }
                Load::Exits => commands.push(self.exits(load, seconds)?),
                Load::CreateVm(created) => commands.push(self.create_vm(load, created, seconds)?),
                Load::ConsoleDirect | Load::ConsoleBuffered => {}
            }
        }
        Ok(commands)
    }

    /// Returns the program that competes with the guest, and runs for longer than `timeout`.
    ///
    /// # Errors
    /// The agent is missing.
    pub fn competitor(&self, timeout: Duration) -> Result<LoadCommand, Error> {
        let command = self.in_agent(Load::Cpu(1), "turns", "cpu", seconds(timeout))?;
        Ok(LoadCommand {
            name: COMPETITOR,
            ..command
        })
    }

    /// Returns a load that the agent runs.
    fn in_agent(
        &self,
        load: Load,
        unit: &'static str,
        kind: &str,
        seconds: u64,
    ) -> Result<LoadCommand, Error> {
        let command = Command::new(self.parts.get(Part::Agent)?);
        Ok(LoadCommand {
            name: load.name(),
            command: command
                .arg(format!("trapline.burn={kind}"))
                .arg(format!("trapline.seconds={seconds}")),
            unit,
            counter: WorkCounter::Number,
        })
    }

    fn exits(&self, load: Load, seconds: u64) -> Result<LoadCommand, Error> {
        let options = format!("--events 3 --seconds {seconds} --cmdline");
        Ok(LoadCommand {
            name: load.name(),
            command: self.vmm()?.words(&options).arg(EXITING_JOB),
            unit: "exits",
            counter: WorkCounter::Events,
        })
    }

    fn create_vm(&self, load: Load, created: Created, seconds: u64) -> Result<LoadCommand, Error> {
        let mib = created.mib.unwrap_or(CREATED_MIB);
        check_memory(mib)?;
        let vmm = self.vmm()?;
        let agent = self.in_agent(load, "machines", "run", seconds)?;
        let mut command = agent.command.arg(vmm.program);
        command.arguments.extend(vmm.arguments);
        Ok(LoadCommand {
            command: create_vm_command(command, mib, created),
            ..agent
        })
    }

    fn vmm(&self) -> Result<Command, Error> {
        kvm::check()?;
        let vmm = Command::new(self.parts.get(Part::Vmm)?);
        self.parts.image()?;
        Ok(vmm.arg("--image").arg(&self.image))
    }
}

/// Returns the longest time of a load in seconds. The timeout of a guest begins after the start of its loads.
fn seconds(timeout: Duration) -> u64 {
    timeout.as_secs().saturating_mul(2).clamp(60, 1 << 30)
}

/// Adds the arguments of a virtual machine with `mib` MiB that populates its memory and ends.
pub fn create_vm_command(vmm: Command, mib: u32, created: Created) -> Command {
    let vmm = with_pages(vmm.words(&format!("--memory {mib}M")), created.pages);
    let (vmm, job) = match created.population {
        Population::Demand => (vmm, touching_job(mib)),
        population => {
            let option = format!("--prefault {}", population.name());
            (vmm.words(&option), EMPTY_JOB.to_owned())
        }
    };
    vmm.arg("--cmdline").arg(job)
}

/// Returns the job of a guest that touches nearly all of `mib` MiB and ends.
pub fn touching_job(mib: u32) -> String {
    // Three arrays of doubles.
    let doubles = (u64::from(mib.saturating_sub(IMAGE_MIB)) << 20) / 24;
    format!(
        "trapline.run=stream/copy trapline.batches=1 trapline.passes=1 \
         trapline.doubles={doubles} trapline.console=port"
    )
}

fn check_memory(mib: u32) -> Result<(), Error> {
    let needed = u64::from(mib) + VMM_MIB;
    match available_mib() {
        Some(available) if available < needed => Err(Error::missing(
            format!("load create-vm needs {needed} MiB of memory, {available} MiB are available"),
            "end a large program, or set a smaller machine, as create-vm:512",
        )),
        _ => Ok(()),
    }
}

/// Returns twice the size of the largest cache, in MiB.
fn block_mib() -> u64 {
    let caches = (0..8).filter_map(|index| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let size = fs::read_to_string(path).ok()?;
        size.trim().strip_suffix('K')?.parse::<u64>().ok()
    });
    let largest = caches.max().unwrap_or(0);
    (2 * largest / 1024).max(MIN_BLOCK_MIB)
}
