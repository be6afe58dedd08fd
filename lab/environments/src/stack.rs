//! An environment as a list of what it needs and a way to make its guests. Whether
//! it is ready and what it is made of follow from the needs alone.

use crate::bochs::{self, Bochs};
use crate::custom;
use crate::environment::{Availability, Environment, Facts, Guest, Requirements};
use crate::error::EnvError;
use crate::facts;
use crate::kvm::{self, Hardware};
use crate::linux_guest;
use crate::parts::{sha256_of_file, GuestImage, Part};
use crate::qemu::{self, Qemu};
use crate::settings::Settings;
use crate::sim::{self, kernel::Maker};
use crate::toolchain;
use std::path::PathBuf;
use trapline_model::{EnvironmentId, MachineSpec};

/// Something that an environment needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A part of Trapline.
    Part(Part),
    /// QEMU, with the firmware of its microvm.
    Qemu,
    /// A VMM that the user gave.
    Vmm,
    /// One that can be put on another machine.
    Packable,
    /// A /dev/kvm that may be used.
    Kvm,
    /// QEMU as the machine that counts instructions.
    Counting,
    /// That machine with a CPU that KVM loads on, and a Linux kernel for it.
    Linux,
    /// Xen for that machine, with a kernel for its first domain.
    Xen,
    /// Xen for that machine, with nothing beside it.
    XenAlone,
    /// What models devices for domains of that Xen.
    XenDeviceModel,
    /// A /dev/kvm that runs a guest's kernel at full speed.
    Ring0,
    /// A Linux kernel for guests of this host.
    GuestLinux,
    /// User-mode Linux.
    Uml,
    /// Bochs as the machine that counts instructions.
    Bochs,
    /// A Linux kernel for that machine.
    IntelLinux,
    /// Xen for that machine, with a kernel for its first domain.
    IntelXen,
}

/// Makes a guest of the environment that asks, once all needs are met.
pub type Make =
    fn(EnvironmentId, &Settings, &GuestImage, &MachineSpec) -> Result<Box<dyn Guest>, EnvError>;

/// An environment.
pub struct Stack {
    /// Its name.
    pub id: EnvironmentId,
    /// Where everything is.
    pub settings: Settings,
    /// What it needs, in the order in which it is looked for.
    pub needs: &'static [Need],
    /// How its guests are made.
    pub make: Make,
}

impl Environment for Stack {
    fn id(&self) -> EnvironmentId {
        self.id
    }

    fn supports(&self, need: &Requirements) -> Availability {
        if let Some(reason) = need.machine.scheduling.misfit(self.id) {
            return Availability::Missing(reason);
        }
        let met = self.needs.iter().try_for_each(|need| self.check(*need));
        match met.and_then(|()| check_memory(self.memory_mib(&need.machine))) {
            Ok(()) => Availability::Ready,
            Err(error) => Availability::Missing(error.to_string()),
        }
    }

    fn facts(&self) -> Facts {
        let mut facts = facts::of_host();
        for need in self.needs {
            self.note(*need, &mut facts);
        }
        facts
    }

    fn launch(
        &self,
        image: &GuestImage,
        machine: &MachineSpec,
    ) -> Result<Box<dyn Guest>, EnvError> {
        (self.make)(self.id, &self.settings, image, machine)
    }
}

impl Stack {
    fn check(&self, need: Need) -> Result<(), EnvError> {
        match need {
            Need::Part(part) => self.settings.parts.get(part).map(drop),
            Need::Qemu => self.qemu()?.firmware().map(drop),
            Need::Vmm => self.vmm().map(drop),
            Need::Packable => custom::check_packable(&self.vmm()?),
            Need::Kvm => kvm::check(),
            Need::Ring0 => kvm::check_ring0(),
            Need::GuestLinux => sim::check_kernel(&self.settings, Maker::Amd),
            Need::Uml => linux_guest::check_uml(&self.settings.cache),
            Need::Counting => sim::check_counting(&self.steady_qemu()?),
            Need::Linux => {
                sim::check_nesting(&self.steady_qemu()?)?;
                sim::check_kernel(&self.settings, Maker::Amd)
            }
            Need::Xen | Need::XenAlone => {
                sim::check_nesting(&self.steady_qemu()?)?;
                sim::check_xen(&self.settings)
            }
            Need::XenDeviceModel => sim::check_xen_device_model(&self.settings),
            Need::Bochs => Bochs::find().map(drop),
            Need::IntelLinux => sim::check_kernel(&self.settings, Maker::Intel),
            Need::IntelXen => sim::check_xen(&self.settings),
        }
    }

