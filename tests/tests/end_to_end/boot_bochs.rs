//! Boots of the simulated machine with VMX, in Bochs.

use std::time::Duration;
use trapline_abi::{Op, OpSet};
use trapline_environments::sim::STREAM_HASH;
use trapline_environments::EnvError;
use trapline_model::{
    EnvironmentId, Observation, Operation, OperationResult, Outcome, PlannedBoot, Sched, Scheduler,
    Scheduling,
};
use trapline_tests::boots::{failure, observe, planned, ready, settings};
use trapline_tests::parts;

/// Long enough on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

fn boot(id: EnvironmentId, operations: OpSet) -> Option<Observation> {
    boot_planned(&planned(id, operations))
}

/// Boots an environment as planned; returns nothing if it is skipped.
fn boot_planned(plan: &PlannedBoot) -> Option<Observation> {
    let id = plan.config.environment;
    let settings = settings(&parts());
    let environment = ready(id, &settings)?;
    let booted = observe(environment.as_ref(), &settings, plan, PATIENCE).unwrap();
    if let Some(trouble) = booted.error {
        panic!("{id}: {trouble}");
    }
    Some(booted.observation)
}

/// Ticks of every batch, by operation.
fn ticks(observation: &Observation) -> Vec<(Operation, Vec<u64>)> {
    let of = |operation: &OperationResult| match &operation.outcome {
        Outcome::Measured { samples, .. } => samples
            .iter()
            .map(|sample| sample.end - sample.start)
            .collect(),
        other => panic!("{:?}: {:?}", operation.op, failure(other)),
    };
    let all = observation.operations.iter();
    all.map(|operation| (operation.op, of(operation))).collect()
}

#[test]
fn bare_machine_is_reproducible() {
    let wanted = Op::Getpid | Op::PortOut | Op::SelfIpi;
    let Some(first) = boot(EnvironmentId::SIM_VMX, wanted) else {
        return;
    };
    assert_eq!(first.operations.len(), 3);
    let again = boot(EnvironmentId::SIM_VMX, wanted).unwrap();
    assert_eq!(ticks(&first), ticks(&again));
}

/// A Xen domain has no device, but hypercalls and event channels of Xen. Scheduler and domain share of Xen are settings of
/// this machine, too.
#[test]
#[ignore = "slow: make test-all"]
fn image_in_xen_is_measured_with_scheduler_and_share() {
    let id = EnvironmentId::SIM_VMX_XEN_PVH;
    let of_xen = Op::XenHypercall | Op::EventChannel | Op::BootExit;
    let exits = Op::PortOut | Op::Cpuid | Op::Hypercall;
    let mut plan = planned(id, of_xen | exits);
    plan.guest.scheduling = Scheduling {
        sched: Sched::Xen(Scheduler::Credit),
        cap: Some(50),
        weight: Some(512),
        ..Scheduling::DEFAULT
    };
    let Some(observation) = boot_planned(&plan) else {
        return;
    };
    for operation in &observation.operations {
        match &operation.outcome {
            Outcome::Measured { .. } => assert_ne!(operation.op, Op::PortOut),
            Outcome::Skipped(why) if operation.op == Op::PortOut => {
                assert!(why.contains("no serial port"), "{why}");
            }
            other => panic!("{:?}: {other:?}", operation.op),
        }
    }
    assert_eq!(observation.operations.len(), 6);
    for fact in ["bochs", "machine", "xen", "xen-sha256", STREAM_HASH] {
        assert!(observation.facts.contains_key(fact), "{fact}");
    }
    let command_line = &observation.facts["xen-command-line"];
    assert!(command_line.contains("mwait-idle=0"), "{command_line}");
    assert!(command_line.ends_with(" sched=credit"), "{command_line}");
}

/// Devices of a domain by trapline-vmm are served in the first domain of this machine, too.
#[test]
#[ignore = "slow: make test-all"]
fn image_in_xen_with_trapline_vmm_is_measured() {
    let wanted = Op::PortOut | Op::MmioRead | Op::Cpuid | Op::BootExit;
    if let Some(observation) = boot(EnvironmentId::SIM_VMX_XEN_TRAPLINE, wanted) {
        assert_eq!(ticks(&observation).len(), 4);
    }
}

#[test]
fn exceeded_deadline_is_reported_and_ends_the_machine() {
    let settings = settings(&parts());
    let Some(environment) = ready(EnvironmentId::SIM_VMX_LINUX, &settings) else {
        return;
    };
    let plan = planned(EnvironmentId::SIM_VMX_LINUX, Op::Getpid);
    let patience = Duration::from_millis(500);
    let booted = observe(environment.as_ref(), &settings, &plan, patience).unwrap();
    assert!(
        matches!(booted.error, Some(EnvError::TimedOut { .. })),
        "{:?}",
        booted.error
    );
    let failures = booted.observation.operations.iter();
    let failures: Vec<_> = failures
        .map(|operation| (operation.op, failure(&operation.outcome)))
        .collect();
    let expected = booted.error.map(|error| error.with_remedy());
    assert_eq!(failures, [(Op::Getpid.into(), expected.as_deref())]);
}
