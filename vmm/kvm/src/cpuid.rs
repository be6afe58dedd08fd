//! CPUID of a guest: the features that KVM supports, with the vCPU's own APIC ID.

mod topology;

use kvm_bindings::{kvm_cpuid_entry2, CpuId};
use kvm_ioctls::VcpuFd;
use trapline_interface::{Controllers, Error, Result, VcpuId, VmSpec};

/// Capacities of the list, tried in this order: KVM clears a list of this length and rejects one that is too short.
const CAPACITIES: [usize; 2] = [80, 256];

// Leaf 1, ECX.
const TSC_DEADLINE_TIMER: u32 = 1 << 24;
const HYPERVISOR: u32 = 1 << 31;

/// KVM's paravirtual features.
const KVM_FEATURES: u32 = 0x4000_0001;
// Its EAX.
const PV_EOI: u32 = 1 << 6;

/// Sizes of addresses: bits of physical ones in EAX (AMD APM volume 3, appendix E).
const ADDRESS_SIZES: u32 = 0x8000_0008;

/// Returns the reason why no memory can end at `end`. Every processor has the first 4 GiB.
pub(crate) fn address_error(cpuid: &CpuId, end: u64) -> Option<&'static str> {
    if end <= 1 << 32 {
        return None;
    }
    let mut entries = cpuid.as_slice().iter();
    let sizes = entries.find(|entry| entry.function == ADDRESS_SIZES)?;
    (end > 1 << (sizes.eax & 0x3f)).then_some("the processor has no such physical addresses")
}

/// Returns the CPUID of vCPU 0.
pub(crate) fn for_first_vcpu(system: &kvm_ioctls::Kvm, spec: &VmSpec) -> Result<CpuId> {
    let [first, second] = CAPACITIES;
    let mut cpuid = system
        .get_supported_cpuid(first)
        .or_else(|_| system.get_supported_cpuid(second))
        .map_err(Error::refused("query the supported CPU features"))?;
    for entry in cpuid.as_mut_slice() {
        apply_spec(entry, spec);
        set_apic_id(entry, VcpuId(0));
    }
    Ok(cpuid)
}

/// Adapts an entry to the VM's configuration.
fn apply_spec(entry: &mut kvm_cpuid_entry2, spec: &VmSpec) {
    if entry.function == 1 && spec.controllers != Controllers::None {
        // KVM leaves this bit to the VMM.
        entry.ecx |= TSC_DEADLINE_TIMER;
    }
    if entry.function == 1 && spec.controllers == Controllers::Full {
        // Linux looks for KVM's paravirtual features only with this bit.
        entry.ecx |= HYPERVISOR;
    }
    if entry.function == KVM_FEATURES && !spec.paravirtual_eoi {
        entry.eax &= !PV_EOI;
    }
    if spec.cpus > 1 {
        topology::apply(entry, spec.cpus);
    }
}

/// Sets the CPUID of vCPU `id`: `first` with its own APIC ID.
pub(crate) fn set(vcpu: &VcpuFd, id: VcpuId, first: &CpuId) -> Result<()> {
    let set_list = |cpuid: &CpuId| {
        vcpu.set_cpuid2(cpuid)
            .map_err(Error::refused("set the virtual CPU's features"))
    };
    if id == VcpuId(0) {
        return set_list(first);
    }
    let mut own = first.clone();
    own.as_mut_slice()
        .iter_mut()
        .for_each(|entry| set_apic_id(entry, id));
    set_list(&own)
}

fn set_apic_id(entry: &mut kvm_cpuid_entry2, id: VcpuId) {
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
    fn vcpu_has_its_own_apic_id() {
        let mut entry = kvm_cpuid_entry2 {
            function: 1,
            ebx: 0x2304_0506,
            ..Default::default()
        };
        set_apic_id(&mut entry, VcpuId(1));
        assert_eq!(entry.ebx, 0x0104_0506);
    }

    #[test]
    fn memory_ends_within_the_physical_addresses() {
        let sizes = kvm_cpuid_entry2 {
            function: ADDRESS_SIZES,
            eax: 0x3028,
            ..Default::default()
        };
        let cpuid = CpuId::from_entries(&[sizes]).unwrap();
        assert_eq!(address_error(&cpuid, 1 << 40), None);
        assert!(address_error(&cpuid, (1 << 40) + 4096).is_some());
        assert_eq!(address_error(&CpuId::new(0).unwrap(), 1 << 50), None);
    }

    #[test]
    fn paravirtual_eoi_can_be_disabled() {
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
            apply_spec(&mut entry, &spec);
            entry.eax
        };
        assert_eq!(shown(KVM_FEATURES, true), 0xff);
        assert_eq!(shown(KVM_FEATURES, false), 0xbf);
        assert_eq!(shown(0x4000_0000, false), 0xff);
    }
}
