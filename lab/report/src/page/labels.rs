//! Labels, layers and colours of the environments on the page.

use trapline_model::layers::{
    Domain, Guest, Hypervisor, Level, Machine, QemuMachine, Vmm, OPTION_VMM,
};
use trapline_model::{vmms, EnvironmentId};

/// Returns the labels of the layers of an environment, outermost first; the innermost runs the workloads.
pub fn layers(environment: EnvironmentId) -> Vec<&'static str> {
    let stack = environment.stack();
    let is_uml = environment.is_user_mode();
    let is_host = stack.machine == Machine::Host && stack.levels.is_empty();
    let mut labels = vec!["this host: Linux"];
    labels.extend(machine(stack.machine));
    for (depth, level) in stack.levels.iter().enumerate() {
        let has_linux = matches!(
            level.hypervisor,
            Hypervisor::Kvm | Hypervisor::KvmUserApic | Hypervisor::Process
        );
        let is_hosts = stack.machine == Machine::Host && depth == 0;
        labels.extend((has_linux && !is_hosts).then_some("Linux"));
        labels.extend(virtualization(*level));
    }
    match stack.guest {
        Guest::Image => labels.push("image"),
        Guest::Linux if is_uml || is_host => labels.push("agent"),
        Guest::Linux => labels.extend(["Linux", "agent"]),
    }
    labels
}

fn machine(machine: Machine) -> Option<&'static str> {
    match machine {
        Machine::Host => None,
        Machine::Sim => Some("simulated machine, AMD: QEMU counts instructions"),
        Machine::SimVmx => Some("simulated machine, Intel: Bochs counts instructions"),
        Machine::SimArm64 => Some("simulated machine, Arm: QEMU counts instructions"),
    }
}

fn virtualization(level: Level) -> Vec<&'static str> {
    match (level.hypervisor, level.vmm) {
        // Whether it uses KVM is not known.
        (_, Some(Vmm::Custom(OPTION_VMM))) => vec!["a VMM of your choice"],
        (_, Some(Vmm::Custom(name))) => vec![name],
        (Hypervisor::Kvm, Some(Vmm::Trapline)) => vec!["KVM", "trapline-vmm"],
        (Hypervisor::Kvm, Some(Vmm::Qemu(machine))) => vec!["KVM", machine.label()],
        (Hypervisor::KvmUserApic, _) => vec!["KVM", "trapline-vmm with APIC"],
        (Hypervisor::Process, _) => vec!["trapline-vmm", "process"],
        (Hypervisor::Nova, _) => vec!["NOVA", "trapline-vmm"],
        (Hypervisor::Kvm, None) => vec!["KVM"],
        (Hypervisor::Tcg, _) => vec!["QEMU microvm, translating"],
        (Hypervisor::Uml, _) => vec!["user-mode Linux"],
        (Hypervisor::Xen(_), Some(Vmm::Trapline)) => {
            vec!["Xen", "PVH domain, devices by trapline-vmm"]
        }
        (Hypervisor::Xen(Domain::Pvh), _) => vec!["Xen", "PVH domain"],
        (Hypervisor::Xen(Domain::Hvm), _) => vec!["Xen", "HVM domain, devices by QEMU"],
        (Hypervisor::Xen(Domain::Dom0), _) => vec!["Xen", "first domain"],
    }
}

/// Returns the class of the colour of an environment: that of the program or hypervisor that runs its guest, on
/// every clock, page and plot. Environments without virtualization share one.
pub fn tone(environment: EnvironmentId) -> &'static str {
    let Some(level) = environment.stack().innermost() else {
        return "t0";
    };
    match (level.hypervisor, level.vmm) {
        (Hypervisor::Process | Hypervisor::Uml, _) => "t8",
        (Hypervisor::Xen(Domain::Pvh), _) => "t6",
        (Hypervisor::Xen(Domain::Hvm | Domain::Dom0), _) => "t7",
        (Hypervisor::Nova, _) => "t9",
        (Hypervisor::KvmUserApic, _) => "t10",
        (Hypervisor::Tcg, _) => "t3",
        (Hypervisor::Kvm, None | Some(Vmm::Trapline)) => "t1",
        (Hypervisor::Kvm, Some(Vmm::Custom(name))) => {
            const TONES: [&str; 3] = ["t4", "t10", "t11"];
            TONES[vmms::position(name).map_or(0, |position| position + 1) % TONES.len()]
        }
        (Hypervisor::Kvm, Some(Vmm::Qemu(machine))) => match machine {
            QemuMachine::Microvm => "t2",
            QemuMachine::Pc | QemuMachine::Q35 => "t5",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stack_begins_with_the_host_and_no_two_are_alike() {
        let mut stacks: Vec<_> = EnvironmentId::BUILT_IN.map(layers).to_vec();
        assert!(stacks.iter().all(|stack| stack[0] == "this host: Linux"));
        stacks.sort();
        stacks.dedup();
        assert_eq!(stacks.len(), EnvironmentId::BUILT_IN.len());
    }

    #[test]
    fn a_vmm_has_one_colour_on_every_clock() {
        use EnvironmentId as Id;
        let of_vmm = [Id::KVM, Id::SIM_KVM, Id::SIM_VMX_KVM].map(tone);
        assert_eq!(of_vmm, ["t1"; 3]);
        let of_qemu = [Id::QEMU_KVM, Id::SIM_QEMU_KVM].map(tone);
        assert_eq!(of_qemu, ["t2"; 2]);
        assert_eq!([Id::HOST, Id::SIM, Id::SIM_LINUX].map(tone), ["t0"; 3]);
    }
}
