//! Memory that a guest asks its VMM for while it runs, see
//! [`crate::platform::POPULATE`].
//!
//! A guest asks for a region of a known order, with a [`Wish`] in one word, and gives it
//! back with [`GIVE_BACK`]. There is one region at a time, at
//! [`crate::platform::WINDOW`]. What came of the last word is read from the same port:
//! the wish itself while its region is there, 0 when it was given back, or a [`Refusal`].
//! Reading it says [`crate::platform::POPULATE_IS_THERE`] until something was asked for.

use crate::catalogue::Op;

/// The orders that there are: a region has 2^order pages.
pub const ORDERS: [u8; 4] = [0, 3, 9, 18];

/// Regions of more pages than those of this order are large.
pub const LARGE: u8 = 9;

/// The order of a page of 2 MiB.
pub const HUGE: u8 = 9;

/// Written to give the region back.
pub const GIVE_BACK: u32 = 0xffff_ffff;

/// Bits of a wish, above its order: what makes it one, and what it wants.
const WISH: u32 = 1 << 16;
const IN_HUGE_PAGES: u32 = 1 << 8;
const PREFAULTED: u32 = 1 << 9;

/// What an answer that refuses begins with.
const REFUSED: u32 = 0x8000_0000;

/// What a guest may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wish {
    /// One of [`ORDERS`].
    pub order: u8,
    /// In pages of 2 MiB; never below the order of [`HUGE`].
    pub huge: bool,
    /// Populated before the guest touches it.
    pub prefault: bool,
}

impl Wish {
    /// Every wish there is, in the order in which tables show them.
    pub const ALL: [Wish; 12] = all();

    /// Its pages of 4 KiB.
    pub const fn pages(self) -> u64 {
        1 << self.order
    }

    /// Its length in bytes.
    pub const fn bytes(self) -> u64 {
        self.pages() * crate::platform::PAGE
    }

    /// As it is written to the port.
    pub const fn word(self) -> u32 {
        let huge = if self.huge { IN_HUGE_PAGES } else { 0 };
        let prefault = if self.prefault { PREFAULTED } else { 0 };
        WISH | self.order as u32 | huge | prefault
    }

    /// The wish of such a word, if it is one.
    pub fn of_word(word: u32) -> Option<Wish> {
        Self::ALL.into_iter().find(|wish| wish.word() == word)
    }

    /// The operation that gives such a region.
    pub fn attach(self) -> Op {
        self.operation(0)
    }

    /// The operation that touches such a region.
    pub fn touch(self) -> Op {
        self.operation(1)
    }

    /// The two operations of each wish stand side by side in the catalogue, in the same
    /// order; a test checks that their names fit.
    fn operation(self, which: usize) -> Op {
        let before = Self::ALL.iter().take_while(|other| **other != self);
        OPERATIONS[2 * before.count() + which]
    }
}

const fn all() -> [Wish; 12] {
    let mut all = [Wish {
        order: 0,
        huge: false,
        prefault: false,
    }; 12];
    let (mut used, mut index) = (0, 0);
    while index < ORDERS.len() {
        let order = ORDERS[index];
        let mut variant = 0;
        while variant < if order < HUGE { 2 } else { 4 } {
            all[used] = Wish {
                order,
                huge: variant >= 2,
                prefault: variant % 2 == 1,
            };
            used += 1;
            variant += 1;
        }
        index += 1;
    }
    all
}

/// Two for each wish.
const OPERATIONS: [Op; 2 * Wish::ALL.len()] = [
    Op::Attach0,
    Op::Touch0,
    Op::Attach0Prefault,
    Op::Touch0Prefault,
    Op::Attach3,
    Op::Touch3,
    Op::Attach3Prefault,
    Op::Touch3Prefault,
    Op::Attach9,
    Op::Touch9,
    Op::Attach9Prefault,
    Op::Touch9Prefault,
    Op::Attach9Huge,
    Op::Touch9Huge,
    Op::Attach9HugePrefault,
    Op::Touch9HugePrefault,
    Op::Attach18,
    Op::Touch18,
    Op::Attach18Prefault,
    Op::Touch18Prefault,
    Op::Attach18Huge,
    Op::Touch18Huge,
    Op::Attach18HugePrefault,
    Op::Touch18HugePrefault,
];

/// Why a wish was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Refusal {
    /// It is none.
    NoWish = 1,
    /// There is a region already, or there is none to be given back.
    OutOfTurn = 2,
    /// The kernel has no pages of 2 MiB for it.
    NoHugePages = 3,
    /// There is not enough memory.
    NoMemory = 4,
    /// Something else went wrong.
    Failed = 5,
}

impl Refusal {
    /// Every refusal.
    pub const ALL: [Refusal; 5] = [
        Self::NoWish,
        Self::OutOfTurn,
        Self::NoHugePages,
        Self::NoMemory,
        Self::Failed,
    ];

    /// As it is read from the port.
    pub const fn word(self) -> u32 {
        REFUSED | self as u32
    }

    /// The refusal of such a word, if it is one.
    pub fn of_word(word: u32) -> Option<Refusal> {
        Self::ALL.into_iter().find(|refusal| refusal.word() == word)
    }

    /// Why, for people, and what mends it.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NoWish => "the VMM knows no such region",
            Self::OutOfTurn => "the VMM has another region for its guest already",
            Self::NoHugePages => NO_HUGE_PAGES,
            Self::NoMemory => "there is not enough memory for the region",
            Self::Failed => "the VMM could not make the region, or not attach it",
        }
    }
}

/// Why there are no pages of 2 MiB, and what mends it.
pub const NO_HUGE_PAGES: &str = "the kernel gives no pages of 2 MiB: echo madvise | sudo tee \
                                 /sys/kernel/mm/transparent_hugepage/enabled";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{POPULATE_IS_THERE, WINDOW_SIZE};
    use crate::Workload;
    use std::format;

    #[test]
    fn every_wish_has_its_operations_and_every_operation_its_wish() {
        for wish in Wish::ALL {
            let pages = if wish.huge { "-2m" } else { "" };
            let how = if wish.prefault { "-prefault" } else { "" };
            let name = |what: &str| format!("{what}-{}{pages}{how}", wish.order);
            assert_eq!(wish.attach().name(), name("attach"));
            assert_eq!(wish.touch().name(), name("touch"));
        }
        let count = Workload::Populate.operations().count();
        assert_eq!(count, 2 * Wish::ALL.len());
    }

    #[test]
    fn words_lead_back_and_mean_one_thing() {
        for wish in Wish::ALL {
            assert_eq!(Wish::of_word(wish.word()), Some(wish));
            assert_eq!(Refusal::of_word(wish.word()), None);
            assert!(wish.bytes() <= WINDOW_SIZE);
        }
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::of_word(refusal.word()), Some(refusal));
            assert_eq!(Wish::of_word(refusal.word()), None);
        }
        for other in [
            0,
            WISH | 1,
            WISH | 0x103,
            WISH | 0x400,
            GIVE_BACK,
            POPULATE_IS_THERE,
        ] {
            assert_eq!(Wish::of_word(other), None, "{other:#x}");
        }
        assert_eq!(Refusal::of_word(GIVE_BACK), None);
    }
}
