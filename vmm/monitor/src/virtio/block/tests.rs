use super::*;
use crate::virtio::driver::{self, Chunk, Driver};
use crate::virtio::Transport;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const SECTORS: u64 = 64;
const HEADER: u64 = 0x100;
const STATUS: u64 = 0x200;
const DATA: u64 = 0x1000;

/// A disk in memory that does at once, or later, what is ordered.
struct Disk {
    transport: Transport<Block>,
    memory: std::sync::Arc<Memory>,
    bytes: Vec<u8>,
    orders: Vec<(u16, Status)>,
    stable: Vec<bool>,
    flushes: usize,
    hold: bool,
    /// Result of every order.
    verdict: Status,
    ended: Vec<Completion>,
}

fn geometry() -> Geometry {
    Geometry {
        sectors: SECTORS,
        clears: true,
        block: 4096,
        identity: *b"a disk\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        ..Geometry::default()
    }
}

impl Disk {
    fn new(geometry: Geometry) -> Self {
        let mut disk = Self {
            transport: Transport::new(Block::new(geometry)),
            memory: driver::memory(1).into(),
            bytes: (0..geometry.sectors * SECTOR)
                .map(|at| (at / 7) as u8)
                .collect(),
            orders: Vec::new(),
            stable: Vec::new(),
            flushes: 0,
            hold: false,
            verdict: Status::Done,
            ended: Vec::new(),
        };
        let offered = disk.transport.device().features();
        driver::start(&mut disk.transport, &disk.memory, offered);
        disk
    }

    /// Serves until nothing is left to be done.
    fn serve(&mut self) -> Result<Progress, DriverError> {
        let mut all = Progress::default();
        loop {
            let (mut orders, memory) = (Vec::new(), self.memory.clone());
            let (device, rings) = self.transport.live().expect("a live device");
            let (bytes, stable) = (&mut self.bytes, &mut self.stable);
            let (flushes, verdict, ended) = (&mut self.flushes, self.verdict, &mut self.ended);
            let mut submit = |order: Order<'_>| {
                stable.push(order.stable);
                *flushes += usize::from(matches!(order.work, Work::Flush));
                work(&order.work, bytes, &memory);
                orders.push((order.tag, verdict));
            };
            let served =
                device.serve(rings, &self.memory, &mut submit, &mut |how| ended.push(how))?;
            all = all.and(served);
            let idle = orders.is_empty();
            self.orders.append(&mut orders);
            if idle || self.hold {
                return Ok(all);
            }
            self.land();
        }
    }

    fn land(&mut self) {
        for (tag, status) in self.orders.drain(..) {
            self.transport.device().landed(tag, status);
        }
    }

    fn driver(&self) -> Driver<'_> {
        Driver::new(&self.memory, 0)
    }

    /// One request with its header at [`HEADER`] and its status at [`STATUS`].
    fn ask(&mut self, kind: u32, sector: u64, data: &[Chunk]) -> (u8, u32) {
        let memory = self.memory.clone();
        let mut driver = Driver::new(&memory, 0);
        driver.put(HEADER, &header(kind, sector));
        driver.put(STATUS, &[0xee]);
        let mut pieces = vec![(HEADER, 16, false)];
        pieces.extend(data);
        pieces.push((STATUS, 1, true));
        driver.push(&pieces);
        let served = self.serve().expect("it makes sense");
        assert!(served.interrupt && !served.more);
        let used = driver.used().expect("it came back");
        let result = (driver.bytes(STATUS, 1)[0], used.1);
        // The next one begins anew.
        let offered = self.transport.device().features();
        let _reset = self.transport.write(0x70, 4, 0, &self.memory);
        driver.put(driver::rings(0), &[0; 0x3000]);
        driver::start(&mut self.transport, &self.memory, offered);
        result
    }
}

fn header(kind: u32, sector: u64) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend([0; 4]);
    bytes.extend(sector.to_le_bytes());
    bytes
}

fn work(work: &Work<'_>, bytes: &mut [u8], memory: &Memory) {
    let (at, data) = match work {
        Work::Read { offset, into } => (*offset, into),
        Work::Write { offset, from } => (*offset, from),
        Work::Flush => return,
        Work::Discard { offset, length } | Work::Clear { offset, length, .. } => {
            return bytes[*offset as usize..][..*length as usize].fill(0);
        }
    };
    let mut at = at as usize;
    assert_eq!(
        data.parts().map(|part| part.length).sum::<usize>(),
        data.len()
    );
    for part in data.parts() {
        let piece = &mut bytes[at..at + part.length];
        match work {
            Work::Read { .. } => memory.write(part.at, piece).unwrap(),
            _ => memory.read(part.at, piece).unwrap(),
        }
        at += part.length;
    }
}

