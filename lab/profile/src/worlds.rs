//! Whose an instruction is: the worlds of a machine, told apart by addresses.
//!
//! A Linux takes the upper half of them and leaves the lower to its programs. Below Xen
//! the upper half has two owners: Xen itself keeps a part for good (Xen
//! `xen/include/asm-x86/config.h`), and the kernel of its paravirtualized first domain,
//! which has no more privilege than a program, has the rest. A guest may use any
//! address; that one runs is known from `vmrun`.

/// Addresses from here on are a kernel's.
pub const KERNEL: u64 = 1 << 63;

/// Of these Xen's: the sixteen slots of the page table that it keeps to itself.
pub const XEN: std::ops::Range<u64> = 0xffff_8000_0000_0000..0xffff_8800_0000_0000;

/// Who executes instructions outside of guests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Machine {
    /// The image itself, in every address.
    Bare,
    /// A Linux, with programs.
    #[default]
    Linux,
    /// Xen, and in its first domain a Linux with programs.
    Xen,
}

/// Whose an address is. Different worlds may use the same addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Space {
    /// A guest's, or the bare machine's image.
    Guest,
    /// A hypervisor's that is no part of a kernel.
    Hypervisor,
    /// The kernel's of the machine, or of its first domain.
    Kernel,
    /// A program's of that kernel.
    User,
    /// A program's whose file is known by what its code is: the number of the file,
    /// in which its own addresses are counted.
    File(u16),
}

impl Machine {
    /// Whose an address is.
    pub fn space(self, in_guest: bool, address: u64) -> Space {
        match self {
            Self::Bare => Space::Guest,
            _ if in_guest => Space::Guest,
            _ if address < KERNEL => Space::User,
            Self::Xen if XEN.contains(&address) => Space::Hypervisor,
            _ => Space::Kernel,
        }
    }

    /// Whether whoever is at an address, and no guest, owns the machine: traps lead
    /// there, and guests are entered and left there.
    pub fn is_privileged(self, address: u64) -> bool {
        match self {
            Self::Xen => XEN.contains(&address),
            _ => address >= KERNEL,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINUX: u64 = 0xffff_ffff_8100_0000;
    const TEXT_OF_XEN: u64 = 0xffff_82d0_4020_0000;

    #[test]
    fn the_first_domain_has_a_kernel_without_privilege() {
        let told = [0x1000, LINUX, TEXT_OF_XEN].map(|at| Machine::Xen.space(false, at));
        assert_eq!(told, [Space::User, Space::Kernel, Space::Hypervisor]);
        let told = [0x1000, LINUX, TEXT_OF_XEN].map(|at| Machine::Xen.is_privileged(at));
        assert_eq!(told, [false, false, true]);
        assert_eq!(Machine::Linux.space(false, TEXT_OF_XEN), Space::Kernel);
        assert!(Machine::Linux.is_privileged(LINUX));
    }

    #[test]
    fn a_guest_may_use_any_address() {
        for machine in [Machine::Linux, Machine::Xen] {
            let told = [0x1000, LINUX, TEXT_OF_XEN].map(|at| machine.space(true, at));
            assert_eq!(told, [Space::Guest; 3]);
        }
        assert_eq!(Machine::Bare.space(false, LINUX), Space::Guest);
    }
}
