//! Copies between the memory of two guests.

use crate::frame::{Header, HEADER};
use crate::net_header::{self, NET_HEADER};
use crate::ring::Segment;
use std::ptr::NonNull;

/// Bytes of both headers.
pub const HEADERS: usize = NET_HEADER as usize + HEADER;

/// Reads the Ethernet header of a frame of at least [`HEADERS`] bytes.
#[inline]
pub fn read_header(segments: &[Segment]) -> Header {
    match segments {
        // SAFETY: the segment has both headers.
        [first, ..] if first.length as usize >= HEADERS => unsafe {
            Header::read(first.start.add(NET_HEADER as usize))
        },
        _ => {
            let mut bytes = [0; HEADER];
            read(segments, NET_HEADER, &mut bytes);
            Header::new(&bytes)
        }
    }
}

/// Copies bytes of a frame from an offset on.
#[inline(never)]
pub fn read(segments: &[Segment], offset: u32, into: &mut [u8]) {
    let (mut skip, mut done) = (offset as usize, 0);
    for segment in segments {
        let length = segment.length as usize;
        if skip >= length {
            skip -= length;
            continue;
        }
        let count = (length - skip).min(into.len() - done);
        // SAFETY: the bytes are in the segment, which lies in mapped memory; `into` is no guest's memory.
        unsafe {
            let from = segment.start.as_ptr().add(skip);
            std::ptr::copy_nonoverlapping(from, into.as_mut_ptr().add(done), count);
        }
        (skip, done) = (0, done + count);
        if done == into.len() {
            return;
        }
    }
}

/// A position in a list of segments.
struct Cursor<'a> {
    segments: &'a [Segment],
    offset: usize,
}

impl Cursor<'_> {
    /// Returns the bytes at the position, not empty unless at the end.
    fn here(&mut self) -> (*mut u8, usize) {
        while let [first, rest @ ..] = self.segments {
            let left = first.length as usize - self.offset;
            if left > 0 {
                // SAFETY: the offset is less than the length.
                return (unsafe { first.start.as_ptr().add(self.offset) }, left);
            }
            (self.segments, self.offset) = (rest, 0);
        }
        (std::ptr::null_mut(), 0)
    }

    fn skip(&mut self, mut count: usize) {
        while count > 0 {
            let (_, left) = self.here();
            if left == 0 {
                return;
            }
            let step = count.min(left);
            self.offset += step;
            count -= step;
        }
    }

    fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (to, left) = self.here();
            let count = left.min(bytes.len());
            if count == 0 {
                return;
            }
            // SAFETY: the bytes at the position are writable, and are no slice of this process.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, count) };
            self.offset += count;
            bytes = &bytes[count..];
        }
    }
}

/// Bytes that are copied at a time, if there are not too many.
const STEP: usize = 32;

/// Copies bytes of memory that may overlap or change meanwhile.
///
/// # Safety
/// Both have this many bytes.
#[inline(always)]
unsafe fn copy_bytes(from: NonNull<u8>, to: NonNull<u8>, count: usize) {
    // SAFETY: all accesses are within `count` bytes. The result is unspecified if both overlap, which harms only guests that
    // map the same memory.
    unsafe {
        if !(STEP..=4 * STEP).contains(&count) {
            return from.copy_to(to, count);
        }
        let step = |offset: usize| {
            let bytes = from.add(offset).cast::<[u8; STEP]>().read_unaligned();
            to.add(offset).cast::<[u8; STEP]>().write_unaligned(bytes);
        };
        let mut offset = 0;
        while offset + STEP < count {
            step(offset);
            offset += STEP;
        }
        step(count - STEP);
    }
}

/// Writes both headers, and copies the rest of a frame of `length` bytes, the net header included, of which the segments have
/// as many or more. Guests may map the same memory: `from` and `to` may overlap, and change meanwhile.
#[inline]
pub fn copy(from: &[Segment], to: &[Segment], buffers: u16, header: Header, length: u32) {
    match (from, to) {
        ([source], [target]) if source.length >= length && target.length >= length => {
            // SAFETY: both segments have `length` bytes, which include the headers.
            unsafe {
                net_header::write(target.start, buffers);
                header.write(target.start.add(NET_HEADER as usize));
                let rest = length as usize - HEADERS;
                copy_bytes(source.start.add(HEADERS), target.start.add(HEADERS), rest);
            }
        }
        _ => copy_parts(from, to, buffers, header, length),
    }
}

#[cold]
fn copy_parts(from: &[Segment], to: &[Segment], buffers: u16, header: Header, length: u32) {
    let mut source = Cursor {
        segments: from,
        offset: 0,
    };
    let mut target = Cursor {
        segments: to,
        offset: 0,
    };
    target.write(&net_header::bytes(buffers));
    target.write(&header.bytes());
    source.skip(HEADERS);
    let mut left = length as usize - HEADERS;
    while left > 0 {
        let (from, available) = source.here();
        let (to, room) = target.here();
        let count = left.min(available).min(room);
        if count == 0 {
            return;
        }
        // SAFETY: both are mapped memory of this length; the areas may overlap.
        unsafe { std::ptr::copy(from, to, count) };
        source.offset += count;
        target.offset += count;
        left -= count;
    }
}