    fn note(&self, need: Need, facts: &mut Facts) {
        let mut note = |name: &str, value: String| facts.insert(name.to_owned(), value);
        match need {
            Need::Part(part) => self.note_part(part, facts),
            Need::Qemu => {
                if let Ok(qemu) = self.qemu() {
                    note("qemu", qemu.version);
                }
            }
            Need::Vmm => self.note_vmm(facts),
            Need::Packable | Need::XenDeviceModel | Need::Ring0 | Need::GuestLinux => {}
            Need::Uml => facts.extend(linux_guest::uml_facts(&self.settings.cache)),
            Need::Kvm => {
                note("hardware", Hardware::of_this_host().describe().to_owned());
            }
            Need::Counting => {
                note("machine", qemu::COUNTING.to_owned());
            }
            Need::Bochs => {
                if let Ok(bochs) = Bochs::find() {
                    facts.extend(bochs::facts(&bochs));
                }
            }
            Need::Linux => facts.extend(sim::linux_facts()),
            Need::Xen => facts.extend(sim::xen_facts()),
            Need::XenAlone => facts.extend(sim::xen_dom0_facts(&self.settings)),
            Need::IntelLinux => facts.extend(bochs::linux_facts()),
            Need::IntelXen => facts.extend(sim::xen_facts_on(Maker::Intel)),
        }
    }

    fn note_part(&self, part: Part, facts: &mut Facts) {
        let Ok(path) = self.settings.parts.get(part) else {
            return;
        };
        if let Ok(hash) = sha256_of_file(&path) {
            let name = part.file_name().trim_start_matches("trapline-");
            facts.insert(format!("{name}-sha256"), hash);
        }
        if let Some(told) = toolchain::of_part(&path) {
            let known = facts.get(TOOLCHAIN).map(String::as_str);
            let told = toolchain::together(known, &told);
            facts.insert(TOOLCHAIN.to_owned(), told);
        }
    }

    fn note_vmm(&self, facts: &mut Facts) {
        let Some(vmm) = &self.settings.vmm else {
            return;
        };
        facts.insert("custom-vmm-command".to_owned(), vmm.text().to_owned());
        if let Ok(hash) = vmm.program().and_then(|program| sha256_of_file(&program)) {
            facts.insert("custom-vmm-sha256".to_owned(), hash);
        }
    }

    /// The program of the VMM that the user gave.
    fn vmm(&self) -> Result<PathBuf, EnvError> {
        let none = || EnvError::Missing(custom::NONE_GIVEN.to_owned());
        self.settings.vmm.as_ref().ok_or_else(none)?.program()
    }

    fn qemu(&self) -> Result<Qemu, EnvError> {
        Qemu::find(self.settings.qemu.as_deref())
    }

    /// QEMU, and what its clock needs to be exact.
    fn steady_qemu(&self) -> Result<Qemu, EnvError> {
        self.settings.parts.get(Part::Steady)?;
        self.qemu()
    }

    /// Memory that a guest's machine takes of the host, with whoever runs it.
    fn memory_mib(&self, machine: &MachineSpec) -> u64 {
        let around = self.needs.iter().map(|need| match need {
            Need::Linux | Need::IntelLinux | Need::Xen | Need::IntelXen => sim::LINUX_MEMORY_MIB,
            Need::XenAlone => sim::XEN_MEMORY_MIB,
            _ => 0,
        });
        u64::from(machine.memory_mib + around.max().unwrap_or(0)) + VMM_MEMORY_MIB
    }
}

/// The fact that says what built the parts.
const TOOLCHAIN: &str = "toolchain";

/// More than any VMM takes for itself.
const VMM_MEMORY_MIB: u64 = 128;

fn check_memory(needed: u64) -> Result<(), EnvError> {
    match facts::available_mib() {
        Some(available) if available < needed => Err(EnvError::Missing(format!(
            "{needed} MiB of memory are needed, {available} MiB are available: \
             end something large, or ask for a smaller guest"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_nobody_has_is_asked_for_in_vain() {
        assert!(check_memory(1).is_ok());
        let error = check_memory(u64::MAX).unwrap_err().to_string();
        assert!(error.contains("MiB are available"), "{error}");
    }
}
