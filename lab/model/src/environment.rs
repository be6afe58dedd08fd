//! The environments: one table, a row each, to which defined VMMs add rows ([`crate::vmms`]). Everything
//! else about an environment follows from its layers ([`crate::capabilities`]).

use crate::forwarders;
use crate::layers::{Guest, Level, Machine, Stack};
use crate::vmms::{self, Definition, InvalidName, Row};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// An environment: a stack of layers with a name and a place in tables, which lives as long as the process.
#[derive(Clone, Copy)]
pub struct EnvironmentId(&'static Row);

macro_rules! environments {
    ($($id:ident $name:literal $machine:ident $levels:tt $guest:ident $description:literal;)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Position { $($id,)* }

        impl EnvironmentId {
            $(
                #[doc = $description]
                pub const $id: Self = Self(&Row {
                    position: Position::$id as usize,
                    name: $name,
                    stack: Stack {
                        machine: Machine::$machine,
                        levels: &environments!(@levels $levels),
                        guest: Guest::$guest,
                    },
                    description: $description,
                });
            )*

            /// The environments of the table, in the order in which tables show them.
            pub const BUILT_IN: [Self; [$($name),*].len()] = [$(Self::$id),*];
        }
    };
    (@levels [$($level:ident)*]) => { [$(Level::$level),*] };
}

environments! {
    HOST "host" Host [] Linux
        "the agent as a process of this host: the bare row";
    KVM "kvm" Host [KVM] Image
        "the image in trapline-vmm on /dev/kvm";
    PROCESS "process" Host [PROCESS] Image
        "the image in trapline-vmm as a sandboxed process, without a hypervisor";
    QEMU_KVM "qemu-kvm" Host [QEMU_KVM] Image
        "the image in QEMU microvm on /dev/kvm";
    QEMU_TCG "qemu-tcg" Host [QEMU_TCG] Image
        "the image in QEMU microvm, translated";
    CUSTOM "custom" Host [CUSTOM] Image
        "the image in a VMM of your choice, see --vmm";
    KVM_LINUX "kvm/linux" Host [KVM] Linux
        "the agent in a Linux in trapline-vmm on /dev/kvm";
    QEMU_KVM_LINUX "qemu-kvm/linux" Host [QEMU_KVM] Linux
        "the agent in a Linux in QEMU microvm on /dev/kvm";
    QEMU_TCG_LINUX "qemu-tcg/linux" Host [QEMU_TCG] Linux
        "the agent in a Linux in QEMU microvm, translated";
    UML "uml" Host [UML] Linux
        "the agent in user-mode Linux, a kernel that is a process of this host";
    SIM "sim" Sim [] Image
        "the image on the bare simulated machine: the bare row";
    SIM_LINUX "sim/linux" Sim [] Linux
        "the agent in Linux on the simulated machine";
    SIM_KVM "sim/kvm" Sim [KVM] Image
        "the image in trapline-vmm on KVM on the simulated machine";
    SIM_KVM_USER_APIC "sim/kvm-user-apic" Sim [KVM_USER_APIC] Image
        "sim/kvm with the local APIC in trapline-vmm, as NOVA needs it, in place of KVM's";
    SIM_PROCESS "sim/process" Sim [PROCESS] Image
        "the image in trapline-vmm as a sandboxed process on the simulated machine";
    SIM_QEMU_KVM "sim/qemu-kvm" Sim [QEMU_KVM] Image
        "the image in QEMU on KVM on the simulated machine";
    SIM_QEMU_KVM_PC "sim/qemu-kvm-pc" Sim [QEMU_KVM_PC] Image
        "the image in QEMU with machine type pc on KVM on the simulated machine";
    SIM_KVM_LINUX "sim/kvm/linux" Sim [KVM] Linux
        "the agent in a Linux in trapline-vmm on KVM on the simulated machine";
    SIM_QEMU_KVM_LINUX "sim/qemu-kvm/linux" Sim [QEMU_KVM] Linux
        "the agent in a Linux in QEMU on KVM on the simulated machine";
    SIM_KVM_KVM "sim/kvm/kvm" Sim [KVM KVM] Image
        "sim/kvm in a Linux guest of trapline-vmm on that machine: nested virtualization";
    SIM_KVM_KVM_KVM "sim/kvm/kvm/kvm" Sim [KVM KVM KVM] Image
        "sim/kvm/kvm in another such guest: virtualization nested twice";
    SIM_NOVA "sim/nova" Sim [NOVA] Image
        "the image in the VMM as the root task of the NOVA microhypervisor there";
    SIM_NOVA_LINUX "sim/nova/linux" Sim [NOVA] Linux
        "the agent in a Linux in that VMM on NOVA there";
    SIM_XEN_PVH "sim/xen-pvh" Sim [XEN_PVH] Image
        "the image as a PVH domain of Xen on the simulated machine";
    SIM_XEN_HVM "sim/xen-hvm" Sim [XEN_HVM] Image
        "the image as a fully virtualized domain of Xen there, devices by QEMU";
    SIM_XEN_TRAPLINE "sim/xen/trapline" Sim [XEN_TRAPLINE] Image
        "the image as a PVH domain of Xen there, devices by trapline-vmm in the first domain";
    SIM_XEN_DOM0 "sim/xen-dom0" Sim [XEN_DOM0] Image
        "the image as the first domain of Xen there, alone with it";
    SIM_KVM_XEN_PVH "sim/kvm/xen-pvh" Sim [QEMU_KVM_Q35 XEN_PVH] Image
        "sim/xen-pvh in a guest of QEMU on KVM on that machine: nested virtualization";
    SIM_KVM_XEN_HVM "sim/kvm/xen-hvm" Sim [QEMU_KVM_Q35 XEN_HVM] Image
        "sim/xen-hvm in such a guest";
    SIM_CUSTOM "sim/custom" Sim [CUSTOM] Image
        "the image in a VMM of your choice on KVM on the simulated machine";
    SIM_VMX "sim-vmx" SimVmx [] Image
        "the image on a bare simulated machine with Intel's virtualization: the bare row";
    SIM_VMX_LINUX "sim-vmx/linux" SimVmx [] Linux
        "the agent in Linux on that machine";
    SIM_VMX_KVM "sim-vmx/kvm" SimVmx [KVM] Image
        "the image in trapline-vmm on KVM on that machine";
    SIM_VMX_QEMU_KVM "sim-vmx/qemu-kvm" SimVmx [QEMU_KVM] Image
        "the image in QEMU on KVM on that machine";
    SIM_VMX_NOVA "sim-vmx/nova" SimVmx [NOVA] Image
        "the image in the VMM as the root task of the NOVA microhypervisor there";
    SIM_VMX_XEN_PVH "sim-vmx/xen-pvh" SimVmx [XEN_PVH] Image
        "the image as a PVH domain of Xen on that machine";
    SIM_VMX_XEN_TRAPLINE "sim-vmx/xen/trapline" SimVmx [XEN_TRAPLINE] Image
        "the image as a PVH domain of Xen there, devices by trapline-vmm in the first domain";
    SIM_ARM64_LINUX "sim-arm64/linux" SimArm64 [] Linux
        "the agent in Linux on a simulated machine with a processor of Arm: the bare row";
}

impl EnvironmentId {
    /// Returns every environment that has a guest, in the order in which tables show them.
    pub fn all() -> impl Iterator<Item = Self> + Clone {
        let defined = vmms::environments().into_iter().map(Self);
        Self::BUILT_IN.into_iter().chain(defined)
    }

    /// Returns the environment called `name`, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|id| id.name() == name)
    }

    /// Defines a VMM, whose environments are `NAME` and `sim/NAME`. A later definition replaces an earlier one.
    ///
    /// # Errors
    /// The name is invalid, that of an environment or of a part of one, or there are too many VMMs.
    pub fn define_vmm(name: &str, definition: Option<&Definition>) -> Result<(), InvalidName> {
        let names = Self::BUILT_IN.map(Self::name).into_iter();
        let mut parts = names.flat_map(|name| name.split('/'));
        if parts.any(|part| part == name) {
            Err(InvalidName::Taken(name.to_owned()))
        } else {
            vmms::add(name, definition, Self::BUILT_IN.len())
        }
    }

    /// Returns the environment of the forwarder of the table with this name, if there is one ([`forwarders::NAMES`]).
    pub fn known_forwarder(name: &str) -> Option<Self> {
        forwarders::known(name).map(Self)
    }

    /// Defines a forwarder of the user's with a command. A later definition replaces an earlier one. `None` if the name is
    /// invalid or that of a forwarder of the table, and if there are too many.
    pub fn define_forwarder(name: &str, command: &str) -> Option<Self> {
        forwarders::define(name, command).map(Self)
    }

    /// Returns the environment of the forwarder that is called `net/NAME` in a store or file; `None` for another name.
    pub fn recorded_forwarder(name: &str) -> Option<Self> {
        forwarders::recorded(name).map(Self)
    }

    /// Returns the name of the forwarder, if the environment is one.
    pub fn forwarder(self) -> Option<&'static str> {
        forwarders::name_of(self.0)
    }

    /// Returns the user's command of a forwarder, if it has one.
    pub fn forwarder_command(self) -> Option<String> {
        forwarders::command(self.forwarder()?)
    }

    /// Returns the environment called `name` in a store or file, also if its VMM or forwarder is not defined here;
    /// `None` if no environment can have this name.
    pub fn from_recorded(name: &str) -> Option<Self> {
        let known = Self::from_name(name).or_else(|| Self::recorded_forwarder(name));
        known.or_else(|| {
            Self::define_vmm(vmms::vmm_of(name), None).ok()?;
            Self::from_name(name)
        })
    }

    /// Returns the environment of these layers, if the table has one.
    pub fn from_stack(stack: Stack) -> Option<Self> {
        Self::all().find(|id| id.stack() == stack)
    }

    /// The name in commands, tables and files.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The layers.
    pub fn stack(self) -> Stack {
        self.0.stack
    }

    /// A description for lists, lower case and without a full stop.
    pub fn description(self) -> &'static str {
        self.0.description
    }

    /// Returns the names of the environments that satisfy a predicate, separated by commas.
    pub fn names_of(predicate: impl Fn(Self) -> bool) -> String {
        let all = Self::all().filter(|id| predicate(*id));
        all.map(Self::name).collect::<Vec<_>>().join(", ")
    }
}

