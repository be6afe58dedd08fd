//! CPU topology: cores of one package with one thread each (Intel SDM volume 2, CPUID; AMD APM volume 3,
//! appendix E). KVM passes on the host's topology, which would mislead a guest with several CPUs.

use kvm_bindings::kvm_cpuid_entry2;

/// Leaf 1, EDX: the number of logical CPUs is valid.
const MANY: u32 = 1 << 28;
/// Leaf 1, EBX: that number.
const LOGICAL: u32 = 0xff << 16;
/// Leaf 0x8000_0001, ECX: cores and not threads.
const CORES_ONLY: u32 = 1 << 1;

// Levels of leaf 0xb, in ECX.
const THREADS: u32 = 1 << 8;
const CORES: u32 = 2 << 8;

/// Adapts an entry to a VM with `cpus` vCPUs.
pub(super) fn apply(entry: &mut kvm_cpuid_entry2, cpus: u32) {
    let bits = cpus.next_power_of_two().trailing_zeros();
    match (entry.function, entry.index) {
        (1, _) => {
            entry.ebx = entry.ebx & !LOGICAL | (1 << bits) << 16;
            entry.edx |= MANY;
        }
        // Caches: the last level is shared by all cores.
        (4, _) if entry.eax & 0x1f != 0 => {
            let is_last_level = entry.eax >> 5 & 7 == 3;
            let sharing = if is_last_level { (1 << bits) - 1 } else { 0 };
            entry.eax = entry.eax & 0x3fff | sharing << 14 | ((1 << bits) - 1) << 26;
        }
        (0xb | 0x1f, 0) => (entry.eax, entry.ebx, entry.ecx) = (0, 1, THREADS),
        (0xb | 0x1f, 1) => (entry.eax, entry.ebx, entry.ecx) = (bits, cpus, CORES | 1),
        (0xb | 0x1f, index) => (entry.eax, entry.ebx, entry.ecx) = (0, 0, index),
        (0x8000_0001, _) => entry.ecx |= CORES_ONLY,
        (0x8000_0008, _) => entry.ecx = bits << 12 | (cpus - 1),
        // One thread a core.
        (0x8000_001e, _) => entry.ebx &= !0xff00,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(function: u32, index: u32, cpus: u32) -> kvm_cpuid_entry2 {
        let mut entry = kvm_cpuid_entry2 {
            function,
            index,
            eax: 0x163,
            ..Default::default()
        };
        apply(&mut entry, cpus);
        entry
    }

    #[test]
    fn cpus_are_cores_of_one_package() {
        let first = shown(1, 0, 3);
        assert_eq!((first.ebx >> 16 & 0xff, first.edx), (4, MANY));
        let threads = shown(0xb, 0, 3);
        assert_eq!((threads.eax, threads.ebx, threads.ecx), (0, 1, 0x100));
        let cores = shown(0xb, 1, 3);
        assert_eq!((cores.eax, cores.ebx, cores.ecx), (2, 3, 0x201));
        let end = shown(0xb, 2, 3);
        assert_eq!((end.eax, end.ebx, end.ecx), (0, 0, 2));
        assert_eq!(shown(0x8000_0008, 0, 8).ecx, 3 << 12 | 7);
    }

    #[test]
    fn last_level_cache_is_shared() {
        let last = shown(4, 3, 2);
        assert_eq!((last.eax >> 14 & 0xfff, last.eax >> 26), (1, 1));
    }
}
