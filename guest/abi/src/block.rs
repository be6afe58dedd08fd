//! Disk requests of workload `block` and their packed form in records.
//!
//! A record holds as many requests as fit, delta-encoded. They come from a guest, so unpacking
//! checks everything and cannot panic.

use crate::codec::{Error, Reader, Writer, MAX_BODY};
use crate::job::Job;
use crate::operation::{Need, Op, OpSet};

pub use crate::job::Disk;

/// Maximum size of the packed requests of one record, in bytes: the body without clock, operation
/// and length.
pub const MAX_PACKED: usize = MAX_BODY - 16;

/// Bytes of a small request, and of a unit of the test pattern on a disk.
pub const SMALL: u32 = 4096;

/// Bytes of a large request.
pub const LARGE: u32 = 1 << 20;

/// Prefix of a line in which the agent describes the disk: a name and the value follow.
pub const FACT_PREFIX: &str = "trapline-disk-";

/// Bijective hash of `value` (finalizer of SplitMix64, Steele et al. 2014).
#[inline]
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// Access to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Read.
    Read,
    /// Write, complete when the disk reports it, possibly before the data is durable.
    Write,
    /// Write and flush (`fdatasync`).
    WriteSync,
}

/// Series of equal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// Operation that measures it.
    pub op: Op,
    /// Access of each request.
    pub access: Access,
    /// Bytes of a request: [`SMALL`] at random places, or [`LARGE`] in order.
    pub bytes: u32,
    /// Number of requests in flight.
    pub depth: u32,
}

macro_rules! transfers {
    ($($op:ident: $access:ident $bytes:ident $depth:literal;)*) => {
        impl Transfer {
            /// All transfers, in the order of display and execution: reads before writes.
            pub const ALL: [Transfer; [$($depth),*].len()] = [$(Transfer {
                op: Op::$op,
                access: Access::$access,
                bytes: $bytes,
                depth: $depth,
            }),*];
        }
    };
}

transfers! {
    Read4k1: Read SMALL 1;
    Read4k32: Read SMALL 32;
    Read1m1: Read LARGE 1;
    Read1m32: Read LARGE 32;
    Write4k1: Write SMALL 1;
    Write4k32: Write SMALL 32;
    Write4kSync: WriteSync SMALL 1;
    Write1m1: Write LARGE 1;
    Write1m32: Write LARGE 32;
}

impl Transfer {
    /// Returns the transfer that `op` measures.
    pub fn from_op(op: Op) -> Option<Transfer> {
        Self::ALL.into_iter().find(|transfer| transfer.op == op)
    }

    /// Returns true if requests are at random places.
    pub fn is_random(&self) -> bool {
        self.bytes == SMALL
    }

    /// Returns the number of distinct places for requests on the disk of `job`.
    pub fn places(&self, job: &Job) -> u32 {
        job.disk_mib.saturating_mul(LARGE / self.bytes)
    }

    /// Returns the number of requests of `job`: [`Job::requests`] small ones at depth 32, and
    /// fewer of the others, which then take about as long.
    pub fn requests(&self, job: &Job) -> u32 {
        let share = match (self.access, self.bytes, self.depth) {
            (_, LARGE, _) => 128,
            (Access::WriteSync, ..) => 32,
            (_, _, 1) => 4,
            _ => 1,
        };
        (job.requests / share).clamp(1, self.places(job).max(1))
    }
}

/// Returns the set of operations of workload `block`.
pub fn operations() -> OpSet {
    Need::Disk.operations()
}

/// Timestamps of one request, in ticks of the requesting program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskRequest {
    /// Submission.
    pub start: u64,
    /// Completion.
    pub end: u64,
}

/// Packs as many of `requests`, in the order of submission, as fit into `buffer`. Returns their
/// number and the bytes used.
pub fn pack(requests: &[DiskRequest], buffer: &mut [u8; MAX_PACKED]) -> (usize, usize) {
    let mut before = 0;
    let (mut count, mut used) = (0, 0);
    for request in requests {
        let mut out = Writer::new(&mut buffer[used..]);
        let written = out
            .number(request.start.wrapping_sub(before))
            .and_then(|()| out.number(request.end.wrapping_sub(request.start)));
        if written.is_err() {
            break;
        }
        used += out.used();
        count += 1;
        before = request.start;
    }
    (count, used)
}

/// Passes the requests that [`pack`] has packed to `sink`, in order.
///
/// # Errors
/// Fails at the first damaged request; `sink` has received those before it.
pub fn unpack(bytes: &[u8], sink: &mut impl FnMut(DiskRequest)) -> Result<(), Error> {
    let mut input = Reader::new(bytes);
    let mut start = 0_u64;
    while !input.is_empty() {
        start = start.checked_add(input.number()?).ok_or(Error::Malformed)?;
        let end = start.checked_add(input.number()?).ok_or(Error::Malformed)?;
        sink(DiskRequest { start, end });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use std::vec::Vec;

    #[test]
    fn requests_are_equal_after_unpacking_and_damage_is_rejected() {
        let request = |number: u64| DiskRequest {
            start: (1 << 50) + 30_000 * number,
            end: (1 << 50) + 30_000 * number + 700_000,
        };
        let requests: Vec<_> = (0..1000).map(request).collect();
        let mut buffer = [0; MAX_PACKED];
        let (count, used) = pack(&requests, &mut buffer);
        assert!((100..1000).contains(&count), "{count}");
        let mut back = Vec::new();
        unpack(&buffer[..used], &mut |request| back.push(request)).unwrap();
        assert_eq!(back, requests[..count]);
        assert!(unpack(&buffer[..used - 1], &mut |_| {}).is_err());
        let beyond = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1];
        assert_eq!(unpack(&beyond, &mut |_| {}), Err(Error::Malformed));
    }

    #[test]
    fn every_operation_has_a_transfer_that_fits_the_disk() {
        let job = Job::EMPTY;
        let ops: Vec<_> = Transfer::ALL.iter().map(|transfer| transfer.op).collect();
        assert_eq!(ops, Workload::Block.operations().collect::<Vec<_>>());
        for transfer in Transfer::ALL {
            let small = Job { disk_mib: 1, ..job };
            assert!(transfer.requests(&job) <= transfer.places(&job));
            assert!(transfer.requests(&small) <= transfer.places(&small));
            assert_eq!(Transfer::from_op(transfer.op), Some(transfer));
            assert_eq!(transfer.op.has_markers(), transfer.depth == 1);
        }
        assert_eq!(Transfer::from_op(Op::Getpid), None);
    }
}
