//! Parsing of requests (virtio 1.2, section 5.2.6): a header of 16 bytes, data, and a status byte, split into descriptors
//! in any way.

use super::{Data, Geometry, Status, Work, DISCARD, IDENTITY, MAX_CLEARED, SECTOR, WRITE_ZEROES};
use crate::virtio::{Chain, DriverError, Memory};

const HEADER: usize = 16;
const RANGE: usize = 16;

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD_TYPE: u32 = 11;
const WRITE_ZEROES_TYPE: u32 = 13;

/// Range flag: deallocate.
const UNMAP: u32 = 1;

/// A valid request; offsets and lengths in bytes, within the disk.
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

/// Result of parsing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    For(Request),
    Refused(Status),
}

const FAILED: Parsed = Parsed::Refused(Status::Failed);
const UNSUPPORTED: Parsed = Parsed::Refused(Status::Unsupported);

/// Parses the request in `chain`.
///
/// # Errors
/// The chain has no status byte.
pub fn read(
    chain: &Chain,
    memory: &Memory,
    geometry: &Geometry,
    features: u64,
) -> Result<Parsed, DriverError> {
    let room = chain
        .writable_length()
        .checked_sub(1)
        .ok_or(DriverError::Request)?;
    let Some(given) = chain.readable_length().checked_sub(HEADER) else {
        return Ok(FAILED);
    };
    let mut header = [0; HEADER];
    chain.read(memory, 0, &mut header)?;
    let (kind, sector) = (number(&header[..4]) as u32, number(&header[8..]));
    let ranges = (given == RANGE).then_some(HEADER);
    let asked = match kind {
        IN => data(geometry, sector, room).map(|offset| Request::Read {
            offset,
            length: room,
        }),
        OUT if geometry.read_only => None,
        OUT => data(geometry, sector, given).map(|offset| Request::Write {
            offset,
            length: given,
        }),
        FLUSH => Some(Request::Flush),
        GET_ID => Some(Request::Identity {
            length: room.min(IDENTITY),
        }),
        DISCARD_TYPE if features & DISCARD != 0 => {
            return range(chain, memory, geometry, ranges, false)
        }
        WRITE_ZEROES_TYPE if features & WRITE_ZEROES != 0 => {
            return range(chain, memory, geometry, ranges, true)
        }
        _ => return Ok(UNSUPPORTED),
    };
    Ok(asked.map_or(FAILED, Parsed::For))
}

/// Returns the byte offset of a transfer: whole sectors within the disk.
fn data(geometry: &Geometry, sector: u64, length: usize) -> Option<u64> {
    let length = length as u64;
    let fits = length != 0 && length.is_multiple_of(SECTOR);
    fits.then(|| within(geometry, sector, length / SECTOR))?
}

/// Returns the byte offset of `sectors` from `sector`, if within the disk.
fn within(geometry: &Geometry, sector: u64, sectors: u64) -> Option<u64> {
    let end = sector.checked_add(sectors)?;
    end.checked_mul(SECTOR)?;
    (end <= geometry.sectors).then_some(sector * SECTOR)
}

/// Parses a discard or write-zeroes range at byte `at`.
fn range(
    chain: &Chain,
    memory: &Memory,
    geometry: &Geometry,
    at: Option<usize>,
    clear: bool,
) -> Result<Parsed, DriverError> {
    let (Some(at), false) = (at, geometry.read_only) else {
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
    let offset = within(geometry, sector, sectors);
    let Some(offset) = offset.filter(|_| (1..=u64::from(MAX_CLEARED)).contains(&sectors)) else {
        return Ok(FAILED);
    };
    let length = sectors * SECTOR;
    Ok(Parsed::For(if clear {
        Request::Clear {
            offset,
            length,
            unmap: flags & UNMAP != 0,
        }
    } else {
        Request::Discard { offset, length }
    }))
}

impl Request {
    /// Returns the disk operation, if any.
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

/// Decodes a little-endian number.
fn number(bytes: &[u8]) -> u64 {
    let numbers = bytes.iter().rev();
    numbers.fold(0, |number, byte| number << 8 | u64::from(*byte))
}
