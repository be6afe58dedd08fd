//! Environments made of layers: availability and facts follow from the needs, guests from a
//! launcher for each machine.

use crate::bochs::{self, Bochs};
use crate::environment::{Availability, Environment, Guest, Requirements};
use crate::kvm::{self, Hardware};
use crate::linux_guest;
use crate::needs::{self, Need};
use crate::replay;
use crate::sim;
use crate::wall;
use std::path::PathBuf;
use trapline_host::{custom_vmm, facts, sha256_of_file, toolchain, Error, Facts, GuestImage, Part};
use trapline_model::layers::Machine;
use trapline_model::{EnvironmentId, GuestConfig};
use trapline_sim::capabilities::{check_counting, check_nesting};
use trapline_sim::kernel::Maker;
use trapline_sim::machine;
use trapline_sim::qemu::{self, Qemu};
use trapline_sim::settings::Settings;

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

    fn supports(&self, need: &Requirements) -> Availability {
        if let Some(recordings) = self.settings.recordings() {
            return replay::supports(&recordings, self.id);
        }
        let mut needs = self.needs().into_iter();
        let met = needs.try_for_each(|need| self.check(need));
        match met.and_then(|()| check_memory(self.memory_mib(&need.guest))) {
            Ok(()) => Availability::Ready,
            Err(error) => Availability::Missing(error.to_string()),
        }
    }

    fn facts(&self) -> Facts {
        let mut facts = facts::host_facts();
        for need in self.needs() {
            self.note(need, &mut facts);
        }
        if let Some(recordings) = self.settings.recordings() {
            let recordings = recordings.display().to_string();
            facts.insert("replayed-from".to_owned(), recordings);
        }
        facts
    }

    fn launch(&self, image: &GuestImage, machine: &GuestConfig) -> Result<Box<dyn Guest>, Error> {
        if let Some(recordings) = self.settings.recordings() {
            return replay::launch(&recordings, self.id, &self.settings, image, machine);
        }
        let stack = self.id.stack();
        match stack.machine {
            Machine::Host => wall::launch(&stack, &self.settings, image, machine),
            Machine::Sim => sim::launch(&stack, &self.settings, image, machine),
            Machine::SimVmx => bochs::launch(&stack, &self.settings, image, machine),
        }
    }
}

impl Layered {
    fn needs(&self) -> Vec<Need> {
        needs::of(&self.id.stack())
    }

    fn check(&self, need: Need) -> Result<(), Error> {
        match need {
            Need::Part(part) => self.settings.parts.get(part).map(drop),
            Need::Qemu(machine) => self.qemu()?.firmware(machine).map(drop),
            Need::CustomVmm => self.vmm().map(drop),
            Need::PackableVmm => custom_vmm::check_packable(&self.vmm()?),
            Need::Kvm => kvm::check(),
            Need::Ring0 => kvm::check_ring0(),
            Need::GuestLinux => sim::check_kernel(&self.settings, Maker::Amd),
            Need::Uml => linux_guest::check_uml(&self.settings.cache),
            Need::Counting => check_counting(&self.steady_qemu()?),
            Need::Linux => {
                check_nesting(&self.steady_qemu()?)?;
                sim::check_kernel(&self.settings, Maker::Amd)
            }
            Need::Xen | Need::XenAlone => {
                check_nesting(&self.steady_qemu()?)?;
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
            Need::Qemu(_) => {
                if let Ok(qemu) = self.qemu() {
                    note("qemu", qemu.version);
                }
            }
            Need::CustomVmm => self.note_vmm(facts),
            Need::PackableVmm | Need::XenDeviceModel | Need::Ring0 | Need::GuestLinux => {}
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
            Need::Linux => facts.extend(machine::facts()),
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
        if let Some(told) = toolchain::compilers_of(&path) {
            let known = facts.get(TOOLCHAIN).map(String::as_str);
            let told = toolchain::merge_compilers(known, &told);
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
    fn vmm(&self) -> Result<PathBuf, Error> {
        let vmm = self.settings.vmm.as_ref();
        vmm.ok_or_else(custom_vmm::none_given)?.program()
    }

    fn qemu(&self) -> Result<Qemu, Error> {
        Qemu::find(self.settings.qemu.as_deref())
    }

    /// QEMU, and what its clock needs to be exact.
    fn steady_qemu(&self) -> Result<Qemu, Error> {
        self.settings.parts.get(Part::Steady)?;
        self.qemu()
    }

    /// Memory that a guest's machine takes of the host, with whoever runs it.
    fn memory_mib(&self, machine: &GuestConfig) -> u64 {
        let around = self.needs().into_iter().map(|need| match need {
            Need::Linux | Need::IntelLinux | Need::Xen | Need::IntelXen => machine::OWN_MEMORY_MIB,
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

fn check_memory(needed: u64) -> Result<(), Error> {
    match facts::available_mib() {
        Some(available) if available < needed => Err(Error::unavailable(format!(
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
    fn insufficient_memory_is_rejected() {
        assert!(check_memory(1).is_ok());
        let error = check_memory(u64::MAX).unwrap_err().to_string();
        assert!(error.contains("MiB are available"), "{error}");
    }
}
