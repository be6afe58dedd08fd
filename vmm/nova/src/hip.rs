//! The hypervisor information page (`include/hip.hpp`): memory and modules.

use trapline_interface::PAGE;

/// Signature of the page.
const SIGNATURE: u32 = u32::from_le_bytes(*b"NOVA");

/// Offsets of fields.
const LENGTH: usize = 6;
const DESCRIPTORS: usize = 12;
const DESCRIPTOR_SIZE: usize = 14;

/// Offset of the features, and the technologies among them.
const FEATURES: usize = 0x10;
const HAS_VMX: u64 = 1 << 1;
const HAS_SVM: u64 = 1 << 2;

/// Types of memory: usable, and a multiboot module.
const AVAILABLE: u32 = 1;
const MODULE: u32 = -2_i32 as u32;

/// A range of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub address: u64,
    pub size: u64,
}

impl Range {
    fn end(self) -> u64 {
        self.address.saturating_add(self.size)
    }
}

/// A multiboot module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module {
    pub range: Range,
    /// Physical address of its command line, which ends with a zero.
    pub command_line: u64,
}

/// The page.
pub struct Hip<'a>(&'a [u8; PAGE]);

#[derive(Clone, Copy)]
struct Descriptor {
    range: Range,
    kind: u32,
    aux: u32,
}

impl<'a> Hip<'a> {
    /// Returns the page if it has the signature.
    pub fn new(bytes: &'a [u8; PAGE]) -> Option<Self> {
        let hip = Self(bytes);
        (hip.number::<4>(0)? == u64::from(SIGNATURE)).then_some(hip)
    }

    /// Returns whether NOVA runs virtual machines by AMD's SVM, or false by Intel's VMX; `None` if by neither.
    pub fn is_svm(&self) -> Option<bool> {
        let features = self.number::<4>(FEATURES)?;
        (features & (HAS_SVM | HAS_VMX) != 0).then_some(features & HAS_SVM != 0)
    }

    fn number<const N: usize>(&self, at: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        bytes[..N].copy_from_slice(self.0.get(at..at + N)?);
        Some(u64::from_le_bytes(bytes))
    }

    fn descriptors(&self) -> impl Iterator<Item = Descriptor> + '_ {
        let field = |at| self.number::<2>(at).unwrap_or(0) as usize;
        let (first, size) = (field(DESCRIPTORS), field(DESCRIPTOR_SIZE).max(24));
        let count = field(LENGTH).saturating_sub(first) / size;
        (0..count).map_while(move |index| {
            let at = first + index * size;
            Some(Descriptor {
                range: Range {
                    address: self.number::<8>(at)?,
                    size: self.number::<8>(at + 8)?,
                },
                kind: self.number::<4>(at + 16)? as u32,
                aux: self.number::<4>(at + 20)? as u32,
            })
        })
    }

    /// Iterates over the modules, in the order of the boot loader.
    pub fn modules(&self) -> impl Iterator<Item = Module> + '_ {
        let modules = self.descriptors().filter(|it| it.kind == MODULE);
        modules.map(|it| Module {
            range: it.range,
            command_line: it.aux.into(),
        })
    }

    /// Returns the highest aligned range of `size` bytes that is available and not used, below `limit`.
    pub fn free(&self, size: u64, align: u64, limit: u64) -> Option<Range> {
        let available = self.descriptors().filter(|it| it.kind == AVAILABLE);
        let highest = |within: Range| {
            let mut address = within.end().min(limit).checked_sub(size)? / align * align;
            while address >= within.address {
                let range = Range { address, size };
                match self.used(range) {
                    None => return Some(range),
                    Some(used) => address = used.address.checked_sub(size)? / align * align,
                }
            }
            None
        };
        let found = available.filter_map(|it| highest(it.range));
        found.max_by_key(|range| range.address)
    }

    /// Returns a range that is not available and overlaps `range`.
    fn used(&self, range: Range) -> Option<Range> {
        let overlaps = |it: &Descriptor| {
            it.kind != AVAILABLE && it.range.address < range.end() && range.address < it.range.end()
        };
        self.descriptors().find(overlaps).map(|it| it.range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn page(descriptors: &[(u64, u64, u32, u32)]) -> [u8; PAGE] {
        let mut page = [0; PAGE];
        page[..4].copy_from_slice(b"NOVA");
        let length = 0x40 + 24 * descriptors.len() as u16;
        for (at, value) in [(LENGTH, length), (DESCRIPTORS, 0x40), (DESCRIPTOR_SIZE, 24)] {
            page[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        for (index, (address, size, kind, aux)) in descriptors.iter().enumerate() {
            let entry = &mut page[0x40 + 24 * index..][..24];
            entry[..8].copy_from_slice(&address.to_le_bytes());
            entry[8..16].copy_from_slice(&size.to_le_bytes());
            entry[16..20].copy_from_slice(&kind.to_le_bytes());
            entry[20..].copy_from_slice(&aux.to_le_bytes());
        }
        page
    }

    #[test]
    fn free_memory_is_found_around_modules() {
        let page = page(&[
            (0, 640 << 10, AVAILABLE, 0),
            (MIB, 255 * MIB, AVAILABLE, 0),
            (200 * MIB, 8 * MIB, MODULE, 0x9000),
            (250 * MIB, 6 * MIB, u32::MAX, 0),
        ]);
        let hip = Hip::new(&page).unwrap();
        let free = |size: u64| {
            hip.free(size * MIB, 2 * MIB, 1 << 32)
                .map(|it| it.address / MIB)
        };
        assert_eq!(
            [free(2), free(42), free(44), free(198)],
            [Some(248), Some(208), Some(156), Some(2)]
        );
        assert_eq!(free(200), None);
        assert_eq!(hip.free(MIB, MIB, 100 * MIB).unwrap().address, 99 * MIB);
        let module = hip.modules().next().unwrap();
        assert_eq!(
            (module.range.address, module.command_line),
            (200 * MIB, 0x9000)
        );
    }

    #[test]
    fn technology_is_that_of_the_features() {
        let technology = |features: u8| {
            let mut page = page(&[]);
            page[FEATURES] = features;
            Hip::new(&page).unwrap().is_svm()
        };
        assert_eq!([0, 1].map(technology), [None, None]);
        assert_eq!([2, 5].map(technology), [Some(false), Some(true)]);
    }

    #[test]
    fn invalid_pages_are_rejected() {
        assert!(Hip::new(&[0; PAGE]).is_none());
        let mut page = page(&[(MIB, MIB, AVAILABLE, 0)]);
        page[LENGTH..LENGTH + 2].copy_from_slice(&u16::MAX.to_le_bytes());
        let hip = Hip::new(&page).unwrap();
        assert!(hip.descriptors().count() <= PAGE / 24);
    }
}