#[test]
fn data_round_trips_in_any_layout() {
    let mut disk = Disk::new(geometry());
    let wanted: Vec<u8> = (0..1024_u32).map(|at| (at % 251) as u8).collect();
    disk.driver().put(DATA, &wanted);
    let cut = [
        (DATA, 3, false),
        (DATA + 3, 1000, false),
        (DATA + 1003, 21, false),
    ];
    assert_eq!(disk.ask(1, 62, &cut), (0, 1));
    assert_eq!(disk.bytes[62 * 512..], wanted);
    let cut = [(0x5000, 1020, true), (0x6000, 4, true)];
    assert_eq!(disk.ask(0, 62, &cut), (0, 1025));
    assert_eq!(disk.driver().bytes(0x5000, 1020), wanted[..1020]);
    assert_eq!(disk.driver().bytes(0x6000, 4), wanted[1020..]);
    let result = |read, written| Completion {
        status: Status::Done,
        read,
        written,
    };
    assert_eq!(disk.ended, [result(0, 1024), result(1024, 0)]);
    assert_eq!(disk.stable, [false, false]);
}

#[test]
fn out_of_range_requests_fail_without_an_order() {
    let mut disk = Disk::new(geometry());
    let untouched = disk.bytes.clone();
    for (sector, length) in [
        (SECTORS, 512),
        (SECTORS - 1, 1024),
        (u64::MAX, 512),
        (u64::MAX / 512 + 1, 512),
        (1 << 55, 512),
        (0, 511),
        (0, 513),
        (0, 0),
    ] {
        for (kind, write) in [(0, true), (1, false)] {
            let result = disk.ask(kind, sector, &[(DATA, length, write)]);
            let room = if write && length > 0 { 0 } else { 1 };
            assert_eq!(result, (1, room), "{kind} {sector} {length}");
        }
    }
    assert_eq!(disk.bytes, untouched);
    assert!(disk.stable.is_empty());
    let whole = SECTORS as u32 * 512;
    assert_eq!(disk.ask(0, 0, &[(DATA, whole, true)]).0, 0);
}

#[test]
fn read_only_disk_rejects_writes() {
    let mut disk = Disk::new(Geometry {
        read_only: true,
        ..geometry()
    });
    let range: Vec<u8> = [0_u64, 1]
        .iter()
        .flat_map(|part| part.to_le_bytes())
        .collect();
    disk.driver().put(DATA, &range);
    for kind in [1, 11, 13] {
        let length = if kind == 1 { 512 } else { 16 };
        assert_eq!(disk.ask(kind, 0, &[(DATA, length, false)]).0, 1);
    }
    assert_eq!(disk.ask(0, 0, &[(DATA, 512, true)]).0, 0);
    assert_eq!(disk.ask(4, 0, &[]).0, 0);
    assert_eq!(disk.stable.len(), 2);
}

#[test]
fn discard_and_write_zeroes_are_limited() {
    let mut disk = Disk::new(geometry());
    let mut ask = |kind, sector: u64, sectors: u32, flags: u32| {
        let mut range = sector.to_le_bytes().to_vec();
        range.extend(sectors.to_le_bytes());
        range.extend(flags.to_le_bytes());
        disk.driver().put(DATA, &range);
        disk.ask(kind, 0, &[(DATA, 16, false)]).0
    };
    assert_eq!(ask(11, 1, 2, 0), 0);
    assert_eq!(ask(13, 10, 1, 0), 0);
    assert_eq!(ask(13, 11, 1, 1), 0);
    for (kind, flags) in [(11, 1), (11, 2), (13, 2), (13, 1 << 31)] {
        assert_eq!(ask(kind, 1, 2, flags), 2);
    }
    for kind in [11, 13] {
        for (sector, sectors) in [(0, 0), (63, 2), (u64::MAX, 1), (0, u32::MAX), (0, 65)] {
            assert_eq!(ask(kind, sector, sectors, 0), 1, "{sector} {sectors}");
        }
    }
    assert_eq!(disk.bytes[512..3 * 512], [0; 1024]);
    assert_eq!(disk.bytes[10 * 512..12 * 512], [0; 1024]);
    assert_eq!(disk.ask(11, 0, &[(DATA, 32, false)]).0, 1);
    let mut plain = Disk::new(Geometry {
        clears: false,
        ..geometry()
    });
    assert_eq!(plain.ask(11, 0, &[(DATA, 16, false)]).0, 2);
}

#[test]
fn device_id_is_returned() {
    let mut disk = Disk::new(geometry());
    assert_eq!(disk.ask(8, 0, &[(DATA, 20, true)]), (0, 21));
    assert_eq!(disk.driver().bytes(DATA, 8), b"a disk\0\0");
    assert_eq!(disk.ask(8, 0, &[(DATA, 3, true)]), (0, 4));
    assert_eq!(disk.ask(8, 0, &[(DATA, 40, true)]), (0, 20));
    for kind in [2, 3, 5, 14, u32::MAX] {
        assert_eq!(disk.ask(kind, 0, &[(DATA, 512, true)]).0, 2);
    }
    let read = |offset: u32, size| disk.transport.read(0x100 + offset, size);
    assert_eq!((read(0, 8), read(12, 4), read(20, 4)), (SECTORS, 126, 512));
    assert_eq!((read(24, 1), read(26, 2), read(44, 4)), (3, 8, 8));
    assert_eq!((read(36, 4), read(40, 4), read(56, 1)), (1 << 21, 1, 1));
}

