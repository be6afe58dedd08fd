//! What a driver asks of a disk (virtio 1.2, section 5.2.6): 16 bytes and perhaps data
//! that the device reads, then perhaps room for data, and one byte for the status. How that
//! is cut into pieces of memory means nothing.

use super::{Data, Shape, Status, Work, DISCARD, IDENTITY, MOST_CLEARED, SECTOR, WRITE_ZEROES};
use crate::virtio::{Broken, Chain, Memory};

const HEADER: usize = 16;
const RANGE: usize = 16;

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD_TYPE: u32 = 11;
const WRITE_ZEROES_TYPE: u32 = 13;

/// Of a range: it need not take room.
const UNMAP: u32 = 1;

/// Something that makes sense; offsets and lengths in bytes, within the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    Nothing,
    Read {
        offset: u64,
        length: usize,
    },
    Write {
        offset: u64,
        length: usize,
    },
    Flush,
    Identity {
        length: usize,
    },
    Discard {
        offset: u64,
        length: u64,
    },
    Clear {
        offset: u64,
        length: u64,
        unmap: bool,
    },
}

/// What came of reading one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    For(Request),
    Refused(Status),
}

const FAILED: Asked = Asked::Refused(Status::Failed);
const UNSUPPORTED: Asked = Asked::Refused(Status::Unsupported);

/// What `chain` asks of a disk of this shape, with these features.
///
/// # Errors
/// It has no place for its status.
pub fn read(chain: &Chain, memory: &Memory, shape: &Shape, features: u64) -> Result<Asked, Broken> {
    let room = chain
        .writable_length()
        .checked_sub(1)
        .ok_or(Broken::Request)?;
    let Some(given) = chain.readable_length().checked_sub(HEADER) else {
        return Ok(FAILED);
    };
    let mut header = [0; HEADER];
    chain.read(memory, 0, &mut header)?;
    let (kind, sector) = (number(&header[..4]) as u32, number(&header[8..]));
    let ranges = (given == RANGE).then_some(HEADER);
    let asked = match kind {
        IN => data(shape, sector, room).map(|offset| Request::Read {
            offset,
            length: room,
        }),
        OUT if shape.read_only => None,
        OUT => data(shape, sector, given).map(|offset| Request::Write {
            offset,
            length: given,
        }),
        FLUSH => Some(Request::Flush),
        GET_ID => Some(Request::Identity {
            length: room.min(IDENTITY),
        }),
        DISCARD_TYPE if features & DISCARD != 0 => {
            return range(chain, memory, shape, ranges, false)
        }
        WRITE_ZEROES_TYPE if features & WRITE_ZEROES != 0 => {
            return range(chain, memory, shape, ranges, true)
        }
        _ => return Ok(UNSUPPORTED),
    };
    Ok(asked.map_or(FAILED, Asked::For))
}

/// Where so much data begins, in bytes: some, in whole sectors, all of them on the disk.
fn data(shape: &Shape, sector: u64, length: usize) -> Option<u64> {
    let length = length as u64;
    let fits = length != 0 && length.is_multiple_of(SECTOR);
    fits.then(|| within(shape, sector, length / SECTOR))?
}

/// Where `sectors` from `sector` on begin, in bytes, if the disk has them.
fn within(shape: &Shape, sector: u64, sectors: u64) -> Option<u64> {
    let end = sector.checked_add(sectors)?;
    end.checked_mul(SECTOR)?;
    (end <= shape.sectors).then_some(sector * SECTOR)
}

/// A range to be given up or cleared, at byte `at` of what is given.
fn range(
    chain: &Chain,
    memory: &Memory,
    shape: &Shape,
    at: Option<usize>,
    clear: bool,
) -> Result<Asked, Broken> {
    let (Some(at), false) = (at, shape.read_only) else {
        return Ok(FAILED);
    };
    let mut bytes = [0; RANGE];
    chain.read(memory, at, &mut bytes)?;
    let (sector, sectors) = (number(&bytes[..8]), number(&bytes[8..12]));
    let flags = number(&bytes[12..]) as u32;
    let known = if clear { UNMAP } else { 0 };
    if flags & !known != 0 {
        return Ok(UNSUPPORTED);
    }
    let offset = within(shape, sector, sectors);
    let Some(offset) = offset.filter(|_| (1..=u64::from(MOST_CLEARED)).contains(&sectors)) else {
        return Ok(FAILED);
    };
    let length = sectors * SECTOR;
    Ok(Asked::For(match clear {
        false => Request::Discard { offset, length },
        true => Request::Clear {
            offset,
            length,
            unmap: flags & UNMAP != 0,
        },
    }))
}

impl Request {
    /// What is to be done to the disk, if anything.
    pub fn work<'a>(&self, chain: &'a Chain) -> Option<Work<'a>> {
        Some(match *self {
            Self::Nothing | Self::Identity { .. } => return None,
            Self::Flush => Work::Flush,
            Self::Read { offset, length } => Work::Read {
                offset,
                into: Data {
                    parts: chain.writable(),
                    skip: 0,
                    length,
                },
            },
            Self::Write { offset, length } => Work::Write {
                offset,
                from: Data {
                    parts: chain.readable(),
                    skip: HEADER,
                    length,
                },
            },
            Self::Discard { offset, length } => Work::Discard { offset, length },
            Self::Clear {
                offset,
                length,
                unmap,
            } => Work::Clear {
                offset,
                length,
                unmap,
            },
        })
    }
}

/// Little-endian.
fn number(bytes: &[u8]) -> u64 {
    let numbers = bytes.iter().rev();
    numbers.fold(0, |number, byte| number << 8 | u64::from(*byte))
}
