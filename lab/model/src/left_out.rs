//! Operations that an environment does not measure. They are left out of its jobs before anything is started.

use crate::clock::Clock;
use crate::environment::EnvironmentId;
use crate::layers::Machine;
use crate::populate;
use crate::preset::Preset;
use trapline_abi::{block, files, net, packet, Op, OpSet, Workload};

/// Operations that are not measured, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The operations.
    pub operations: OpSet,
    /// The reason, and the remedy if there is one.
    pub reason: String,
}

/// Returns the `operations` that an environment does not measure. Those `named` individually are measured
/// even if they take long.
pub fn of(
    environment: EnvironmentId,
    preset: Preset,
    operations: OpSet,
    named: OpSet,
) -> Vec<LeftOut> {
    let loads = environment.clock().is_exact().then_some(ONE_INSTRUCTION);
    let all = [
        without_memory(environment, preset, named),
        loads.map(|reason| (Workload::Memory.set(), reason)),
        without_disk(environment).map(|reason| (block::operations() | files::operations(), reason)),
        operations
            .intersects(block::operations())
            .then_some((files::operations(), ONE_DISK)),
        environment
            .has_user_apic()
            .then_some((Op::Doorbell.into(), NO_DEVICES)),
    ];
    let all = all.into_iter().flatten();
    let all = all.map(|(set, reason)| (set, reason.to_owned()));
    let all = all.chain(without_network(environment));
    let all = all.map(|(set, reason)| LeftOut {
        operations: operations & set,
        reason,
    });
    all.filter(|left_out| !left_out.operations.is_empty())
        .collect()
}

/// Returns the `operations` that several guests do not measure at the same time, if there are any.
pub fn of_guests(environment: EnvironmentId, guests: u32, operations: OpSet) -> Option<LeftOut> {
    let (operations, reason) = if environment.has_start_barrier() {
        (operations & alone(), ONE_GUEST)
    } else {
        (operations - Workload::Boot.set(), ONLY_START)
    };
    (guests > 1 && !operations.is_empty()).then(|| LeftOut {
        operations,
        reason: reason.to_owned(),
    })
}

/// Returns the operations that need a device of the host.
fn alone() -> OpSet {
    Workload::Irq.set()
        | Workload::Populate.set()
        | block::operations()
        | files::operations()
        | net::operations()
        | net::vsock_operations()
}

/// Returns the union of the operations.
pub fn union(left_out: &[LeftOut]) -> OpSet {
    left_out.iter().map(|it| it.operations).collect()
}

const ONE_GUEST: &str = "not measured in several guests at the same time: leave --guests out";

const ONLY_START: &str =
    "several guests only start at the same time here (--workload boot): those of \
                          trapline-vmm on this host measure operations at the same time, too";

const ONE_INSTRUCTION: &str =
    "a load is one instruction, whatever the caches hold: measure kvm or \
                               host";

const ONE_DISK: &str =
    "workload block overwrites the disk that has the files: measure files in a run of its own";

const TOO_LONG: &str = "1 GiB takes minutes on an instruction clock: choose --preset full, or \
                        name it (trapline populate --order 18)";
const NO_ROOM: &str = "the machine with Intel's virtualization has no room for a GiB: measure \
                       sim/kvm";

const NO_DEVICES: &str =
    "devices interrupt a guest through KVM's interrupt controllers: measure sim/kvm";

/// Returns the operations of workload `populate` that an environment does not measure.
fn without_memory(
    environment: EnvironmentId,
    preset: Preset,
    named: OpSet,
) -> Option<(OpSet, &'static str)> {
    match (without_hotplug(environment), environment.clock(), preset) {
        (Some(reason), ..) => Some((populate::operations(), reason)),
        (None, Clock::InsnVmx, _) => Some((populate::large(), NO_ROOM)),
        (None, Clock::Insn, Preset::Quick) => Some((populate::large() - named, TOO_LONG)),
        _ => None,
    }
}

/// Returns why a running guest gets no memory.
fn without_hotplug(environment: EnvironmentId) -> Option<&'static str> {
    if environment.supports_memory_hotplug() {
        return None;
    }
    Some(match environment {
        id if id.is_native() => {
            "a bare machine has the memory that it starts with: measure kvm or sim/kvm"
        }
        id if id.is_linux_guest() => {
            "memory hotplug is not supported for Linux guests: measure kvm or sim/kvm"
        }
        id if id.has_user_apic() => NO_DEVICES,
        id if id.is_custom() => {
            "memory hotplug of a VMM given with --vmm is not supported: measure kvm or sim/kvm"
        }
        id if id.is_xen() => {
            "a domain of Xen is populated before it starts, and gets no more: boot/exit has that \
             in it"
        }
        _ => {
            "QEMU gives a running guest memory by ACPI hotplug, which the image does not \
             support: measure kvm or sim/kvm"
        }
    })
}

/// Returns why there is no disk that can be measured.
fn without_disk(environment: EnvironmentId) -> Option<&'static str> {
    match environment {
        id if id.is_on(Machine::SimVmx) => {
            Some("the machine with Intel's virtualization has no room for a disk: measure sim/kvm")
        }
        id if id.is_xen() => {
            Some("the disk of a domain of Xen is not supported: measure sim/kvm or sim/qemu-kvm")
        }
        id if id.is_nova() => {
            Some("the disk of a guest of NOVA is not supported: measure sim/kvm or sim/kvm/linux")
        }
        id if id.starts_with_machine() => {
            Some("a machine without Linux has no disk: measure sim/kvm or sim/linux")
        }
        id if id.is_custom() => {
            Some("the disk of a VMM given with --vmm is not supported: measure kvm or sim/kvm")
        }
        id if id.has_user_apic() => Some(NO_DEVICES),
        id if id.has_pci_disk() => Some(
            "the disk of this machine is a PCI device, for which the image has no driver: measure \
             sim/qemu-kvm",
        ),
        _ => None,
    }
}

