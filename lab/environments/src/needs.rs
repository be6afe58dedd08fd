//! Requirements of environments, derived from their layers.

use trapline_host::Part;
use trapline_model::layers::{Domain, Guest, Hypervisor, Level, Machine, QemuMachine, Stack, Vmm};

/// Something that an environment needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A part of Trapline.
    Part(Part),
    /// QEMU with the firmware of a machine.
    Qemu(QemuMachine),
    /// A custom VMM.
    CustomVmm,
    /// A usable /dev/kvm.
    Kvm,
    /// QEMU with an instruction counter.
    Counting,
    /// QEMU with an instruction counter and AMD's virtualization, and a Linux kernel for it.
    Linux,
    /// Xen for that machine, with a kernel for its initial domain.
    Xen,
    /// Xen for a guest of that machine, with a kernel for its initial domain.
    NestedXen,
    /// Xen for that machine, without a Linux.
    XenAlone,
    /// QEMU with an instruction counter and AMD's virtualization, without a Linux.
    Nesting,
    /// NOVA.
    Nova,
    /// The device model of that Xen.
    XenDeviceModel,
    /// A /dev/kvm that executes ring 0 at full speed.
    Ring0,
    /// A Linux kernel for guests of this host.
    GuestLinux,
    /// User-mode Linux.
    Uml,
    /// A kernel that lets a VMM trace the process of its guest.
    Tracing,
    /// Bochs.
    Bochs,
    /// A Linux kernel for Bochs.
    IntelLinux,
    /// QEMU with an instruction counter and a processor of Arm, and a Linux kernel for it.
    ArmLinux,
    /// Xen for Bochs, with a kernel for its initial domain.
    IntelXen,
}

/// QEMU as a simulated machine.
const QEMU: Need = Need::Qemu(QemuMachine::DEFAULT);

/// Returns the needs of a stack, in the order in which they are checked.
pub fn of(stack: &Stack) -> Vec<Need> {
    let mut needs: Vec<Need> = parts(stack).into_iter().map(Need::Part).collect();
    needs.extend_from_slice(machine(stack));
    for level in stack.levels {
        let hypervisor = hypervisor(stack, *level).iter().copied();
        for need in vmm(*level).into_iter().chain(hypervisor) {
            // QEMU may be both the machine and a VMM on it.
            if !needs.contains(&need) {
                needs.push(need);
            }
        }
    }
    needs
}

fn parts(stack: &Stack) -> Vec<Part> {
    let linux = stack.has_machine_linux();
    if stack.machine == Machine::SimArm64 {
        return vec![Part::ArmAgent, Part::ArmSymbols];
    }
    let has = |level| stack.levels.contains(&level);
    let vmm = |level: &Level| level.vmm == Some(Vmm::Trapline) && *level != Level::NOVA;
    [
        (Part::Agent, linux || stack.guest == Guest::Linux),
        (Part::Symbols, linux),
        (Part::Vmm, stack.levels.iter().any(vmm)),
        (Part::Nova, has(Level::NOVA)),
        (Part::Image, stack.guest == Guest::Image),
    ]
    .into_iter()
    .filter_map(|(part, is_needed)| is_needed.then_some(part))
    .collect()
}

fn machine(stack: &Stack) -> &'static [Need] {
    match (
        stack.machine,
        stack.has_machine_linux(),
        stack.begins_with_xen(),
    ) {
        (Machine::Host, ..) => &[],
        (Machine::Sim, false, false) if stack.levels.is_empty() => &[QEMU, Need::Counting],
        (Machine::Sim, false, false) => &[QEMU, Need::Nesting],
        (Machine::Sim, false, true) => &[QEMU, Need::XenAlone],
        (Machine::Sim, true, false) => &[QEMU, Need::Linux],
        (Machine::Sim, true, true) => &[QEMU, Need::Xen],
        (Machine::SimArm64, ..) => &[Need::ArmLinux],
        (Machine::SimVmx, false, _) => &[Need::Bochs],
        (Machine::SimVmx, true, false) => &[Need::Bochs, Need::IntelLinux],
        (Machine::SimVmx, true, true) => &[Need::Bochs, Need::IntelXen],
    }
}

fn vmm(level: Level) -> Vec<Need> {
    match level.vmm {
        Some(Vmm::Qemu(machine)) => vec![Need::Qemu(machine)],
        Some(Vmm::Custom(_)) => vec![Need::CustomVmm],
        Some(Vmm::Trapline) | None => vec![],
    }
}

/// The kernel of a simulated machine has KVM; Xen comes with the machine, unless it is nested.
fn hypervisor(stack: &Stack, level: Level) -> &'static [Need] {
    let is_custom = matches!(level.vmm, Some(Vmm::Custom(_)));
    match (stack.machine, level.hypervisor, stack.guest) {
        (_, Hypervisor::Uml, _) => &[Need::Uml],
        (Machine::Host, Hypervisor::Process, _) => &[Need::Tracing],
        (_, Hypervisor::Xen(Domain::Hvm), _) if stack.is_nested() => {
            &[Need::NestedXen, Need::XenDeviceModel]
        }
        (_, Hypervisor::Xen(Domain::Hvm), _) => &[Need::XenDeviceModel],
        (_, Hypervisor::Xen(_), _) if stack.is_nested() => &[Need::NestedXen],
        (Machine::Host, Hypervisor::Kvm, Guest::Image) if !is_custom => &[Need::Kvm],
        (Machine::Host, Hypervisor::Kvm, Guest::Linux) => {
            &[Need::Kvm, Need::Ring0, Need::GuestLinux]
        }
        (Machine::Host, Hypervisor::Tcg, Guest::Linux) => &[Need::GuestLinux],
        (_, Hypervisor::Nova, Guest::Image) => &[Need::Nova],
        (_, Hypervisor::Nova, Guest::Linux) => &[Need::Nova, Need::GuestLinux],
        _ => &[],
    }
}
