//! A disk without a file: orders are checked, and complete when the input says so.

use super::Subject;
use crate::virtio::block::{Block, Data, Geometry, Order, Status, Work, MAX, SECTOR};
use crate::virtio::driver::{Chunk, Driver};
use crate::virtio::{Device, DriverError, Memory, Progress, Transport};
use alloc::vec;
use alloc::vec::Vec;
use arbitrary::{Result, Unstructured};

/// Server of a disk.
#[derive(Debug)]
pub struct Disk {
    geometry: Geometry,
    out: Vec<u16>,
}

const SECTORS: u64 = 40;

/// Address of a request's status.
const STATUS: u64 = 0x200;

impl Disk {
    /// Returns a sector that is often valid, or nearly.
    fn sector(&self, input: &mut Unstructured<'_>) -> Result<u64> {
        match input.int_in_range(0..=7)? {
            0..=4 => input.int_in_range(0..=SECTORS + 1),
            5 | 6 => Ok(self.geometry.sectors - input.int_in_range(0..=1)?),
            _ => input.arbitrary(),
        }
    }
}

impl Subject for Disk {
    type Device = Block;

    fn begin(input: &mut Unstructured<'_>) -> Result<(Block, Self)> {
        let geometry = Geometry {
            sectors: *input.choose(&[SECTORS, 1, u64::MAX / SECTOR, u64::MAX])?,
            read_only: input.ratio(1, 4)?,
            clears: input.ratio(3, 4)?,
            block: *input.choose(&[512, 4096])?,
            ..Geometry::default()
        };
        let out = Vec::new();
        Ok((Block::new(geometry), Self { geometry, out }))
    }

    fn request(&self, input: &mut Unstructured<'_>) -> Result<(Vec<u8>, Vec<Chunk>)> {
        let kind = if input.ratio(15, 16)? {
            *input.choose(&[0_u32, 0, 1, 1, 4, 8, 11, 13])?
        } else {
            input.arbitrary()?
        };
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend([0; 4]);
        bytes.extend(self.sector(input)?.to_le_bytes());
        if kind >= 11 {
            bytes.extend(self.sector(input)?.to_le_bytes());
            bytes.extend((self.sector(input)? as u32).to_le_bytes());
            bytes.extend(input.int_in_range(0..=2_u32)?.to_le_bytes());
        }
        let mut pieces = Vec::new();
        if kind < 2 {
            for number in 1..=input.int_in_range(1..=3_u64)? {
                let length = SECTOR as u32 * input.int_in_range(1..=8)?;
                pieces.push((0x2000 * number, length, kind == 0));
            }
        } else if kind == 8 {
            pieces.push((0x2000, 20, true));
        }
        pieces.push((STATUS, 1, true));
        Ok((bytes, pieces))
    }

    fn serve(
        &mut self,
        transport: &mut Transport<Block>,
        memory: &Memory,
    ) -> core::result::Result<Progress, DriverError> {
        let Some((disk, rings)) = transport.live() else {
            return Ok(Progress::default());
        };
        let (geometry, out) = (&self.geometry, &mut self.out);
        let mut submit = |order: Order<'_>| {
            assert!(!out.contains(&order.tag) && order.tag < MAX);
            out.push(order.tag);
            check(&order.work, geometry, memory);
        };
        let served = disk.serve(rings, memory, &mut submit, &mut |_| {});
        assert_eq!(disk.in_flight(), self.out.len());
        served
    }

    fn happen(
        &mut self,
        transport: &mut Transport<Block>,
        input: &mut Unstructured<'_>,
    ) -> Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        let which = input.choose_index(self.out.len())?;
        let status = *input.choose(&[Status::Done, Status::Done, Status::Failed])?;
        transport
            .device()
            .landed(self.out.swap_remove(which), status);
        assert_eq!(transport.device().in_flight(), self.out.len());
        Ok(())
    }

    fn settle(&mut self, transport: &mut Transport<Block>) {
        for tag in self.out.drain(..) {
            transport.device().landed(tag, Status::Done);
        }
    }

    fn prove(&mut self, transport: &mut Transport<Block>, memory: &Memory) {
        let mut driver = Driver::new(memory, 0);
        driver.put(0x100, &[0; 16]);
        driver.push(&[(0x100, 16, false), (0x1000, 512, true), (STATUS, 1, true)]);
        for _ in 0..2 {
            let served = self.serve(transport, memory).expect("it makes sense");
            assert!(!served.more);
            self.settle(transport);
        }
        assert_eq!(
            (driver.used(), driver.bytes(STATUS, 1)),
            (Some((0, 513)), vec![0])
        );
    }
}

/// Checks that an operation is on the disk, in guest memory, and allowed.
fn check(work: &Work<'_>, geometry: &Geometry, memory: &Memory) {
    match work {
        Work::Read { offset, into } => check_data(*offset, into, geometry, memory),
        Work::Write { offset, from } => {
            assert!(!geometry.read_only);
            check_data(*offset, from, geometry, memory);
        }
        Work::Flush => {}
        Work::Discard { offset, length } | Work::Clear { offset, length, .. } => {
            assert!(!geometry.read_only && geometry.clears);
            check_range(*offset, *length, geometry);
        }
    }
}

fn check_data(offset: u64, data: &Data<'_>, geometry: &Geometry, memory: &Memory) {
    check_range(offset, data.len() as u64, geometry);
    let parts: Vec<_> = data.parts().collect();
    assert!(parts.len() < usize::from(MAX));
    let all: usize = parts.iter().map(|part| part.length).sum();
    assert_eq!(all, data.len());
    for part in parts {
        assert!(part.length > 0 && memory.contains(part.at, part.length));
    }
}

fn check_range(offset: u64, length: u64, geometry: &Geometry) {
    assert!(length > 0 && length.is_multiple_of(SECTOR) && offset.is_multiple_of(SECTOR));
    let end = offset.checked_add(length).expect("an end");
    assert!(end / SECTOR <= geometry.sectors);
}