#[test]
fn request_without_status_byte_breaks_the_device() {
    for pieces in [
        &[(HEADER, 16, false)][..],
        &[(HEADER, 600, false), (DATA, 0, true)],
    ] {
        let mut disk = Disk::new(geometry());
        disk.driver().push(pieces);
        assert_eq!(disk.serve(), Err(DriverError::Request));
    }
    // With a status byte it gets an I/O error.
    let mut disk = Disk::new(geometry());
    disk.driver()
        .push(&[(HEADER, 15, false), (STATUS, 1, true)]);
    assert!(disk.serve().unwrap().interrupt);
    assert_eq!(disk.driver().bytes(STATUS, 1), [1]);
}

#[test]
fn without_flush_feature_writes_are_stable() {
    let mut disk = Disk::new(geometry());
    let _reset = disk.transport.write(0x70, 4, 0, &disk.memory);
    driver::start(&mut disk.transport, &disk.memory, 0);
    disk.driver().put(HEADER, &header(1, 0));
    disk.driver()
        .push(&[(HEADER, 16, false), (DATA, 512, false), (STATUS, 1, true)]);
    let _served = disk.serve().unwrap();
    assert_eq!(disk.stable, [true]);
}

#[test]
fn flush_keeps_failing_after_an_error() {
    let mut disk = Disk::new(geometry());
    assert_eq!(disk.ask(4, 0, &[]).0, 0);
    disk.verdict = Status::Failed;
    assert_eq!(disk.ask(4, 0, &[]).0, 1);
    disk.verdict = Status::Done;
    assert_eq!(disk.ask(4, 0, &[]).0, 1);
    assert_eq!(
        (disk.ask(1, 0, &[(DATA, 512, false)]).0, disk.flushes),
        (0, 2)
    );
}

#[test]
fn orders_complete_without_effect_after_reset() {
    let mut disk = Disk::new(geometry());
    disk.hold = true;
    let memory = disk.memory.clone();
    let mut driver = Driver::new(&memory, 0);
    driver.put(HEADER, &header(0, 0));
    driver.put(STATUS, &[0xee]);
    let pieces = [(HEADER, 16, false), (DATA, 512, true), (STATUS, 1, true)];
    driver.push(&pieces);
    let _served = disk.serve().unwrap();
    assert_eq!(disk.transport.device().in_flight(), 1);
    let _reset = disk.transport.write(0x70, 4, 0, &memory);
    driver.put(driver::rings(0), &[0; 0x3000]);
    driver::start(&mut disk.transport, &memory, FLUSH);
    // The next driver waits until it has landed.
    let mut next = Driver::new(&memory, 0);
    next.push(&pieces);
    assert_eq!(disk.serve(), Ok(Progress::default()));
    assert_eq!(
        (disk.transport.device().in_flight(), next.used()),
        (1, None)
    );
    disk.land();
    assert_eq!(disk.transport.device().in_flight(), 0);
    let _served = disk.serve().unwrap();
    assert_eq!((next.bytes(STATUS, 1)[0], next.used()), (0xee, None));
    // Landing twice, or what was never out, changes nothing.
    for tag in [0, 1, 127, 128, u16::MAX] {
        disk.transport.device().landed(tag, Status::Failed);
    }
    disk.land();
    let _served = disk.serve().unwrap();
    assert_eq!((next.bytes(STATUS, 1)[0], next.used()), (1, Some((0, 0))));
}

proptest! {
    #[test]
    fn random_requests_do_what_a_disk_does(
        asked in proptest::collection::vec((0_u32..5, 0..SECTORS + 2, 0_u32..5, any::<u8>()), 1..20),
    ) {
        let mut disk = Disk::new(geometry());
        let mut model = disk.bytes.clone();
        for (kind, sector, sectors, fill) in asked {
            let length = sectors * 512;
            let (from, to) = ((sector * 512) as usize, (sector * 512) as usize + length as usize);
            let fits = length > 0 && to <= model.len();
            disk.driver().put(DATA, &vec![fill; length as usize]);
            let result = disk.ask(kind, sector, &[(DATA, length, kind == 0)]);
            match kind {
                0 | 1 => prop_assert_eq!(result.0, u8::from(!fits)),
                4 => prop_assert_eq!(result.0, 0),
                _ => prop_assert_eq!(result.0, 2),
            }
            if kind == 1 && fits {
                model[from..to].fill(fill);
            }
            if kind == 0 && fits {
                prop_assert_eq!(&disk.driver().bytes(DATA, length as usize)[..], &model[from..to]);
            }
            prop_assert_eq!(&disk.bytes, &model);
        }
    }
}
