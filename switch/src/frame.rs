//! Ethernet frames (IEEE 802.3), as far as a switch looks at them.

use std::ptr::NonNull;

/// Bytes of destination, source and type.
pub const HEADER: usize = 14;

/// Length limit of a frame. No offloads are offered, so guests send what their MTU permits.
pub const LONGEST: u32 = 65_535;

const MASK: u64 = (1 << 48) - 1;

/// A hardware address, in the low 48 bits, first byte lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mac(u64);

impl Mac {
    /// Returns the address in six bytes.
    pub fn new(bytes: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = bytes;
        Self(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }

    /// Parses six bytes of two hexadecimal digits each, separated by colons.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 6];
        let mut digits = text.split(':');
        for byte in &mut bytes {
            let pair = digits.next().filter(|it| it.len() == 2)?;
            let is_hex = pair.bytes().all(|digit| digit.is_ascii_hexdigit());
            *byte = u8::from_str_radix(pair, 16).ok().filter(|_| is_hex)?;
        }
        digits.next().is_none().then(|| Self::new(bytes))
    }

    /// Returns the address as a number.
    #[inline]
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns whether it is the address of a group, broadcast included.
    #[inline]
    pub fn is_group(self) -> bool {
        self.0 & 1 != 0
    }

    /// Returns whether no card has this address: that of a group, or zero.
    #[inline]
    pub fn is_invalid_source(self) -> bool {
        self.is_group() || self.0 == 0
    }

    /// Returns whether bridges forward no frame to it: 01-80-C2-00-00-00 to -0F (IEEE 802.1Q, 8.6.3).
    #[inline]
    pub fn is_link_local(self) -> bool {
        self.0 & !(0xf << 40) == 0x00_00_c2_80_01
    }
}

/// An Ethernet header: bytes 0 to 7, and 6 to 13.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header([u64; 2]);

impl Header {
    /// Parses a header.
    pub fn new(bytes: &[u8; HEADER]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = *bytes;
        let words = [[a, b, c, d, e, f, g, h], [g, h, i, j, k, l, m, n]];
        Self(words.map(u64::from_le_bytes))
    }

    /// Reads a header, once.
    ///
    /// # Safety
    /// `at` has [`HEADER`] bytes.
    #[inline(always)]
    pub unsafe fn read(at: NonNull<u8>) -> Self {
        // SAFETY: two words within the header. Of what a guest changes meanwhile, bytes 6 and 7 may differ.
        let words = [0, 6].map(|offset| unsafe { at.add(offset).cast::<u64>().read_unaligned() });
        Self(words.map(u64::from_le))
    }

    /// Writes the header.
    ///
    /// # Safety
    /// `at` has [`HEADER`] bytes.
    #[inline(always)]
    pub unsafe fn write(self, at: NonNull<u8>) {
        for (offset, word) in [0, 6].into_iter().zip(self.0) {
            // SAFETY: two words within the header.
            unsafe { at.add(offset).cast::<u64>().write_unaligned(word.to_le()) };
        }
    }

    /// Returns its bytes.
    pub fn bytes(self) -> [u8; HEADER] {
        let [[a, b, c, d, e, f, ..], [g, h, i, j, k, l, m, n]] = self.0.map(u64::to_le_bytes);
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n]
    }

    /// Returns the destination.
    #[inline]
    pub fn destination(self) -> Mac {
        Mac(self.0[0] & MASK)
    }

    /// Returns the source.
    #[inline]
    pub fn source(self) -> Mac {
        Mac(self.0[1] & MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_read_and_written() {
        let bytes = [1, 0x80, 0xc2, 0, 0, 0xe, 2, 3, 4, 5, 6, 7, 8, 9];
        let header = Header::new(&bytes);
        assert_eq!(header.destination(), Mac::new([1, 0x80, 0xc2, 0, 0, 0xe]));
        assert_eq!(header.source(), Mac::new([2, 3, 4, 5, 6, 7]));
        assert!(header.destination().is_link_local() && header.destination().is_group());
        assert!(!header.source().is_invalid_source());
        let mut copy = [0; 16];
        // SAFETY: the array has more bytes than a header.
        unsafe {
            let at = NonNull::from(&mut copy).cast::<u8>();
            header.write(at);
            assert_eq!(Header::read(at), header);
        }
        assert_eq!(
            (copy[..14].as_ref(), header.bytes()),
            (bytes.as_ref(), bytes)
        );
        assert_eq!(copy[14..], [0, 0]);
    }

    #[test]
    fn groups_and_reserved_addresses_are_known() {
        assert!(Mac::new([0xff; 6]).is_group() && Mac::new([0; 6]).is_invalid_source());
        assert!(!Mac::new([1, 0x80, 0xc2, 0, 0, 0x10]).is_link_local());
        assert!(!Mac::new([1, 0x80, 0xc2, 0, 1, 0]).is_link_local());
        assert!(!Mac::new([2, 0, 0, 0, 0, 1]).is_group());
    }
}
