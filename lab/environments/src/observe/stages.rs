//! Boot stages of environments.

use std::collections::BTreeMap;
use trapline_abi::{Op, Stage};
use trapline_model::{Clock, EnvironmentId};
use trapline_protocol::GuestReport;

/// Returns the reason why an operation of workload boot is not applicable to an environment.
pub fn not_applicable(environment: EnvironmentId, op: Op) -> Option<&'static str> {
    let is_before_entry = matches!(op, Op::BootCreated | Op::BootEntry);
    let is_created = op == Op::BootCreated;
    match environment {
        id if id.is_xen() && id.starts_with_machine() => {
            Some("Xen's first domain starts with the machine, and no VMM is executed")
        }
        id if id.is_nova() => (op == Op::BootExit).then_some("the machine ends with its guest"),
        id if id.starts_with_machine() => Some("the bare machine has no VMM"),
        id if id.is_native() && is_before_entry => Some("a process has no virtual machine"),
        id if id.is_user_mode() && is_before_entry => {
            Some("user-mode Linux is the executed program: its kernel is the first stage")
        }
        id if id.is_linux_guest() && id.has_qemu_vmm() && op == Op::BootEntry => {
            Some("QEMU does not report the entry to its guest's kernel")
        }
        id if id.has_qemu_vmm() && is_created => {
            Some("QEMU does not report the creation of the machine")
        }
        id if id.is_xen() && op != Op::BootExit => Some(match id.clock() {
            Clock::Insn => {
                "Xen does not report the offset of a domain's clock; 'trapline explain' of \
                 boot/exit has the stages"
            }
            _ => "Xen does not report the offset of a domain's clock",
        }),
        id if id.is_custom() && id.is_linux_guest() && op == Op::BootEntry => Some(
            "no record marks the first instruction of a Linux guest, and other VMMs report none",
        ),
        id if id.is_custom() && is_created => {
            Some("a VMM given with --vmm does not report the creation of the machine")
        }
        _ => None,
    }
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