impl PartialEq for EnvironmentId {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for EnvironmentId {}

impl Hash for EnvironmentId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0.position, self.0.name).hash(state);
    }
}

impl Ord for EnvironmentId {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |row: &'static Row| (row.position, row.name);
        key(self.0).cmp(&key(other.0))
    }
}

impl PartialOrd for EnvironmentId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for EnvironmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for EnvironmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_from_layers() {
        for id in EnvironmentId::BUILT_IN {
            assert_eq!(id.name(), id.stack().name());
            assert_eq!(EnvironmentId::from_name(id.name()), Some(id));
            assert_eq!(EnvironmentId::from_stack(id.stack()), Some(id));
        }
        assert_eq!(EnvironmentId::from_name("nova"), None);
    }

    #[test]
    fn forwarders_are_environments_behind_all_others() {
        let switch = EnvironmentId::known_forwarder("switch").unwrap();
        assert_eq!(
            (switch.name(), switch.forwarder()),
            ("net/switch", Some("switch"))
        );
        assert_eq!(EnvironmentId::from_recorded("net/switch"), Some(switch));
        assert_eq!(EnvironmentId::from_name("net/switch"), None);
        assert!(EnvironmentId::all().all(|id| id.forwarder().is_none() && id < switch));
        assert_eq!(EnvironmentId::known_forwarder("mine-of-tests"), None);
        for name in ["switch", "a b", ""] {
            assert_eq!(EnvironmentId::define_forwarder(name, "x"), None);
        }
        let command = "./mine {a} {b}";
        let mine = EnvironmentId::define_forwarder("mine-of-tests", command).unwrap();
        assert!(switch < mine);
        let other = EnvironmentId::define_forwarder("little-of-tests", command).unwrap();
        assert!(
            switch < other && other < mine,
            "in the order of their names"
        );
        assert_eq!(
            EnvironmentId::from_recorded("net/mine-of-tests"),
            Some(mine)
        );
        assert_eq!(mine.forwarder_command().as_deref(), Some(command));
        assert_eq!(switch.forwarder_command(), None);
        assert_eq!(EnvironmentId::from_recorded("net/a b"), None);
    }
}
