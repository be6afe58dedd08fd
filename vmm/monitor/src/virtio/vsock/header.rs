//! Packet headers (virtio 1.2, section 5.10.6).

/// Length in bytes.
pub const LENGTH: usize = 44;

/// Stream sockets, the only supported type.
pub const STREAM: u16 = 1;

/// Operations.
pub mod operation {
    pub const REQUEST: u16 = 1;
    pub const RESPONSE: u16 = 2;
    pub const RST: u16 = 3;
    pub const SHUTDOWN: u16 = 4;
    pub const RW: u16 = 5;
    pub const CREDIT_UPDATE: u16 = 6;
    pub const CREDIT_REQUEST: u16 = 7;
}

/// Flags of SHUTDOWN.
pub const RECEIVES_NO_MORE: u32 = 1;
pub const SENDS_NO_MORE: u32 = 2;
pub const NEITHER: u32 = RECEIVES_NO_MORE | SENDS_NO_MORE;

/// A header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub source_cid: u64,
    pub destination_cid: u64,
    pub source_port: u32,
    pub destination_port: u32,
    /// Payload length in bytes.
    pub length: u32,
    pub kind: u16,
    pub operation: u16,
    pub flags: u32,
    /// `buf_alloc`: buffer size of the sender.
    pub buffer: u32,
    /// `fwd_cnt`: bytes consumed by the sender.
    pub forwarded: u32,
}

impl Header {
    /// Decodes a header.
    pub fn read(bytes: &[u8; LENGTH]) -> Self {
        let four = |at: usize| {
            let [a, b, c, d] = [0, 1, 2, 3].map(|byte| bytes[at + byte]);
            u32::from_le_bytes([a, b, c, d])
        };
        let eight = |at| u64::from(four(at)) | u64::from(four(at + 4)) << 32;
        Self {
            source_cid: eight(0),
            destination_cid: eight(8),
            source_port: four(16),
            destination_port: four(20),
            length: four(24),
            kind: four(28) as u16,
            operation: (four(28) >> 16) as u16,
            flags: four(32),
            buffer: four(36),
            forwarded: four(40),
        }
    }

    /// Encodes the header.
    pub fn bytes(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(&self.source_cid.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.destination_cid.to_le_bytes());
        let kind = u32::from(self.kind) | u32::from(self.operation) << 16;
        let words = [
            self.source_port,
            self.destination_port,
            self.length,
            kind,
            self.flags,
            self.buffer,
            self.forwarded,
        ];
        for (place, word) in bytes[16..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Returns the reset that answers this packet.
    pub fn reset_packet(&self) -> Self {
        Self {
            source_cid: self.destination_cid,
            destination_cid: self.source_cid,
            source_port: self.destination_port,
            destination_port: self.source_port,
            kind: self.kind,
            operation: operation::RST,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_layout_matches_the_specification() {
        let bytes: [u8; LENGTH] = std::array::from_fn(|at| at as u8);
        let header = Header::read(&bytes);
        assert_eq!(header.bytes(), bytes);
        assert_eq!(header.source_cid, 0x0706_0504_0302_0100);
        assert_eq!(header.destination_port, 0x1716_1514);
        assert_eq!((header.kind, header.operation), (0x1d1c, 0x1f1e));
        assert_eq!(header.forwarded, 0x2b2a_2928);
        let reset_packet = header.reset_packet();
        assert_eq!(reset_packet.source_port, header.destination_port);
        assert_eq!(
            (reset_packet.operation, reset_packet.length),
            (operation::RST, 0)
        );
    }
}
