//! Requests of workload `block`: what is asked of a disk, which disk it is, and how many
//! requests go into one record.
//!
//! A record holds as many as fit, each told by how it differs from the one before. They come
//! from a guest, so reading them checks everything and cannot panic.

use crate::catalogue::{Op, OpSet, Workload};
use crate::codec::{Error, Reader, Writer};
use crate::frame::MAX_BODY;
use crate::job::Job;
use core::fmt;

/// The most bytes of requests in one record: what remains of a body after clock, operation
/// and length.
pub const MAX_PACKED: usize = MAX_BODY - 16;

/// Bytes of a small request, and of the units in which a disk's contents are known.
pub const SMALL: u32 = 4096;

/// Bytes of a large request.
pub const LARGE: u32 = 1 << 20;

/// What a line begins with in which the agent tells of the disk: then a name and the rest.
pub const FACT_PREFIX: &str = "trapline-disk-";

/// What is asked of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// To read.
    Read,
    /// To write; done when the disk says so, which may be before it is safe.
    Write,
    /// To write, and to make it safe (`fdatasync`).
    WriteSync,
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// Its operation.
    pub op: Op,
    /// What is asked.
    pub kind: Kind,
    /// Bytes of a request: [`SMALL`] ones are at random places, [`LARGE`] ones in order.
    pub bytes: u32,
    /// How many are under way at a time.
    pub depth: u32,
}

macro_rules! transfers {
    ($($op:ident: $kind:ident $bytes:ident $depth:literal;)*) => {
        impl Transfer {
            /// Every transfer there is, in the order in which tables show them and in
            /// which they are made: reads before writes.
            pub const ALL: [Transfer; [$($depth),*].len()] = [$(Transfer {
                op: Op::$op,
                kind: Kind::$kind,
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
    /// The transfer that `op` measures, if it is one of workload `block`.
    pub fn of(op: Op) -> Option<Transfer> {
        Self::ALL.into_iter().find(|transfer| transfer.op == op)
    }

    /// Whether requests are at random places.
    pub fn is_random(&self) -> bool {
        self.bytes == SMALL
    }

    /// Requests that a disk of this job has room for, no two at one place.
    pub fn places(&self, job: &Job) -> u32 {
        job.disk_mib.saturating_mul(LARGE / self.bytes)
    }

    /// How many requests `job` makes: all that it says of small ones at depth 32, and of
    /// others fewer, that take about as long.
    pub fn requests(&self, job: &Job) -> u32 {
        let share = match (self.kind, self.bytes, self.depth) {
            (_, LARGE, _) => 128,
            (Kind::WriteSync, ..) => 32,
            (_, _, 1) => 4,
            _ => 1,
        };
        (job.requests / share).clamp(1, self.places(job).max(1))
    }
}

/// The set of all operations of workload `block`.
pub fn operations() -> OpSet {
    Workload::Block.set()
}

/// Which disk is measured: all that is on it is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// The file that this descriptor of the process has open.
    Descriptor(u8),
    /// The device of this name in `/dev`, zeros behind it.
    Device([u8; NAME]),
}

/// The longest name of a device.
const NAME: usize = 8;

impl Disk {
    /// The disk called `name` on a command line: `fd4`, or `vda`.
    pub fn from_name(name: &str) -> Option<Disk> {
        if let Some(number) = name.strip_prefix("fd") {
            return number.parse().ok().map(Disk::Descriptor);
        }
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let mut device = [0; NAME];
        device
            .get_mut(..name.len())?
            .copy_from_slice(name.as_bytes());
        (is_plain && !name.is_empty()).then_some(Disk::Device(device))
    }
}

/// The name that [`Disk::from_name`] reads.
impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Descriptor(number) => write!(f, "fd{number}"),
            Self::Device(name) => {
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                f.write_str(core::str::from_utf8(name).unwrap_or_default())
            }
        }
    }
}

/// One request, in ticks of the clock of whoever makes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// When it was made.
    pub start: u64,
    /// When it was done.
    pub end: u64,
}

/// Packs the first of `requests`, which stand in the order in which they were made, as many
/// as fit `buffer`. Returns how many, and the bytes used.
pub fn pack(requests: &[Request], buffer: &mut [u8; MAX_PACKED]) -> (usize, usize) {
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

/// The requests that [`pack`] has packed, in order.
///
/// # Errors
/// `sink` has had those before the first that is damaged.
pub fn unpack(bytes: &[u8], sink: &mut impl FnMut(Request)) -> Result<(), Error> {
    let mut input = Reader::new(bytes);
    let mut start = 0_u64;
    while !input.is_empty() {
        start = start.checked_add(input.number()?).ok_or(Error::Malformed)?;
        let end = start.checked_add(input.number()?).ok_or(Error::Malformed)?;
        sink(Request { start, end });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    #[test]
    fn requests_come_back_as_they_were_and_damage_is_noticed() {
        let request = |number: u64| Request {
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
    fn every_operation_of_the_workload_is_a_transfer_and_fits_its_disk() {
        let job = Job::EMPTY;
        let ops: Vec<_> = Transfer::ALL.iter().map(|transfer| transfer.op).collect();
        assert_eq!(ops, Workload::Block.operations().collect::<Vec<_>>());
        for transfer in Transfer::ALL {
            let small = Job { disk_mib: 1, ..job };
            assert!(transfer.requests(&job) <= transfer.places(&job));
            assert!(transfer.requests(&small) <= transfer.places(&small));
            assert_eq!(Transfer::of(transfer.op), Some(transfer));
        }
        assert_eq!(Transfer::of(Op::Getpid), None);
    }

    #[test]
    fn a_disk_survives_its_own_name_and_paths_are_refused() {
        for name in ["fd4", "vda", "ubda", "nvme0n1"] {
            assert_eq!(Disk::from_name(name).unwrap().to_string(), name);
        }
        for name in ["", "fd", "fd999", "../vda", "vda/1", "averylongname"] {
            assert_eq!(Disk::from_name(name), None, "{name}");
        }
    }
}
