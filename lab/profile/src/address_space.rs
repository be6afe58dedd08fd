//! Address spaces of a simulated machine, distinguished by virtual address.
//!
//! Linux owns the upper half of the addresses, its programs the lower half. On Xen, a fixed
//! part of the upper half belongs to the hypervisor (Xen `xen/include/asm-x86/config.h`), the
//! rest to the kernel of the paravirtualized first domain, which runs without privilege. A
//! guest may use any address; guest mode is known from VMRUN and #VMEXIT.

/// First address of the upper half.
pub const KERNEL: u64 = 1 << 63;

/// Addresses of Xen: the sixteen page-table slots reserved for it.
pub const XEN: std::ops::Range<u64> = 0xffff_8000_0000_0000..0xffff_8800_0000_0000;

/// Division of host-mode addresses between the programs of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressLayout {
    /// The image, at every address.
    Bare,
    /// Linux and its programs.
    #[default]
    Linux,
    /// Xen; in its first domain Linux and its programs.
    Xen,
    /// Linux and its programs at this many levels: on the machine and in the guests that host
    /// guests.
    Nested(u8),
    /// The same, with Xen and its first domain at the last of these levels.
    NestedXen(u8),
}

/// Owner of an address. The same address may occur in several spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressSpace {
    /// A guest, or the image on the bare machine.
    Guest,
    /// A hypervisor that is not part of a kernel.
    Hypervisor,
    /// The kernel of the machine or of its first domain.
    Kernel,
    /// A program of that kernel.
    User,
    /// The kernel of a guest that hosts guests, at this level.
    NestedKernel(u8),
    /// A program of such a kernel.
    NestedUser(u8),
    /// A hypervisor in such a guest that is not part of a kernel.
    NestedHypervisor(u8),
    /// A program file identified by the contents of its pages; addresses are those in the file.
    File(u16),
}

impl AddressSpace {
    /// Returns the level of a guest that hosts guests.
    pub fn nested_level(self) -> Option<u8> {
        match self {
            Self::NestedKernel(level) | Self::NestedUser(level) | Self::NestedHypervisor(level) => {
                Some(level)
            }
            _ => None,
        }
    }
}

impl AddressLayout {
    /// Returns the number of levels below the innermost guest: 0 if the image runs on the machine.
    pub fn levels(self) -> u8 {
        match self {
            Self::Bare => 0,
            Self::Linux | Self::Xen => 1,
            Self::Nested(levels) | Self::NestedXen(levels) => levels,
        }
    }

    /// Returns the space of `address` at a level: 0 is the machine, 1 its guest, and so on.
    pub fn space(self, level: u8, address: u64) -> AddressSpace {
        match self {
            _ if level >= self.levels() => AddressSpace::Guest,
            _ if level != 0 && address < KERNEL => AddressSpace::NestedUser(level),
            Self::NestedXen(levels) if level + 1 == levels && XEN.contains(&address) => {
                AddressSpace::NestedHypervisor(level)
            }
            _ if level != 0 => AddressSpace::NestedKernel(level),
            _ if address < KERNEL => AddressSpace::User,
            Self::Xen if XEN.contains(&address) => AddressSpace::Hypervisor,
            _ => AddressSpace::Kernel,
        }
    }

    /// Returns true if host-mode code at `address` runs at CPL 0: traps lead there, and guests
    /// are entered and left there. The kernel of the first domain of a nested Xen has the addresses of the
    /// machine's kernel, and counts as privileged.
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
    const XEN_TEXT: u64 = 0xffff_82d0_4020_0000;
    const ADDRESSES: [u64; 3] = [0x1000, LINUX, XEN_TEXT];

    #[test]
    fn first_domain_kernel_is_unprivileged() {
        let spaces = ADDRESSES.map(|address| AddressLayout::Xen.space(0, address));
        let expected = [
            AddressSpace::User,
            AddressSpace::Kernel,
            AddressSpace::Hypervisor,
        ];
        assert_eq!(spaces, expected);
        let privileged = ADDRESSES.map(|address| AddressLayout::Xen.is_privileged(address));
        assert_eq!(privileged, [false, false, true]);
        let linux = AddressLayout::Linux;
        assert_eq!(linux.space(0, XEN_TEXT), AddressSpace::Kernel);
        assert!(linux.is_privileged(LINUX));
    }

    #[test]
    fn nested_levels_have_spaces_of_their_own() {
        let layout = AddressLayout::Nested(2);
        let spaces =
            [0, 1, 2].map(|level| ADDRESSES.map(|at| layout.space(level, at))[..2].to_vec());
        let expected = [
            [AddressSpace::User, AddressSpace::Kernel],
            [AddressSpace::NestedUser(1), AddressSpace::NestedKernel(1)],
            [AddressSpace::Guest; 2],
        ];
        assert_eq!(spaces, expected);
    }

    #[test]
    fn nested_xen_is_at_the_last_level() {
        let layout = AddressLayout::NestedXen(2);
        let spaces = [0, 1, 2].map(|level| ADDRESSES.map(|at| layout.space(level, at)));
        let expected = [
            [
                AddressSpace::User,
                AddressSpace::Kernel,
                AddressSpace::Kernel,
            ],
            [
                AddressSpace::NestedUser(1),
                AddressSpace::NestedKernel(1),
                AddressSpace::NestedHypervisor(1),
            ],
            [AddressSpace::Guest; 3],
        ];
        assert_eq!(spaces, expected);
        assert!(layout.is_privileged(XEN_TEXT) && layout.is_privileged(LINUX));
    }

    #[test]
    fn guests_may_use_any_address() {
        for layout in [AddressLayout::Linux, AddressLayout::Xen] {
            let spaces = ADDRESSES.map(|address| layout.space(1, address));
            assert_eq!(spaces, [AddressSpace::Guest; 3]);
        }
        let bare = AddressLayout::Bare.space(0, LINUX);
        assert_eq!(bare, AddressSpace::Guest);
    }
}
