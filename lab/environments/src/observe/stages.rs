//! Boot stages of environments.

use std::collections::BTreeMap;
use trapline_abi::{Op, Stage};
use trapline_model::{EnvironmentId, Feature};
use trapline_protocol::GuestReport;

/// Returns the reason why an operation of workload boot is not applicable to an environment.
pub fn not_applicable(environment: EnvironmentId, op: Op) -> Option<&'static str> {
    environment.why_not(Feature::of_start(op)?)
}

/// Returns the stage at which an operation of the boot workload ends.
pub fn last_stage(op: Op) -> Option<Stage> {
    match op {
        Op::BootCreated => Some(Stage::VmCreated),
        Op::BootEntry => Some(Stage::GuestEntry),
        Op::BootMain => Some(Stage::GuestMain),
        Op::BootSample => Some(Stage::FirstSample),
        Op::BootExit => Some(Stage::Reaped),
        _ => None,
    }
}

/// Returns the same for an environment. No record marks the first instruction of a Linux guest; the last
/// stage before it is that of the VMM.
pub fn last_stage_in(environment: EnvironmentId, op: Op) -> Option<Stage> {
    match op {
        Op::BootEntry if environment.is_linux_guest() => Some(Stage::VmmEntry),
        _ => last_stage(op),
    }
}

/// Returns the stages of a launch on the host clock: those of the VMM, and those of the guest if the offset
/// of its clock is known.
pub fn on_host_clock(report: &GuestReport, offset: Option<i64>) -> BTreeMap<Stage, u64> {
    let mut stages = report.vmm_stages.clone();
    if let Some(offset) = offset {
        let guest = report.stages.iter();
        stages.extend(guest.map(|(&stage, &at)| (stage, at.wrapping_sub(offset as u64))));
    }
    stages
}
