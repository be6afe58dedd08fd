//! What the guest's CPUID shows: all that the kernel supports, and this vCPU's own
//! number in place of the number of the host CPU that was asked.

use kvm_bindings::{kvm_cpuid_entry2, CpuId};
use kvm_ioctls::VcpuFd;
use trapline_interface::{Error, Result, VcpuId};

/// Enough for every kernel so far; they refuse to fill a shorter list.
const ENTRIES: usize = 256;

const TSC_DEADLINE_TIMER: u32 = 1 << 24;

/// What the first vCPU shall show.
pub(crate) fn of_first_vcpu(system: &kvm_ioctls::Kvm, local_apic: bool) -> Result<CpuId> {
    let mut cpuid = system
        .get_supported_cpuid(ENTRIES)
        .map_err(Error::refused("ask which CPU features are supported"))?;
    for entry in cpuid.as_mut_slice() {
        if entry.function == 1 && local_apic {
            // The kernel leaves it to us to say so.
            entry.ecx |= TSC_DEADLINE_TIMER;
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
