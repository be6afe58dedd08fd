//! A disk without a file: what it is ordered is checked, and comes back when the input says.

use super::Subject;
use crate::virtio::block::{Block, Data, Order, Shape, Status, Work, MOST, SECTOR};
use crate::virtio::driver::{Driver, Piece};
use crate::virtio::{Broken, Device, Memory, Served, Transport};
use arbitrary::{Result, Unstructured};
use vm_memory::GuestMemoryBackend;

/// Who serves a disk.
#[derive(Debug)]
pub struct Disk {
    shape: Shape,
    out: Vec<u16>,
}

const SECTORS: u64 = 40;

/// Where a request's status is.
const STATUS: u64 = 0x200;

impl Disk {
    /// Often one that the disk has, or nearly.
    fn sector(&self, input: &mut Unstructured<'_>) -> Result<u64> {
        match input.int_in_range(0..=7)? {
            0..=4 => input.int_in_range(0..=SECTORS + 1),
            5 | 6 => Ok(self.shape.sectors - input.int_in_range(0..=1)?),
            _ => input.arbitrary(),
        }
    }
}

impl Subject for Disk {
    type Device = Block;

    fn begin(input: &mut Unstructured<'_>) -> Result<(Block, Self)> {
        let shape = Shape {
            sectors: *input.choose(&[SECTORS, 1, u64::MAX / SECTOR, u64::MAX])?,
            read_only: input.ratio(1, 4)?,
            clears: input.ratio(3, 4)?,
            block: *input.choose(&[512, 4096])?,
            ..Shape::default()
        };
        let out = Vec::new();
        Ok((Block::new(shape), Self { shape, out }))
    }

    fn request(&self, input: &mut Unstructured<'_>) -> Result<(Vec<u8>, Vec<Piece>)> {
        let kind = match input.ratio(15, 16)? {
            true => *input.choose(&[0_u32, 0, 1, 1, 4, 8, 11, 13])?,
            false => input.arbitrary()?,
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
    ) -> std::result::Result<Served, Broken> {
        let Some((disk, rings)) = transport.live() else {
            return Ok(Served::default());
        };
        let (shape, out) = (&self.shape, &mut self.out);
        let mut submit = |order: Order<'_>| {
            assert!(!out.contains(&order.ticket) && order.ticket < MOST);
            out.push(order.ticket);
            check(&order.work, shape, memory);
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
        for ticket in self.out.drain(..) {
            transport.device().landed(ticket, Status::Done);
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

/// Only what is on the disk, in guest memory, and allowed is ordered.
fn check(work: &Work<'_>, shape: &Shape, memory: &Memory) {
    match work {
        Work::Read { offset, into } => check_data(*offset, into, shape, memory),
        Work::Write { offset, from } => {
            assert!(!shape.read_only);
            check_data(*offset, from, shape, memory);
        }
        Work::Flush => {}
        Work::Discard { offset, length } | Work::Clear { offset, length, .. } => {
            assert!(!shape.read_only && shape.clears);
            check_range(*offset, *length, shape);
        }
    }
}

fn check_data(offset: u64, data: &Data<'_>, shape: &Shape, memory: &Memory) {
    check_range(offset, data.len() as u64, shape);
    let parts: Vec<_> = data.parts().collect();
    assert!(parts.len() < usize::from(MOST));
    let all: usize = parts.iter().map(|part| part.length).sum();
    assert_eq!(all, data.len());
    for part in parts {
        assert!(part.length > 0 && memory.check_range(part.at, part.length));
    }
}

fn check_range(offset: u64, length: u64, shape: &Shape) {
    assert!(length > 0 && length.is_multiple_of(SECTOR) && offset.is_multiple_of(SECTOR));
    let end = offset.checked_add(length).expect("an end");
    assert!(end / SECTOR <= shape.sectors);
}
