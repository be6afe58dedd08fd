//! What the guest's CPUID shows: all that the kernel supports, and this vCPU's own
//! number in place of the number of the host CPU that was asked.

mod topology;

use kvm_bindings::{kvm_cpuid_entry2, CpuId};
use kvm_ioctls::VcpuFd;
use trapline_interface::{Controllers, Error, Result, VcpuId, VmSpec};

/// Enough for every kernel so far; they refuse to fill a shorter list.
const ENTRIES: usize = 256;

// Leaf 1, ECX.
const TSC_DEADLINE_TIMER: u32 = 1 << 24;
const HYPERVISOR: u32 = 1 << 31;

/// The leaf that tells what KVM itself offers a guest.
const KVM_FEATURES: u32 = 0x4000_0001;
// Its EAX.
const PV_EOI: u32 = 1 << 6;

/// What the first vCPU of such a machine shall show.
pub(crate) fn of_first_vcpu(system: &kvm_ioctls::Kvm, spec: &VmSpec) -> Result<CpuId> {
    let mut cpuid = system
        .get_supported_cpuid(ENTRIES)
        .map_err(Error::refused("ask which CPU features are supported"))?;
    for entry in cpuid.as_mut_slice() {
        fit(entry, spec);
        adapt(entry, VcpuId(0));
    }
    Ok(cpuid)
}

/// Makes what the kernel supports what this machine has.
fn fit(entry: &mut kvm_cpuid_entry2, spec: &VmSpec) {
    if entry.function == 1 && spec.controllers != Controllers::None {
        // The kernel leaves it to us to say so.
        entry.ecx |= TSC_DEADLINE_TIMER;
    }
    if entry.function == 1 && spec.controllers == Controllers::Full {
        // An operating system looks for what the kernel offers only then.
        entry.ecx |= HYPERVISOR;
    }
    if entry.function == KVM_FEATURES && !spec.paravirtual_eoi {
        entry.eax &= !PV_EOI;
    }
    if spec.cpus > 1 {
        topology::show(entry, spec.cpus);
    }
}

/// Gives vCPU `id` what the first one shows, but for its number.
pub(crate) fn give(vcpu: &VcpuFd, id: VcpuId, first: &CpuId) -> Result<()> {
    let set = |cpuid: &CpuId| {
        vcpu.set_cpuid2(cpuid)
            .map_err(Error::refused("set the virtual CPU's features"))
    };
    if id == VcpuId(0) {
        return set(first);
    }
    let mut own = first.clone();
    own.as_mut_slice()
        .iter_mut()
        .for_each(|entry| adapt(entry, id));
    set(&own)
}

fn adapt(entry: &mut kvm_cpuid_entry2, id: VcpuId) {
    match entry.function {
        1 => entry.ebx = entry.ebx & 0x00ff_ffff | id.0 << 24,
        // No performance counters, see `vm`.
        0xa => (entry.eax, entry.ebx, entry.ecx, entry.edx) = (0, 0, 0, 0),
        0xb | 0x1f => entry.edx = id.0,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vcpu_shows_its_own_number() {
        let mut entry = kvm_cpuid_entry2 {
            function: 1,
            ebx: 0x2304_0506,
            ..Default::default()
        };
        adapt(&mut entry, VcpuId(1));
        assert_eq!(entry.ebx, 0x0104_0506);
    }

    #[test]
    fn the_paravirtual_end_of_interrupts_is_not_offered_where_it_is_not_wanted() {
        let shown = |function, paravirtual_eoi| {
            let mut entry = kvm_cpuid_entry2 {
                function,
                eax: 0xff,
                ..Default::default()
            };
            let spec = VmSpec {
                paravirtual_eoi,
                ..VmSpec::with(Controllers::Full)
            };
            fit(&mut entry, &spec);
            entry.eax
        };
        assert_eq!(shown(KVM_FEATURES, true), 0xff);
        assert_eq!(shown(KVM_FEATURES, false), 0xbf);
        assert_eq!(shown(0x4000_0000, false), 0xff);
    }
}
