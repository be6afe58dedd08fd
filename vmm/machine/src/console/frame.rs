//! Frames in the console's output.

use trapline_abi::frame::{CHECKSUM, HEADER, MAX_BODY, SYNC};

/// Parser state of a frame in the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Bytes seen; 0 outside a frame.
    seen: usize,
    /// Length, once the header is complete.
    length: usize,
}

impl Frame {
    /// Processes a byte; returns true if it completes a frame.
    pub fn take(&mut self, byte: u8) -> bool {
        self.seen = match self.seen {
            0 | 1 if byte == SYNC[0] => 1,
            1 if byte == SYNC[1] => 2,
            0 | 1 => 0,
            2 => 3,
            3 => {
                self.length = byte.into();
                4
            }
            4 => self.measure(byte),
            seen => seen + 1,
        };
        let complete = self.seen > HEADER && self.seen == self.length;
        if complete {
            self.seen = 0;
        }
        complete
    }

    fn measure(&mut self, high: u8) -> usize {
        let body = self.length | usize::from(high) << 8;
        self.length = HEADER + body + CHECKSUM;
        if body <= MAX_BODY {
            HEADER
        } else {
            0
        }
    }

    /// Returns true if the last byte is not within a frame.
    pub fn is_outside(&self) -> bool {
        self.seen == 0
    }
}
