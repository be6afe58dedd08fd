//! The header before each frame (virtio 1.2, section 5.1.6).

use super::{GUEST_CHECKSUM, GUEST_TCP4, GUEST_TCP6};

/// Length in bytes.
pub const HEADER: usize = 12;

const FLAGS: usize = 0;
const SEGMENTS: usize = 1;
const BUFFERS: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const CHECKSUM_IS_GOOD: u8 = 2;
const NOT_SEGMENTED: u8 = 0;
const TCP4: u8 = 1;
const TCP6: u8 = 4;

/// Work on frames that one side leaves to the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Checksums.
    pub checksum: bool,
    /// TCP segmentation over IPv4.
    pub tcp4: bool,
    /// TCP segmentation over IPv6.
    pub tcp6: bool,
}

impl Offloads {
    /// Returns those of received frames in the features of a card.
    pub fn received(features: u64) -> Self {
        Self::of(features, GUEST_CHECKSUM, GUEST_TCP4, GUEST_TCP6)
    }

    /// Returns the offloads in `features`. Segmentation requires checksums.
    pub(super) fn of(features: u64, checksum: u64, tcp4: u64, tcp6: u64) -> Self {
        let has = |bit| features & checksum != 0 && features & bit != 0;
        Self {
            checksum: has(checksum),
            tcp4: has(tcp4),
            tcp6: has(tcp6),
        }
    }
}

/// A header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header(pub [u8; HEADER]);

impl Header {
    /// Returns true if the header uses only negotiated offloads.
    pub fn uses_only(&self, agreed: Offloads) -> bool {
        let checksum = match self.0[FLAGS] {
            0 => true,
            NEEDS_CHECKSUM => agreed.checksum,
            CHECKSUM_IS_GOOD => agreed.checksum,
            _ => false,
        };
        let segments = match self.0[SEGMENTS] {
            NOT_SEGMENTED => true,
            TCP4 => agreed.tcp4,
            TCP6 => agreed.tcp6,
            _ => false,
        };
        checksum && segments
    }

    /// Returns the header as shown to a driver with these offloads, if allowed. A valid checksum is reported only if
    /// negotiated.
    pub(super) fn for_driver(mut self, agreed: Offloads) -> Option<Self> {
        if !agreed.checksum {
            self.0[FLAGS] &= !CHECKSUM_IS_GOOD;
        }
        self.uses_only(agreed).then_some(self)
    }

    /// Sets the number of buffers.
    pub(super) fn in_buffers(mut self, count: u16) -> Self {
        self.0[BUFFERS..].copy_from_slice(&count.to_le_bytes());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Offloads = Offloads {
        checksum: true,
        tcp4: true,
        tcp6: true,
    };

    fn header(flags: u8, segments: u8) -> Header {
        let mut header = Header::default();
        (header.0[0], header.0[1]) = (flags, segments);
        header
    }

    #[test]
    fn offloads_must_be_negotiated() {
        let nothing = Offloads::default();
        for flags in 0..=u8::MAX {
            for segments in 0..=u8::MAX {
                let header = header(flags, segments);
                let known = flags < 3 && [0, 1, 4].contains(&segments);
                assert_eq!(header.uses_only(ALL), known, "{header:?}");
                assert_eq!(header.uses_only(nothing), (flags, segments) == (0, 0));
            }
        }
    }

    #[test]
    fn valid_checksum_is_reported_only_if_negotiated() {
        let good = header(CHECKSUM_IS_GOOD, 0);
        assert_eq!(good.for_driver(ALL), Some(good));
        assert_eq!(good.for_driver(Offloads::default()), Some(header(0, 0)));
        assert_eq!(header(1, 0).for_driver(Offloads::default()), None);
        assert_eq!(header(0, 0).in_buffers(0x102).0[10..], [2, 1]);
    }

    #[test]
    fn segmentation_requires_checksums() {
        assert_eq!(Offloads::of(0b110, 1, 2, 4), Offloads::default());
        assert_eq!(Offloads::of(0b111, 1, 2, 4), ALL);
    }
}
