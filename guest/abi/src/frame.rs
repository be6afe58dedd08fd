//! Frames: records in a console stream that also contains text.
//!
//! A frame is `F5 54`, the kind of the record, the length (2 bytes, little endian), the sender's
//! clock (base 128), the payload, and a CRC-32 of everything between the sync bytes and the
//! checksum. The length covers clock and payload. All other bytes are text: a guest's log,
//! firmware output or garbage. After a damaged frame the decoder continues at the next byte, so
//! at most the damaged record is lost.

pub use crate::codec::MAX_BODY;

use crate::codec::{Error, Reader, Writer};
use crate::record::Record;

/// First two bytes of every frame. The first one never occurs in UTF-8.
pub const SYNC: [u8; 2] = [0xf5, b'T'];

/// Length of sync bytes, kind and length.
pub const HEADER: usize = 5;

/// Length of the checksum.
pub const CHECKSUM: usize = 4;

/// Maximum length of a frame.
pub const MAX_FRAME: usize = HEADER + MAX_BODY + CHECKSUM;

/// Maximum output in one [`Record::Relay`]: the body without clock, child, channel and length.
pub const MAX_RELAY: usize = MAX_BODY - 16;

/// Maximum length of a text in a record; [`truncate`] cuts to it.
pub const MAX_TEXT: usize = 512;

/// Writes `record` with timestamp `at` as a frame into `buffer`. Returns its length in bytes.
///
/// # Errors
/// Returns [`Error::Full`] if the text or bytes of the record are too long.
pub fn encode(record: &Record<'_>, at: u64, buffer: &mut [u8; MAX_FRAME]) -> Result<usize, Error> {
    let mut body = Writer::new(&mut buffer[HEADER..HEADER + MAX_BODY]);
    body.number(at)?;
    record.write(&mut body)?;
    let length = body.used();
    buffer[..2].copy_from_slice(&SYNC);
    buffer[2] = record.kind();
    buffer[3..HEADER].copy_from_slice(&(length as u16).to_le_bytes());
    let end = HEADER + length;
    let checksum = crc32(&buffer[2..end]);
    buffer[end..end + CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    Ok(end + CHECKSUM)
}

/// Returns the longest prefix of `text` that fits into a record.
pub fn truncate(text: &str) -> &str {
    if text.len() <= MAX_TEXT {
        return text;
    }
    let mut end = MAX_TEXT;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Output of a [`Decoder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// Record and its timestamp on the sender's clock.
    Record(Record<'a>, u64),
    /// Byte outside of frames.
    Text(u8),
    /// Frame with a wrong checksum or content. Its bytes follow as text, except for frames inside
    /// it.
    Damaged,
}

/// Incremental decoder of a console stream.
pub struct Decoder {
    buffer: [u8; MAX_FRAME],
    used: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

/// Content at the front of the buffer.
enum Front {
    /// Frame of this length with a correct checksum.
    Frame(usize),
    /// Possible beginning of a frame.
    Unfinished,
    /// Not a frame; damaged if it has the header of one.
    Other { damaged: bool },
}

impl Decoder {
    /// Creates a decoder for the beginning of a stream.
    pub const fn new() -> Self {
        Self {
            buffer: [0; MAX_FRAME],
            used: 0,
        }
    }

    /// Decodes the next bytes of the stream and passes complete items to `sink`, in order.
    pub fn feed(&mut self, mut bytes: &[u8], sink: &mut impl FnMut(Item<'_>)) {
        while !bytes.is_empty() {
            let room = (MAX_FRAME - self.used).min(bytes.len());
            let (now, later) = bytes.split_at(room);
            self.buffer[self.used..self.used + room].copy_from_slice(now);
            self.used += room;
            bytes = later;
            self.drain(sink, false);
        }
    }

    /// Ends the stream: passes the remaining bytes to `sink` as text.
    pub fn finish(&mut self, sink: &mut impl FnMut(Item<'_>)) {
        self.drain(sink, true);
    }

    fn drain(&mut self, sink: &mut impl FnMut(Item<'_>), ended: bool) {
        let mut from = 0;
        while from < self.used {
            let pending = &self.buffer[from..self.used];
            from += match inspect(pending) {
                Front::Unfinished if !ended => break,
                Front::Frame(length) => deliver(&pending[..length], sink),
                Front::Unfinished => reject(pending, false, sink),
                Front::Other { damaged } => reject(pending, damaged, sink),
            };
        }
        self.buffer.copy_within(from..self.used, 0);
        self.used -= from;
    }
}

/// Passes a frame with a correct checksum on; returns the number of consumed bytes.
fn deliver(frame: &[u8], sink: &mut impl FnMut(Item<'_>)) -> usize {
    match open(frame) {
        Ok((record, at)) => {
            sink(Item::Record(record, at));
            frame.len()
        }
        Err(_) => reject(frame, true, sink),
    }
}

fn reject(pending: &[u8], damaged: bool, sink: &mut impl FnMut(Item<'_>)) -> usize {
    if damaged {
        sink(Item::Damaged);
    }
    sink(Item::Text(pending[0]));
    1
}

/// Returns the length in bytes of the frame with this header; `None` if the header is invalid.
pub fn frame_length(header: &[u8; HEADER]) -> Option<usize> {
    let body = usize::from(u16::from_le_bytes([header[3], header[4]]));
    (header[..2] == SYNC && body <= MAX_BODY).then_some(HEADER + body + CHECKSUM)
}

fn inspect(pending: &[u8]) -> Front {
    if pending[0] != SYNC[0] || pending.len() >= 2 && pending[1] != SYNC[1] {
        return Front::Other { damaged: false };
    }
    let Some(header) = pending.first_chunk() else {
        return Front::Unfinished;
    };
    let Some(length) = frame_length(header) else {
        return Front::Other { damaged: true };
    };
    let Some(frame) = pending.get(..length) else {
        return Front::Unfinished;
    };
    let (content, stored) = frame.split_at(length - CHECKSUM);
    if crc32(&content[2..]).to_le_bytes() == stored {
        Front::Frame(length)
    } else {
        Front::Other { damaged: true }
    }
}

fn open(frame: &[u8]) -> Result<(Record<'_>, u64), Error> {
    let body = &frame[HEADER..frame.len() - CHECKSUM];
    let at = Reader::new(body).number()?;
    let clock_length = body.iter().take_while(|byte| **byte & 0x80 != 0).count() + 1;
    Ok((Record::read(frame[2], &body[clock_length..])?, at))
}

/// CRC-32 as in ISO-HDLC (polynomial 0x04c11db7 reflected), four bits at a time: the table takes
/// 64 bytes of a guest's cache instead of 1,024.
pub fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 16] = nibble_table();
    let mut crc = !0u32;
    for &byte in bytes {
        crc ^= u32::from(byte);
        crc = crc >> 4 ^ TABLE[(crc & 15) as usize];
        crc = crc >> 4 ^ TABLE[(crc & 15) as usize];
    }
    !crc
}

const fn nibble_table() -> [u32; 16] {
    let mut table = [0; 16];
    let mut index = 0;
    while index < 16 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 4 {
            value = if value & 1 == 1 {
                value >> 1 ^ 0xedb8_8320
            } else {
                value >> 1
            };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
}
