//! Loads and rules on a simulated machine: its init carries out what the script says.
//! The machine has one processor, so everything shares it.

use super::linux::Contents;
use crate::environment::Work;
use crate::loads::{neighbourly, populated, EXITING};
use trapline_abi::Job;
use trapline_host::process::Command;
use trapline_host::Error;
use trapline_model::{Load, PerCpu, Pin};
use trapline_sim::script::{timeout, Script};
use trapline_sim::{AGENT, IMAGE, VMM};

/// Seconds of the machine's own time that no machine is given.
const FOR_EVER: &str = "trapline.seconds=1000000";

/// A block where there are no caches: one that takes a while.
const BLOCK_MIB: u32 = 16;

/// Memory of a machine that is created again and again: beside the Linux, and the guest
/// that is measured, this is there for sure.
const CREATED_MIB: u32 = 64;
const MOST_CREATED_MIB: u32 = 512;

/// Says what is to be done before anything is launched.
///
/// # Errors
/// It cannot be done on this machine, or with these contents.
pub fn prepare(
    script: &mut Script,
    contents: &dyn Contents,
    work: &Work,
    job: Option<&Job>,
) -> Result<(), Error> {
    let missing = |why: &str| Err(Error::unavailable(why.to_owned()));
    if work.scheduling.pin == Pin::Exclusive {
        return missing(
            "the simulated machine has one CPU, which everything shares: leave --pin exclusive out",
        );
    }
    for load in work.conditions.loads.programs() {
        contents.load(script, load)?;
    }
    if let (PerCpu::Two, Some(job)) = (work.conditions.per_cpu, job) {
        contents.neighbour(script, &endless(job))?;
    }
    script.sched(work.scheduling.sched);
    Ok(())
}

/// The same for a second guest: one timer, for longer than the measured one may take.
fn endless(job: &Job) -> Job {
    let longest = timeout(job).as_nanos() / u128::from(job.period.max(1));
    neighbourly(job, longest.try_into().unwrap_or(u32::MAX))
}

/// Loads that take the agent only, which every machine has.
///
/// # Errors
/// This one takes more.
pub fn burner(script: &mut Script, load: Load) -> Result<(), Error> {
    let (burners, unit, what) = match load {
        Load::Cpu(burners) => (burners, "turns", "cpu".to_owned()),
        Load::Memory => (1, "bytes", format!("memory:{BLOCK_MIB}")),
        other => {
            return Err(Error::unavailable(format!(
                "load {other} takes trapline-vmm, which this machine does not have: leave it \
                 out, or measure sim/kvm"
            )))
        }
    };
    let command = agent(&what);
    for _ in 0..burners {
        script.load(load.name(), unit, "count", &command);
    }
    Ok(())
}

fn agent(what: &str) -> Command {
    let command = Command::new(AGENT).arg(format!("trapline.burn={what}"));
    command.arg(FOR_EVER)
}

/// All loads, where the machine has our VMM and the image.
///
/// # Errors
/// The machine's memory is too small for it.
pub fn in_our_vmm(script: &mut Script, load: Load) -> Result<(), Error> {
    match load {
        Load::Exits => {
            let command = Command::new(VMM).arg("--image").arg(IMAGE);
            let command = command.arg("--cmdline").arg(EXITING);
            script.load(load.name(), "exits", "exits", &command);
        }
        Load::CreateVm(created) => {
            let mib = created.mib.unwrap_or(CREATED_MIB);
            if mib > MOST_CREATED_MIB {
                return Err(Error::unavailable(format!(
                    "the simulated machine has no room for machines of {mib} MiB: name at most \
                     create-vm:{MOST_CREATED_MIB}"
                )));
            }
            let command = agent("run").arg(VMM).arg("--image").arg(IMAGE);
            let command = populated(command, mib, created);
            script.load(load.name(), "machines", "count", &command);
        }
        other => burner(script, other)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Agent;
    use super::*;
    use trapline_model::{Conditions, Scheduling};

    fn told(loads: &str, sched: &str, pin: Pin) -> Result<String, String> {
        let work = Work {
            job: Job::EMPTY,
            boot_job: Job::EMPTY,
            boot_launches: 0,
            conditions: Conditions {
                loads: loads.parse().unwrap(),
                ..Conditions::default()
            },
            scheduling: Scheduling {
                pin,
                sched: sched.parse().unwrap(),
                ..Scheduling::DEFAULT
            },
        };
        let mut script = Script::default();
        let prepared = prepare(&mut script, &Agent, &work, None);
        let told = prepared.map(|()| script.text().to_owned());
        told.map_err(|error| error.to_string())
    }

    #[test]
    fn loads_come_before_the_rules_for_what_is_launched() {
        let burner =
            "load\tcpu\tturns\tcount\t/init\ttrapline.burn=cpu\ttrapline.seconds=1000000\n";
        let expected = format!("{burner}{burner}sched\tfifo\t7\n");
        assert_eq!(told("cpu:2", "fifo:7", Pin::Shared), Ok(expected));
        assert_eq!(
            told("console-direct", "other", Pin::Free),
            Ok(String::new())
        );
    }

    #[test]
    fn what_cannot_be_had_is_a_reason_with_a_remedy() {
        for (loads, pin, reason) in [
            ("none", Pin::Exclusive, "one CPU"),
            ("exits", Pin::Shared, "measure sim/kvm"),
            ("create-vm", Pin::Shared, "measure sim/kvm"),
        ] {
            let error = told(loads, "other", pin).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        let mut script = Script::default();
        let large = in_our_vmm(&mut script, "create-vm:4096".parse().unwrap()).unwrap_err();
        assert!(large.to_string().contains("create-vm:512"), "{large}");
        in_our_vmm(&mut script, Load::Exits).unwrap();
        assert!(script
            .text()
            .starts_with("load\texits\texits\texits\t/trapline/vmm\t"));
    }
}
