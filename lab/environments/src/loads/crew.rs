//! Which programs carry a load out on this host.

use crate::kvm;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use trapline_host::facts::available_mib;
use trapline_host::process::Command;
use trapline_host::{Error, Part, Parts};
use trapline_model::{Created, Load, Loads, MemoryPages, Population};

/// The job of a guest that exits without end: each byte of a console that is a port is
/// an exit to the VMM.
pub const EXITING: &str = "trapline.run=none trapline.console=port trapline.fault=flood";

/// Where those programs are.
#[derive(Clone, Debug)]
pub struct Crew {
    /// Trapline's own.
    pub parts: Parts,
    /// What virtual machines run.
    pub image: PathBuf,
}

/// A process of a load.
#[derive(Clone, Debug)]
pub struct Task {
    /// The load's name.
    pub name: &'static str,
    /// What it does.
    pub command: Command,
    /// What it counts.
    pub unit: &'static str,
    /// How it tells.
    pub telling: Telling,
}

/// How a process of a load tells how much it has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    /// As a number in the file that is its standard output.
    Count,
    /// As our VMM tells about its guest, at its end.
    Events,
    /// By how much it has written to its standard output.
    Output,
}

/// Memory that is larger than the caches of processors that do not tell.
const LEAST_BLOCK_MIB: u64 = 64;

/// Memory of a machine that is created again and again.
const CREATED_MIB: u32 = 2048;

/// Of that what its VMM takes.
const VMM_MIB: u64 = 64;

impl Crew {
    /// What has to run for `loads`, for longer than `patience`.
    ///
    /// # Errors
    /// Something that it takes is not here.
    pub fn tasks(&self, loads: &Loads, patience: Duration) -> Result<Vec<Task>, Error> {
        // One guest may be heard for so long, and it is not heard from the beginning.
        let seconds = patience.as_secs().saturating_mul(2).clamp(60, 1 << 30);
        let mut tasks = Vec::new();
        for load in loads.programs() {
            match load {
                Load::Cpu(burners) => {
                    let task = self.burner(load, "turns", "cpu", seconds)?;
                    tasks.extend(std::iter::repeat_n(task, burners.into()));
                }
                Load::Memory => {
                    let block = format!("memory:{}", block_mib());
                    tasks.push(self.burner(load, "bytes", &block, seconds)?);
                }
                Load::Exits => tasks.push(self.exits(load, seconds)?),
                Load::CreateVm(created) => tasks.push(self.create_vm(load, created, seconds)?),
                Load::ConsoleDirect | Load::ConsoleBuffered => {}
            }
        }
        Ok(tasks)
    }

    fn burner(
        &self,
        load: Load,
        unit: &'static str,
        what: &str,
        seconds: u64,
    ) -> Result<Task, Error> {
        let command = Command::new(self.parts.get(Part::Agent)?);
        Ok(Task {
            name: load.name(),
            command: command
                .arg(format!("trapline.burn={what}"))
                .arg(format!("trapline.seconds={seconds}")),
            unit,
            telling: Telling::Count,
        })
    }

    fn exits(&self, load: Load, seconds: u64) -> Result<Task, Error> {
        let bound = format!("--events 3 --seconds {seconds} --cmdline");
        Ok(Task {
            name: load.name(),
            command: self.vmm()?.words(&bound).arg(EXITING),
            unit: "exits",
            telling: Telling::Events,
        })
    }

    fn create_vm(&self, load: Load, created: Created, seconds: u64) -> Result<Task, Error> {
        let mib = created.mib.unwrap_or(CREATED_MIB);
        check_memory(mib)?;
        let vmm = self.vmm()?;
        let burner = self.burner(load, "machines", "run", seconds)?;
        let mut command = burner.command.arg(vmm.program);
        command.arguments.extend(vmm.arguments);
        Ok(Task {
            command: populated(command, mib, created),
            ..burner
        })
    }

    fn vmm(&self) -> Result<Command, Error> {
        kvm::check()?;
        let vmm = Command::new(self.parts.get(Part::Vmm)?);
        self.parts.image()?;
        Ok(vmm.arg("--image").arg(&self.image))
    }
}

/// The arguments of our VMM for a machine of so much memory that is populated, and ends.
pub fn populated(vmm: Command, mib: u32, created: Created) -> Command {
    let vmm = vmm.words(&format!("--memory {mib}M"));
    let vmm = match created.pages {
        MemoryPages::File => vmm,
        pages => vmm.words(&format!("--pages {}", pages.name())),
    };
    let (vmm, job) = match created.population {
        Population::Demand => (vmm, populating(mib)),
        population => {
            let how = format!("--prefault {}", population.name());
            (vmm.words(&how), NOTHING.to_owned())
        }
    };
    vmm.arg("--cmdline").arg(job)
}

/// The job of a guest that only ends.
const NOTHING: &str = "trapline.run=none trapline.console=port";

/// What the image needs of its memory for itself, in MiB.
const IMAGE_MIB: u32 = 24;

/// The job of a guest that touches nearly all of so much memory, and ends.
pub fn populating(mib: u32) -> String {
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
        Some(available) if available < needed => Err(Error::unavailable(format!(
            "load create-vm takes {needed} MiB of memory, {available} MiB are available: end \
             something large, or name a smaller machine, as create-vm:512"
        ))),
        _ => Ok(()),
    }
}

/// Twice the largest cache that the kernel tells of.
fn block_mib() -> u64 {
    let caches = (0..8).filter_map(|index| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let size = fs::read_to_string(path).ok()?;
        size.trim().strip_suffix('K')?.parse::<u64>().ok()
    });
    let largest = caches.max().unwrap_or(0);
    (2 * largest / 1024).max(LEAST_BLOCK_MIB)
}
