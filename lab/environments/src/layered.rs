//! Environments as stacks of layers: availability and facts follow from their needs, guests from the launcher
//! of their machine.

use crate::bochs::{self, Bochs, Platform};
use crate::environment::{Environment, Guest};
use crate::kvm::{self, Hardware};
use crate::linux_guest;
use crate::needs::{self, Need};
use crate::sim::{self, nova};
use crate::tracing;
use crate::wall;
use trapline_host::custom_vmm::CustomVmm;
use trapline_host::{facts, sha256_of_file, toolchain, Error, Facts, GuestImage, Part};
use trapline_model::layers::Machine;
use trapline_model::{EnvironmentId, GuestConfig, Unavailable};
use trapline_sim::base::Layout;
use trapline_sim::capabilities::{check_counting, check_nesting};
use trapline_sim::kernel::{self, Maker};
use trapline_sim::machine;
use trapline_sim::platform::{AMD, ARM};
use trapline_sim::qemu::{self, Qemu};
use trapline_sim::settings::Settings;
use trapline_sim::vmm_files::VmmFiles;

/// An environment whose requirements, facts and guests follow from its layers.
pub struct Layered {
    /// Its name.
    pub id: EnvironmentId,
    /// Files and programs to use.
    pub settings: Settings,
}

impl Environment for Layered {
    fn id(&self) -> EnvironmentId {
        self.id
    }

    fn check(&self, guest: &GuestConfig) -> Result<(), Unavailable> {
        let mut needs = self.needs().into_iter();
        needs.try_for_each(|need| self.check_need(need))?;
        Ok(check_memory(self.memory_mib(guest))?)
    }

    fn facts(&self) -> Facts {
        let mut facts = facts::host_facts();
        for need in self.needs() {
            self.add_facts(need, &mut facts);
        }
        facts
    }

    fn launch(&self, image: &GuestImage, guest: &GuestConfig) -> Result<Box<dyn Guest>, Error> {
        let stack = self.id.stack();
        match stack.machine {
            Machine::Host => wall::launch(&stack, &self.settings, image, guest),
            Machine::Sim | Machine::SimArm64 => sim::launch(&stack, &self.settings, image, guest),
            Machine::SimVmx => bochs::launch(&stack, &self.settings, image, guest),
        }
    }
}

impl Layered {
    fn needs(&self) -> Vec<Need> {
        needs::of(&self.id.stack())
    }

    fn check_need(&self, need: Need) -> Result<(), Error> {
        match need {
            Need::Part(part) => self.settings.parts.get(part).map(drop),
            Need::Qemu(machine) => self.qemu()?.firmware(machine).map(drop),
            Need::CustomVmm => self.vmm()?.program().map(drop),
            Need::Kvm => kvm::check(),
            Need::Ring0 => kvm::check_ring0(),
            Need::GuestLinux => kernel::check(&self.settings, Maker::Amd),
            Need::Uml => linux_guest::check_uml(&self.settings.cache),
            Need::Tracing => tracing::check(),
            Need::Counting => check_counting(&self.steady_qemu()?),
            Need::Linux => {
                check_nesting(&self.steady_qemu()?)?;
                kernel::check(&self.settings, Maker::Amd)
            }
            Need::Nesting => check_nesting(&self.steady_qemu()?),
            Need::Nova => self.settings.nova().map(drop),
            Need::Xen | Need::XenAlone => {
                check_nesting(&self.steady_qemu()?)?;
                sim::check_xen(&self.settings)
            }
            Need::NestedXen => sim::check_xen(&self.settings),
            Need::XenDeviceModel => sim::check_xen_device_model(&self.settings),
            Need::Bochs => Bochs::find().map(drop),
            Need::IntelLinux => kernel::check(&self.settings, Maker::Intel),
            Need::IntelXen => sim::check_xen(&self.settings),
            Need::ArmLinux => {
                self.settings.parts.get(Part::Steady)?;
                self.settings.qemu_of(&ARM)?;
                kernel::check(&self.settings, Maker::Arm)
            }
        }
    }

