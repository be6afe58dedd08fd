//! Operations that a configuration does not measure. They are left out of its jobs before anything is started.

use crate::config::Config;
use crate::environment::EnvironmentId;
use crate::features::Feature;
use crate::guest_config::GuestConfig;
use crate::populate;
use crate::preset::{Preset, Sizes};
use crate::request::Request;
use trapline_abi::instruction_set::InstructionSet;
use trapline_abi::{block, files, net, OpSet, Workload};

/// Operations that are not measured, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The operations.
    pub operations: OpSet,
    /// The reason, and the remedy if there is one.
    pub reason: String,
    /// It is reported. Operations of another instruction set that only come with their workload are not.
    pub is_reported: bool,
}

impl LeftOut {
    /// Returns operations that are reported with a reason.
    pub fn new(operations: OpSet, reason: impl Into<String>) -> Self {
        Self {
            operations,
            reason: reason.into(),
            is_reported: true,
        }
    }

    /// Returns the union of the operations of all.
    pub fn union(all: &[Self]) -> OpSet {
        all.iter().map(|it| it.operations).collect()
    }
}

/// Returns those of `operations` that a configuration does not measure.
pub fn left_out(request: &Request, config: &Config, operations: OpSet) -> Vec<LeftOut> {
    let environment = config.environment;
    let unsupported = request.overrides.unsupported_options(environment);
    let default = Sizes::of(environment, request.preset).guest;
    let guest = request.configured(default, config);
    let reason = unsupported.or_else(|| too_small(&guest, default.memory_mib));
    let mut all = match reason {
        Some(reason) => vec![LeftOut::new(operations, reason)],
        None => {
            let mut all = of_environment(environment, request.preset, operations, request.named);
            all.extend(without_tap(request, environment, &guest, operations));
            all.extend(of_guests(environment, guest.guests, operations));
            all
        }
    };
    all.retain(|left_out| !left_out.operations.is_empty());
    all
}

/// Returns the reason if a guest has less memory than its operations need.
fn too_small(guest: &GuestConfig, needed: u32) -> Option<String> {
    (guest.memory_mib < needed).then(|| {
        format!("the operations need {needed} MiB: set at least memory={needed}M, or leave it out")
    })
}

/// Returns the `operations` that an environment does not measure. Those `named` individually are measured even if they take
/// long.
fn of_environment(
    environment: EnvironmentId,
    preset: Preset,
    operations: OpSet,
    named: OpSet,
) -> Vec<LeftOut> {
    let mut all: Vec<LeftOut> = Vec::new();
    let mut leave_out =
        |operations: OpSet, reason: String| match all.iter_mut().find(|it| it.reason == reason) {
            _ if operations.is_empty() => {}
            Some(same) => same.operations |= operations,
            None => all.push(LeftOut::new(operations, reason)),
        };
    for (feature, needing) in Feature::needed() {
        if let Some(why) = environment.why_not(*feature) {
            let reason = format!("{why}: measure {}", feature.instead());
            leave_out(operations & *needing, reason);
        }
    }
    let set = environment.stack().machine.instruction_set();
    let foreign = operations.iter().filter(|op| !op.exists_on(set));
    let foreign: OpSet = foreign.collect();
    leave_out(foreign & named, no_instruction(set).to_owned());
    let is_slow = environment.clock().is_exact() && preset == Preset::Quick;
    if is_slow && environment.has(Feature::LargeHotplug) {
        leave_out(
            (operations & populate::large()) - named,
            TOO_LONG.to_owned(),
        );
    }
    if operations.intersects(block::operations()) {
        leave_out(operations & files::operations(), ONE_DISK.to_owned());
    }
    let unasked = LeftOut {
        is_reported: false,
        ..LeftOut::new(foreign - named, no_instruction(set))
    };
    all.extend((!unasked.operations.is_empty()).then_some(unasked));
    all
}

/// Returns why an instruction set does not have an operation.
const fn no_instruction(set: InstructionSet) -> &'static str {
    match set {
        InstructionSet::X86_64 => {
            "its processor lacks this instruction of Arm: measure sim-arm64/linux"
        }
        InstructionSet::Aarch64 => {
            "its processor lacks this instruction of x86-64: measure host or sim/linux"
        }
    }
}

/// Returns those of `operations` that need a tap of this host, if there is none.
fn without_tap(
    request: &Request,
    environment: EnvironmentId,
    guest: &GuestConfig,
    operations: OpSet,
) -> Option<LeftOut> {
    let reason = request.without_taps.clone()?;
    let operations = operations & guest.operations_over_tap();
    let has_tap = environment.has(Feature::HostTap);
    has_tap.then(|| LeftOut::new(operations, reason))
}

/// Returns the `operations` that several guests do not measure at the same time.
fn of_guests(environment: EnvironmentId, guests: u32, operations: OpSet) -> Option<LeftOut> {
    let (operations, reason) = if environment.has(Feature::StartBarrier) {
        (operations & alone(), ONE_GUEST)
    } else {
        (operations - Workload::Boot.set(), ONLY_START)
    };
    (guests > 1 && !operations.is_empty()).then(|| LeftOut::new(operations, reason))
}

/// Returns the operations that need a device of the host.
fn alone() -> OpSet {
    Workload::Irq.set()
        | populate::operations()
        | block::operations()
        | files::operations()
        | net::operations()
        | net::vsock_operations()
}

