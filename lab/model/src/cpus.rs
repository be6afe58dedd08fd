//! Number of virtual CPUs of a guest, and their CPUs.

use crate::named::named;

/// Largest number that trapline-vmm and the image support.
pub const MOST: u32 = trapline_abi::job::MOST_CPUS;

/// CPUs of the virtual CPUs. All other threads of a VMM run on CPU 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// Virtual CPU i on CPU i: the first shares its CPU with the VMM.
    Same,
    /// Virtual CPU i on CPU i + 1.
    Disjoint,
}

named!(Place { Same "same", Disjoint "disjoint" });

impl Place {
    pub(crate) const fn letter(self) -> char {
        match self {
            Self::Same => 's',
            Self::Disjoint => 'd',
        }
    }
}

/// Parses a number of virtual CPUs.
pub fn from_text(text: &str) -> Option<u32> {
    let number = text.parse().ok();
    number.filter(|number| (1..=MOST).contains(number))
}