/// Environments that exchange bytes and packets, and those that send files and use vsock.
const WITH_NETWORK: &str = "kvm or sim/kvm";
const WITH_FILES: &str = "host, sim/linux, kvm/linux or sim/kvm/linux";

/// Returns the operations of workload `net` that an environment does not measure.
fn without_network(environment: EnvironmentId) -> impl Iterator<Item = (OpSet, String)> {
    let why = no_network(environment);
    let is_image = why.is_none() && !environment.has_processes();
    let file = is_image.then_some("the image has no file in memory while it has a network card");
    let vsock = is_image.then_some("the image has no driver for vsock");
    let packets = (why.is_none() && !environment.supports_packets())
        .then_some("packets go from guest to guest of trapline-vmm");
    let of_linux = Op::SendFile | net::vsock_operations();
    let exchanges = (net::operations() | packet::operations()) - of_linux;
    let all = [
        (exchanges, why, WITH_NETWORK),
        (of_linux, why, WITH_FILES),
        (Op::SendFile.into(), file, WITH_FILES),
        (net::vsock_operations(), vsock, WITH_FILES),
        (packet::operations(), packets, WITH_NETWORK),
    ];
    all.into_iter().filter_map(|(set, why, others)| {
        let why = why?;
        Some((set, format!("{why}: measure {others}")))
    })
}

/// Returns why there is no network that can be measured.
fn no_network(environment: EnvironmentId) -> Option<&'static str> {
    if environment.supports_network() {
        return None;
    }
    Some(match environment {
        id if id.is_on(Machine::SimVmx) => {
            "the network of the machine with Intel's virtualization is not supported"
        }
        id if id.is_nova() => "the network of a guest of NOVA is not supported",
        id if id.starts_with_machine() => "a machine without Linux has no peer",
        id if id.is_user_mode() => "the network of user-mode Linux is not supported",
        id if id.has_user_apic() => "devices interrupt a guest through KVM's interrupt controllers",
        id if id.is_xen() => "the network of a domain of Xen is not supported",
        id if id.is_custom() => "the network of a VMM given with --vmm is not supported",
        _ => "the network of QEMU is not supported",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;
    use expect_test::expect;

    /// Returns whether `op` is measured alone in an environment.
    fn is_measured(id: EnvironmentId, op: Op) -> bool {
        of(id, Preset::Full, op.into(), op.into()).is_empty()
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
                for left_out in of(id, Preset::Full, op.into(), op.into()) {
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
        for id in EnvironmentId::all().filter(|id| id.supports_network()) {
            for op in [Op::SendFile, Op::VsockPing] {
                assert_eq!(is_measured(id, op), id.has_processes(), "{op:?} in {id}");
            }
        }
    }

    #[test]
    fn notifications_need_a_device_that_interrupts() {
        for others in [OpSet::EMPTY, Op::BootMain.into(), Op::PortOut.into()] {
            for id in EnvironmentId::all() {
                let left_out = of(id, Preset::Quick, Op::Doorbell | others, OpSet::EMPTY);
                let is_left_out = union(&left_out).contains(Op::Doorbell);
                assert_eq!(is_left_out, id.has_user_apic(), "{id} {others:?}");
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
            assert!(only_starts.supports_simultaneous_guests(), "{only_starts}");
            assert_eq!(left_out(only_starts), operations - main);
        }
    }

    #[test]
    fn large_regions_are_measured_if_named_or_by_preset_full() {
        let all = populate::operations() | Op::PortOut;
        let out = |id, preset, named| of(id, preset, all, named);
        let none = OpSet::EMPTY;
        assert_eq!(out(EnvironmentId::KVM, Preset::Quick, none), []);
        assert_eq!(out(EnvironmentId::SIM_KVM, Preset::Full, none), []);
        let quick = out(EnvironmentId::SIM_KVM, Preset::Quick, none);
        assert_eq!(union(&quick), populate::large());
        expect!["1 GiB takes minutes on an instruction clock: choose --preset full, or name it (trapline populate --order 18)"].assert_eq(&quick[0].reason);
        let named = Op::Attach18.into();
        let rest = out(EnvironmentId::SIM_KVM, Preset::Quick, named);
        assert_eq!(union(&rest), populate::large() - named);
        let qemu = out(EnvironmentId::QEMU_KVM, Preset::Full, all);
        assert_eq!(union(&qemu), populate::operations());
        let vmx = out(EnvironmentId::SIM_VMX_KVM, Preset::Full, all);
        assert_eq!(union(&vmx), populate::large());
    }

    #[test]
    fn an_environment_can_have_several_reasons() {
        let operations = Op::Read4k1 | Op::Attach0 | Op::PortOut;
        let left_out = of(
            EnvironmentId::SIM_XEN_PVH,
            Preset::Quick,
            operations,
            OpSet::EMPTY,
        );
        assert_eq!(left_out.len(), 2);
        assert_eq!(union(&left_out), operations - Op::PortOut);
    }
}