    fn add_facts(&self, need: Need, facts: &mut Facts) {
        let mut add = |name: &str, value: String| facts.insert(name.to_owned(), value);
        match need {
            Need::Part(part) => self.add_part(part, facts),
            Need::Qemu(machine) => {
                if let Ok(qemu) = self.qemu() {
                    facts.extend(qemu.facts(machine));
                }
            }
            Need::CustomVmm => self.add_vmm(facts),
            Need::NestedXen
            | Need::XenDeviceModel
            | Need::Ring0
            | Need::GuestLinux
            | Need::Tracing => {}
            Need::Uml => facts.extend(linux_guest::uml_facts(&self.settings.cache)),
            Need::Kvm => {
                add("hardware", Hardware::of_host().describe().to_owned());
            }
            Need::Counting => {
                add("machine", qemu::COUNTING.to_owned());
            }
            Need::Bochs => {
                if let Ok(bochs) = Bochs::find() {
                    let platform = if self.id.is_nova() {
                        Platform::NOVA
                    } else {
                        Platform::COMMON
                    };
                    facts.extend(bochs::facts(&bochs, platform));
                }
            }
            Need::Linux => facts.extend(machine::facts(&AMD)),
            Need::Xen => facts.extend(sim::xen_facts()),
            Need::Nesting => facts.extend(nova::machine_facts()),
            Need::Nova => facts.extend(nova::facts(&self.settings)),
            Need::XenAlone => facts.extend(sim::xen_dom0_facts(&self.settings)),
            Need::IntelLinux => facts.extend(bochs::linux_facts()),
            Need::ArmLinux => {
                facts.extend(machine::facts(&ARM));
                if let Ok(qemu) = self.settings.qemu_of(&ARM) {
                    facts.extend(qemu.program_facts());
                }
            }
            Need::IntelXen => facts.extend(sim::xen_facts_on(Maker::Intel)),
        }
    }

    fn add_part(&self, part: Part, facts: &mut Facts) {
        let Ok(path) = self.settings.parts.get(part) else {
            return;
        };
        if let Ok(hash) = sha256_of_file(&path) {
            let name = part.file_name().trim_start_matches("trapline-");
            facts.insert(format!("{name}-sha256"), hash);
        }
        if let Some(compilers) = toolchain::compilers_of(&path) {
            let known = facts.get(TOOLCHAIN).map(String::as_str);
            let merged = toolchain::merge_compilers(known, &compilers);
            facts.insert(TOOLCHAIN.to_owned(), merged);
        }
    }

    fn add_vmm(&self, facts: &mut Facts) {
        let Ok(vmm) = self.vmm() else { return };
        facts.insert("custom-vmm-command".to_owned(), vmm.text().to_owned());
        if let Ok(files) = VmmFiles::of(&vmm) {
            facts.extend(files.facts());
        }
    }

    /// Returns the custom VMM.
    fn vmm(&self) -> Result<CustomVmm, Error> {
        let name = self.id.custom_vmm().unwrap_or_default();
        self.settings.custom_vmm(name, self.id.stack().guest)
    }

    fn qemu(&self) -> Result<Qemu, Error> {
        self.settings.qemu()
    }

    /// Returns QEMU if the preload library for an exact clock exists.
    fn steady_qemu(&self) -> Result<Qemu, Error> {
        self.settings.parts.get(Part::Steady)?;
        self.qemu()
    }

    /// Returns the host memory of a guest with its machine and VMM, in MiB.
    fn memory_mib(&self, guest: &GuestConfig) -> u64 {
        let around = self.needs().into_iter().map(|need| match need {
            Need::Linux | Need::IntelLinux | Need::ArmLinux | Need::Xen | Need::IntelXen => {
                machine::OWN_MEMORY_MIB
            }
            Need::NestedXen => 2 * machine::OWN_MEMORY_MIB,
            Need::XenAlone => sim::XEN_MEMORY_MIB,
            Need::Nova => nova::OWN_MEMORY_MIB,
            _ => 0,
        });
        let machine = around.max().unwrap_or(0) + Layout::new(guest.layout).memory_mib;
        u64::from(guest.touched_mib() + machine) + VMM_MEMORY_MIB
    }
}

/// Fact: the compilers of the parts.
const TOOLCHAIN: &str = "toolchain";

/// Upper limit of a VMM's own memory.
const VMM_MEMORY_MIB: u64 = 128;

fn check_memory(needed: u64) -> Result<(), Error> {
    match facts::available_mib() {
        Some(available) if available < needed => Err(Error::missing(
            format!("{needed} MiB of memory are needed, {available} MiB are available"),
            "end a large program, or set a smaller guest",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insufficient_memory_is_rejected() {
        assert!(check_memory(1).is_ok());
        let error = check_memory(u64::MAX).unwrap_err().to_string();
        assert!(error.contains("MiB are available"), "{error}");
    }
}
