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

/// What the first vCPU of such a machine shall show.
pub(crate) fn of_first_vcpu(system: &kvm_ioctls::Kvm, spec: &VmSpec) -> Result<CpuId> {
    let mut cpuid = system
        .get_supported_cpuid(ENTRIES)
        .map_err(Error::refused("ask which CPU features are supported"))?;
    for entry in cpuid.as_mut_slice() {
        if entry.function == 1 && spec.controllers != Controllers::None {
            // The kernel leaves it to us to say so.
            entry.ecx |= TSC_DEADLINE_TIMER;
        }
        if entry.function == 1 && spec.controllers == Controllers::Full {
            // An operating system looks for what the kernel offers only then.
            entry.ecx |= HYPERVISOR;
        }
        if spec.cpus > 1 {
            topology::show(entry, spec.cpus);
        }
        adapt(entry, VcpuId(0));
    }
    Ok(cpuid)
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
}
