//! Features of environments: one table of features and layers, with the reason beside each no.
//!
//! To add a layer, add it to [`table::Layer`]: the compiler then names the features that have no answer for it.

mod markdown;
mod table;

pub use markdown::markdown;
pub use table::Feature;

use crate::environment::EnvironmentId;
use crate::layers::{Domain, Guest, Hypervisor, Machine, QemuMachine, Vmm};
use std::sync::OnceLock;
use table::Answer::{No, Unconcerned, Yes};
use table::{Answer, Layer, Place};
use trapline_abi::{net, packet, Need, Op, OpSet, Workload};

impl Layer {
    /// Returns that of an environment; none for forwarders.
    fn of(environment: EnvironmentId) -> Option<Self> {
        let stack = environment.stack();
        if environment.forwarder().is_some() {
            return None;
        }
        let Some(level) = stack.innermost() else {
            return Some(match (stack.guest, stack.machine) {
                (Guest::Image, _) => Self::BareImage,
                (Guest::Linux, Machine::Host) => Self::Host,
                (Guest::Linux, Machine::Sim | Machine::SimVmx | Machine::SimArm64) => {
                    Self::MachineLinux
                }
            });
        };
        Some(match (level.hypervisor, level.vmm, stack.guest) {
            (Hypervisor::Kvm, Some(Vmm::Custom(_)), Guest::Image) => Self::Custom,
            (Hypervisor::Kvm, Some(Vmm::Custom(_)), Guest::Linux) => Self::CustomLinux,
            (Hypervisor::Kvm, Some(Vmm::Qemu(QemuMachine::Pc)), Guest::Image) => Self::QemuPc,
            (Hypervisor::Kvm, Some(Vmm::Qemu(_)), Guest::Image) => Self::QemuKvm,
            (Hypervisor::Kvm, Some(Vmm::Qemu(_)), Guest::Linux) => Self::QemuKvmLinux,
            (Hypervisor::Kvm, Some(Vmm::Trapline) | None, Guest::Image) => Self::Kvm,
            (Hypervisor::Kvm, Some(Vmm::Trapline) | None, Guest::Linux) => Self::KvmLinux,
            (Hypervisor::KvmUserApic, ..) => Self::UserApic,
            (Hypervisor::Process, ..) => Self::Process,
            (Hypervisor::Tcg, _, Guest::Image) => Self::QemuTcg,
            (Hypervisor::Tcg, _, Guest::Linux) => Self::QemuTcgLinux,
            (Hypervisor::Uml, ..) => Self::Uml,
            (Hypervisor::Nova, _, Guest::Image) => Self::Nova,
            (Hypervisor::Nova, _, Guest::Linux) => Self::NovaLinux,
            (Hypervisor::Xen(Domain::Pvh), None, _) => Self::XenPvh,
            (Hypervisor::Xen(Domain::Pvh), Some(_), _) => Self::XenTrapline,
            (Hypervisor::Xen(Domain::Hvm), ..) => Self::XenHvm,
            (Hypervisor::Xen(Domain::Dom0), ..) => Self::XenDom0,
        })
    }
}

impl Place {
    fn has(self, environment: EnvironmentId) -> bool {
        let stack = environment.stack();
        match self {
            Self::On(machine) => stack.machine == machine,
            Self::Exact => stack.machine.clock().is_exact(),
            Self::Nested => stack.is_nested(),
        }
    }
}

impl Feature {
    fn answer(self, environment: EnvironmentId) -> Answer {
        let row = self.row();
        let needed = row.needs.map(|needed| needed.answer(environment));
        let Some(layer) = Layer::of(environment) else {
            return if self == Self::Queues {
                Yes
            } else {
                No(table::NO_GUEST)
            };
        };
        if let Some(answer @ (Unconcerned(_) | No(_))) = needed {
            return answer;
        }
        let mut excepted = row.except.iter();
        let excepted =
            excepted.find(|(place, layers, _)| place.has(environment) && layers.contains(&layer));
        match (row.answer(layer), excepted) {
            (Some(answer @ Unconcerned(_)), _) | (Some(answer), None) => answer,
            (_, Some((_, _, reason))) => No(reason),
            (None, None) => unreachable!("the table is complete"),
        }
    }

    /// Returns the features that operations need, each with these operations. Not those of starts, which are observed as far
    /// as they are ([`Self::of_start`]).
    pub fn needed() -> &'static [(Self, OpSet)] {
        static NEEDED: OnceLock<Vec<(Feature, OpSet)>> = OnceLock::new();
        NEEDED.get_or_init(|| {
            let needing = |feature: Self| {
                let all = Op::ALL.into_iter();
                all.filter(|op| Self::of(*op) == Some(feature)).collect()
            };
            let all = Self::ALL.iter().map(|it| (*it, needing(*it)));
            all.filter(|(_, needing): &(_, OpSet)| !needing.is_empty())
                .collect()
        })
    }

    /// Returns the feature that an operation needs, if it needs one.
    fn of(op: Op) -> Option<Self> {
        match op.need() {
            Need::Hotplug if crate::populate::large().contains(op) => Some(Self::LargeHotplug),
            Need::Hotplug => Some(Self::Hotplug),
            Need::Disk | Need::Files => Some(Self::Disk),
            Need::VirtioQueue => Some(Self::Doorbell),
            Need::Network if op == Op::SendFile => Some(Self::SendFile),
            Need::Network if net::vsock_operations().contains(op) => Some(Self::Vsock),
            Need::Network if packet::operations().contains(op) => Some(Self::Packets),
            Need::Network => Some(Self::Network),
            _ if op.workload() == Workload::Memory => Some(Self::Caches),
            _ => None,
        }
    }

    /// Returns the feature with which an operation of workload `boot` is observed.
    pub fn of_start(op: Op) -> Option<Self> {
        match op {
            Op::BootCreated => Some(Self::VmCreated),
            Op::BootEntry => Some(Self::FirstInstruction),
            Op::BootMain | Op::BootSample => Some(Self::GuestMain),
            Op::BootExit => Some(Self::Exit),
            _ => None,
        }
    }

    /// Returns the environments that measure operations with it, for a remedy.
    pub(crate) fn instead(self) -> &'static str {
        self.row().instead
    }

    /// Returns why `what`, which sets it, is not supported by an environment, with the remedy. `None` if it is.
    pub fn unsupported_reason(self, what: &str, environment: EnvironmentId) -> Option<String> {
        let why = environment.why_not(self)?;
        let supporting = EnvironmentId::names_of(|id| id.has(self));
        Some(refusal(what, environment, why, &supporting))
    }
}

/// Returns the sentence that an environment does not support options of a command for a reason, with those that do.
pub(crate) fn refusal(
    what: &str,
    environment: EnvironmentId,
    why: &str,
    supporting: &str,
) -> String {
    format!(
        "{what} is not supported by {environment}, as {why}: leave it out, or choose from {supporting} with --env"
    )
}

impl EnvironmentId {
    /// Returns whether it has a feature.
    pub fn has(self, feature: Feature) -> bool {
        matches!(feature.answer(self), Yes)
    }

    /// Returns why it does not have a feature: a clause, without a full stop. `None` if it has it.
    pub fn why_not(self, feature: Feature) -> Option<&'static str> {
        match feature.answer(self) {
            Yes => None,
            Unconcerned(reason) | No(reason) => Some(reason),
        }
    }

    /// Returns whether it is measured without a feature that is set for all environments.
    pub(crate) fn is_unconcerned(self, feature: Feature) -> bool {
        matches!(feature.answer(self), Unconcerned(_))
    }
}