const ONE_GUEST: &str = "not measured in several guests at the same time: leave --guests out";

const ONLY_START: &str =
    "several guests only start at the same time here (--workload boot): those of trapline-vmm on \
     this host measure operations at the same time, too";

const ONE_DISK: &str =
    "workload block overwrites the disk that has the files: measure files in a run of its own";

const TOO_LONG: &str = "1 GiB takes minutes on an instruction clock: choose --preset full, or \
                        name it (trapline populate --order 18)";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::Machine;
    use crate::names;
    use expect_test::expect;
    use trapline_abi::Op;

    /// Returns whether `op` is measured alone in an environment.
    fn is_measured(id: EnvironmentId, op: Op) -> bool {
        LeftOut::union(&of_environment(id, Preset::Full, op.into(), op.into())).is_empty()
    }

    /// Returns the environments that a reason recommends: "... : measure A, B or C".
    fn recommended(reason: &str) -> Vec<EnvironmentId> {
        let list = reason
            .rsplit_once(": measure ")
            .map_or("", |(_, list)| list);
        let list = list.replace(" or ", ", ");
        let names = list.split(", ");
        names
            .filter_map(|name| names::environment(name).ok())
            .collect()
    }

    #[test]
    fn recommended_environments_measure_the_operation() {
        for op in [
            Op::Read4k1,
            Op::TcpPing,
            Op::SendFile,
            Op::VsockPing,
            Op::Packet64,
            Op::Attach0,
        ] {
            let mut recommendations = 0;
            for id in EnvironmentId::all() {
                for left_out in of_environment(id, Preset::Full, op.into(), op.into()) {
                    for better in recommended(&left_out.reason) {
                        assert!(is_measured(better, op), "{op:?} in {id}: {better}");
                        recommendations += 1;
                    }
                }
            }
            assert!(recommendations > 10, "{op:?}: {recommendations}");
        }
    }

    #[test]
    fn linux_sends_files_and_has_vsock() {
        for id in EnvironmentId::all().filter(|id| id.has(Feature::Network)) {
            for op in [Op::SendFile, Op::VsockPing] {
                let is_arm = id.stack().machine == Machine::SimArm64;
                let expected = id.has_processes() && !(is_arm && op == Op::VsockPing);
                assert_eq!(is_measured(id, op), expected, "{op:?} in {id}");
            }
        }
    }

    #[test]
    fn notifications_need_a_device_that_interrupts() {
        for others in [OpSet::EMPTY, Op::BootMain.into(), Op::PortOut.into()] {
            for id in EnvironmentId::all() {
                let left_out =
                    of_environment(id, Preset::Quick, Op::Doorbell | others, OpSet::EMPTY);
                let is_left_out = LeftOut::union(&left_out).contains(Op::Doorbell);
                assert_eq!(is_left_out, !id.has(Feature::Doorbell), "{id} {others:?}");
            }
        }
    }

    #[test]
    fn several_guests_measure_what_needs_no_other_device() {
        let (kvm, fork, main) = (EnvironmentId::KVM, Op::Fork, Op::BootMain);
        let operations = main | Op::Read4k1 | fork;
        assert_eq!(of_guests(kvm, 1, operations), None);
        assert_eq!(of_guests(kvm, 2, fork | main), None);
        let left_out = |id| of_guests(id, 2, operations).unwrap().operations;
        assert_eq!(left_out(kvm), Op::Read4k1.into());
        for only_starts in [EnvironmentId::SIM_KVM, EnvironmentId::QEMU_KVM] {
            assert!(only_starts.has(Feature::Guests), "{only_starts}");
            assert_eq!(left_out(only_starts), operations - main);
        }
    }

    #[test]
    fn large_regions_are_measured_if_named_or_by_preset_full() {
        let all = populate::operations() | Op::PortOut;
        let out = |id, preset, named| of_environment(id, preset, all, named);
        let none = OpSet::EMPTY;
        assert_eq!(out(EnvironmentId::KVM, Preset::Quick, none), []);
        assert_eq!(out(EnvironmentId::SIM_KVM, Preset::Full, none), []);
        let quick = out(EnvironmentId::SIM_KVM, Preset::Quick, none);
        assert_eq!(LeftOut::union(&quick), populate::large());
        expect!["1 GiB takes minutes on an instruction clock: choose --preset full, or name it (trapline populate --order 18)"].assert_eq(&quick[0].reason);
        let named = Op::Attach18.into();
        let rest = out(EnvironmentId::SIM_KVM, Preset::Quick, named);
        assert_eq!(LeftOut::union(&rest), populate::large() - named);
        let qemu = out(EnvironmentId::QEMU_KVM, Preset::Full, all);
        assert_eq!(LeftOut::union(&qemu), populate::operations());
        let vmx = out(EnvironmentId::SIM_VMX_KVM, Preset::Full, all);
        assert_eq!(LeftOut::union(&vmx), populate::large());
    }

    #[test]
    fn an_environment_can_have_several_reasons() {
        let operations = Op::Read4k1 | Op::Attach0 | Op::PortOut;
        let left_out = of_environment(
            EnvironmentId::SIM_XEN_PVH,
            Preset::Quick,
            operations,
            OpSet::EMPTY,
        );
        assert_eq!(left_out.len(), 2);
        assert_eq!(LeftOut::union(&left_out), operations - Op::PortOut);
    }
}
