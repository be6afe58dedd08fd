//! Loads and scheduling on a simulated machine, as commands of its script. The machine has one CPU, which
//! all programs share.

use super::contents::{Contents, LoadSupport, HUGE_PAGES};
use crate::environment::Work;
use crate::loads::{co_tenant_job, create_vm_command, CO_TENANT, EXITING_JOB};
use trapline_abi::Job;
use trapline_host::process::Command;
use trapline_host::Error;
use trapline_model::guest_config::HugePages;
use trapline_model::{Created, Load, MemoryPages, PerCpu, Pin};
use trapline_sim::script::{timeout, Script};
use trapline_sim::{AGENT, IMAGE, VMM};

/// Duration of a load in seconds of the machine's clock: longer than any machine runs.
const DURATION: &str = "trapline.seconds=1000000";

/// Size of a memory block, in MiB. The machine has no caches; a copy of this size takes a while.
const BLOCK_MIB: u32 = 16;

/// Default and largest memory of a created virtual machine, in MiB. It fits beside Linux and the measured
/// guest.
const CREATED_MIB: u32 = 64;
const MAX_CREATED_MIB: u32 = 512;

/// Adds the commands for the conditions of `work` before guests are launched.
///
/// # Errors
/// The machine or its contents do not support them.
pub fn prepare(
    script: &mut Script,
    contents: &dyn Contents,
    work: &Work,
    job: Option<&Job>,
) -> Result<(), Error> {
    if work.scheduling.pin == Pin::Exclusive {
        return Err(Error::missing(
            "the simulated machine has one CPU, which all programs share",
            "leave --pin exclusive out",
        ));
    }
    let support = contents.load_support();
    for load in work.conditions.loads.programs() {
        add_load(script, support, load)?;
    }
    if let (PerCpu::Two, Some(job)) = (work.conditions.per_cpu, job) {
        if support != LoadSupport::Vmm {
            return Err(Error::missing(
                "this machine has no second guest",
                "leave --vcpus-per-cpu out",
            ));
        }
        let command = contents.command(&co_tenant_job(job, expiries(job)));
        script.load(CO_TENANT, "exits", "exits", &command);
    }
    script.sched(work.scheduling.sched);
    Ok(())
}

/// Returns the number of timer expiries that take longer than the measured guest may run.
fn expiries(job: &Job) -> u32 {
    let expiries = timeout(job).as_nanos() / u128::from(job.period.max(1));
    expiries.try_into().unwrap_or(u32::MAX)
}

fn add_load(script: &mut Script, support: LoadSupport, load: Load) -> Result<(), Error> {
    match (support, load) {
        (LoadSupport::None, _) => Err(Error::missing(
            format!("load {load} cannot run beside a domain of Xen"),
            "leave it out, or measure sim/kvm",
        )),
        (_, Load::Cpu(processes)) => {
            let command = agent_command("cpu");
            for _ in 0..processes {
                script.load(load.name(), "turns", "count", &command);
            }
            Ok(())
        }
        (_, Load::Memory) => {
            let command = agent_command(&format!("memory:{BLOCK_MIB}"));
            script.load(load.name(), "bytes", "count", &command);
            Ok(())
        }
        (LoadSupport::Vmm, Load::Exits) => {
            let command = Command::new(VMM).arg("--image").arg(IMAGE);
            let command = command.arg("--cmdline").arg(EXITING_JOB);
            script.load(load.name(), "exits", "exits", &command);
            Ok(())
        }
        (LoadSupport::Vmm, Load::CreateVm(created)) => {
            let command = creating_command(created)?;
            if created.pages == MemoryPages::Huge {
                script.file(HUGE_PAGES, HugePages::Madvise.name());
            }
            script.load(load.name(), "machines", "count", &command);
            Ok(())
        }
        (_, load) => Err(Error::missing(
            format!("load {load} needs trapline-vmm, which this machine does not have"),
            "leave it out, or measure sim/kvm",
        )),
    }
}

fn agent_command(kind: &str) -> Command {
    let command = Command::new(AGENT).arg(format!("trapline.burn={kind}"));
    command.arg(DURATION)
}

fn creating_command(created: Created) -> Result<Command, Error> {
    let mib = created.mib.unwrap_or(CREATED_MIB);
    if mib > MAX_CREATED_MIB {
        return Err(Error::missing(
            format!("the simulated machine has no memory for machines of {mib} MiB"),
            format!("create-vm:{MAX_CREATED_MIB} is the largest"),
        ));
    }
    let command = agent_command("run").arg(VMM).arg("--image").arg(IMAGE);
    Ok(create_vm_command(command, mib, created))
}

#[cfg(test)]
mod tests {
    use super::super::Agent;
    use super::*;
    use expect_test::expect;
    use trapline_abi::job::Isolation;
    use trapline_model::{Conditions, Scheduling};

    fn script(loads: &str, sched: &str, pin: Pin) -> Result<String, String> {
        let work = Work {
            job: Job::EMPTY,
            boot_job: Job::EMPTY,
            boot_launches: 0,
            guests: 1,
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
        let agent = Agent {
            file_mib: 0,
            loopback: crate::network::PeerDrivers::default(),
            isolation: Isolation::None,
        };
        let prepared = prepare(&mut script, &agent, &work, None);
        let text = prepared.map(|()| script.text().to_owned());
        text.map_err(|error| error.to_string())
    }

    #[test]
    fn loads_precede_the_scheduling_policy() {
        let load = "load\tcpu\tturns\tcount\t/init\ttrapline.burn=cpu\ttrapline.seconds=1000000\n";
        let expected = format!("{load}{load}sched\tfifo\t7\n");
        assert_eq!(script("cpu:2", "fifo:7", Pin::Shared), Ok(expected));
        let none = script("console-direct", "other", Pin::Free);
        assert_eq!(none, Ok(String::new()));
    }

    #[test]
    fn unsupported_conditions_are_rejected_with_a_remedy() {
        let cases = [
            ("none", Pin::Exclusive),
            ("exits", Pin::Shared),
            ("create-vm", Pin::Shared),
        ];
        let mut errors = cases
            .map(|(loads, pin)| script(loads, "other", pin).unwrap_err())
            .to_vec();
        let mut script = Script::default();
        let large = "create-vm:4096".parse().unwrap();
        let error = add_load(&mut script, LoadSupport::Vmm, large).unwrap_err();
        errors.push(error.to_string());
        expect![[r#"
            the simulated machine has one CPU, which all programs share: leave --pin exclusive out
            load exits needs trapline-vmm, which this machine does not have: leave it out, or measure sim/kvm
            load create-vm needs trapline-vmm, which this machine does not have: leave it out, or measure sim/kvm
            the simulated machine has no memory for machines of 4096 MiB: create-vm:512 is the largest"#]].assert_eq(&errors.join("\n"));
        add_load(&mut script, LoadSupport::Vmm, Load::Exits).unwrap();
        assert!(script
            .text()
            .starts_with("load\texits\texits\texits\t/trapline/vmm\t"));
    }
}
