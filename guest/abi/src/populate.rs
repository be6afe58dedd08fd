//! Memory hotplug on request of the guest, by port [`crate::platform::POPULATE`].
//!
//! A guest writes a [`MemoryRequest`] to the port to attach a region, and [`RELEASE`] to detach it.
//! There is one region at a time, at [`crate::platform::HOTPLUG_BASE`]. Reading the port returns
//! [`crate::platform::POPULATE_PRESENT`] before the first request, then the result of the last
//! write: the request itself while its region is attached, 0 after its release, or a [`Refusal`].

use crate::operation::Op;

/// Supported orders: a region has 2^order pages.
pub const ORDERS: [u8; 4] = [0, 3, 9, 18];

/// Regions of a higher order are large.
pub const LARGE: u8 = 9;

/// The order of a page of 2 MiB.
pub const HUGE: u8 = 9;

/// Value that detaches the region.
pub const RELEASE: u32 = 0xffff_ffff;

/// Bits of a request above its order.
const REQUEST: u32 = 1 << 16;
const IN_HUGE_PAGES: u32 = 1 << 8;
const PREFAULTED: u32 = 1 << 9;

/// Bit of an answer that is a [`Refusal`].
const REFUSED: u32 = 0x8000_0000;

/// Request for a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemoryRequest {
    /// One of [`ORDERS`].
    pub order: u8,
    /// Backed by pages of 2 MiB; only from order [`HUGE`] on.
    pub huge: bool,
    /// Populated when it is attached.
    pub prefault: bool,
}

impl MemoryRequest {
    /// All requests, in display order.
    pub const ALL: [MemoryRequest; 12] = all();

    /// Returns the length in pages of 4 KiB.
    pub const fn pages(self) -> u64 {
        1 << self.order
    }

    /// Returns the length in bytes.
    pub const fn bytes(self) -> u64 {
        self.pages() * crate::platform::PAGE
    }

    /// Returns the value that is written to the port.
    pub const fn word(self) -> u32 {
        let huge = if self.huge { IN_HUGE_PAGES } else { 0 };
        let prefault = if self.prefault { PREFAULTED } else { 0 };
        REQUEST | self.order as u32 | huge | prefault
    }

    /// Returns the request with this value.
    pub fn from_word(word: u32) -> Option<MemoryRequest> {
        Self::ALL.into_iter().find(|request| request.word() == word)
    }

    /// Returns the operation that attaches such a region.
    pub fn attach_op(self) -> Op {
        self.operation(0)
    }

    /// Returns the operation that touches such a region.
    pub fn touch_op(self) -> Op {
        self.operation(1)
    }

    fn operation(self, which: usize) -> Op {
        let before = Self::ALL.iter().take_while(|other| **other != self);
        OPERATIONS[2 * before.count() + which]
    }
}

const fn all() -> [MemoryRequest; 12] {
    let mut all = [MemoryRequest {
        order: 0,
        huge: false,
        prefault: false,
    }; 12];
    let (mut used, mut index) = (0, 0);
    while index < ORDERS.len() {
        let order = ORDERS[index];
        let mut variant = 0;
        while variant < if order < HUGE { 2 } else { 4 } {
            all[used] = MemoryRequest {
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

/// Two operations per request, in the order of [`MemoryRequest::ALL`]. Their numbers are consecutive.
const OPERATIONS: [Op; 2 * MemoryRequest::ALL.len()] = {
    let mut operations = [Op::Attach0; 2 * MemoryRequest::ALL.len()];
    let mut index = 0;
    while index < operations.len() {
        operations[index] = match Op::from_number(Op::Attach0.number() + index as u8) {
            Some(op) => op,
            None => panic!("the numbers of workload populate are consecutive"),
        };
        index += 1;
    }
    operations
};

/// Reason for the refusal of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Refusal {
    /// The value is not a request.
    Invalid = 1,
    /// A region is attached already, or none is attached to release.
    WrongState = 2,
    /// The kernel has no pages of 2 MiB for the region.
    NoHugePages = 3,
    /// Not enough memory.
    NoMemory = 4,
    /// Other failure.
    Failed = 5,
}

impl Refusal {
    /// All refusals.
    pub const ALL: [Refusal; 5] = [
        Self::Invalid,
        Self::WrongState,
        Self::NoHugePages,
        Self::NoMemory,
        Self::Failed,
    ];

    /// Returns the value that is read from the port.
    pub const fn word(self) -> u32 {
        REFUSED | self as u32
    }

    /// Returns the refusal with this value.
    pub fn from_word(word: u32) -> Option<Refusal> {
        Self::ALL.into_iter().find(|refusal| refusal.word() == word)
    }

    /// Returns the human-readable reason, with a remedy if there is one.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Invalid => "the VMM does not support this region",
            Self::WrongState => "the VMM has attached another region already",
            Self::NoHugePages => NO_HUGE_PAGES,
            Self::NoMemory => "not enough memory for the region",
            Self::Failed => "the VMM failed to create or attach the region",
        }
    }
}

/// Reason for the lack of pages of 2 MiB, with the remedy.
pub const NO_HUGE_PAGES: &str = "the kernel gives no pages of 2 MiB: echo madvise | sudo tee \
                                 /sys/kernel/mm/transparent_hugepage/enabled";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{HOTPLUG_SIZE, POPULATE_PRESENT};
    use crate::Workload;
    use std::format;

    #[test]
    fn requests_and_operations_correspond() {
        for request in MemoryRequest::ALL {
            let pages = if request.huge { "-2m" } else { "" };
            let how = if request.prefault { "-prefault" } else { "" };
            let name = |what: &str| format!("{what}-{}{pages}{how}", request.order);
            assert_eq!(request.attach_op().name(), name("attach"));
            assert_eq!(request.touch_op().name(), name("touch"));
        }
        let count = Workload::Populate.operations().count();
        assert_eq!(count, 2 * MemoryRequest::ALL.len());
    }

    #[test]
    fn values_of_requests_and_refusals_are_distinct() {
        for request in MemoryRequest::ALL {
            assert_eq!(MemoryRequest::from_word(request.word()), Some(request));
            assert_eq!(Refusal::from_word(request.word()), None);
            assert!(request.bytes() <= HOTPLUG_SIZE);
        }
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::from_word(refusal.word()), Some(refusal));
            assert_eq!(MemoryRequest::from_word(refusal.word()), None);
        }
        for other in [
            0,
            REQUEST | 1,
            REQUEST | 0x103,
            REQUEST | 0x400,
            RELEASE,
            POPULATE_PRESENT,
        ] {
            assert_eq!(MemoryRequest::from_word(other), None, "{other:#x}");
        }
        assert_eq!(Refusal::from_word(RELEASE), None);
    }
}
