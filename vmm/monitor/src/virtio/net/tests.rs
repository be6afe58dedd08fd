use super::*;
use crate::virtio::driver::{self, Chunk, Driver, ENTRIES};
use crate::virtio::Transport;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

const ADDRESS: Mac = [2, 0, 0, 0, 0, 1];
const EVENT_INDEX: u64 = 1 << 29;

/// A network of which all is known.
struct Wire<'a> {
    memory: &'a Memory,
    coming: VecDeque<(Header, Vec<u8>)>,
    sent: Vec<(Header, Vec<u8>)>,
    lost: usize,
}

impl Network for Wire<'_> {
    fn read(&mut self, room: FrameBuffer<'_>) -> Option<usize> {
        let (header, frame) = self.coming.pop_front()?;
        *room.header = header.0;
        let mut left = &frame[..];
        for part in room.parts {
            let (now, later) = left.split_at(left.len().min(part.length));
            self.memory.write(part.at, now).unwrap();
            left = later;
        }
        room.rest[..left.len()].copy_from_slice(left);
        Some(frame.len())
    }

    fn write(&mut self, header: &Header, parts: &[Part]) {
        let mut frame = Vec::new();
        for part in parts {
            let mut piece = vec![0; part.length];
            self.memory.read(part.at, &mut piece).unwrap();
            frame.extend(piece);
        }
        self.sent.push((*header, frame));
    }

    fn lost(&mut self) {
        self.lost += 1;
    }
}

struct Card<'a> {
    transport: Transport<Net>,
    wire: Wire<'a>,
}

impl<'a> Card<'a> {
    fn started(memory: &'a Memory, features: u64) -> Self {
        let mut transport = Transport::new(Net::new(ADDRESS, None));
        driver::start(&mut transport, memory, features);
        let wire = Wire {
            memory,
            coming: VecDeque::new(),
            sent: Vec::new(),
            lost: 0,
        };
        Self { transport, wire }
    }

    fn arrives(&mut self, frame: Vec<u8>) {
        self.wire.coming.push_back((Header::default(), frame));
    }

    fn receive(&mut self) -> Result<Progress, DriverError> {
        let (net, rings) = self.transport.live().unwrap();
        net.receive(rings, self.wire.memory, &mut self.wire)
    }

    fn transmit(&mut self) -> Result<Progress, DriverError> {
        let (net, rings) = self.transport.live().unwrap();
        net.transmit(rings, self.wire.memory, &mut self.wire)
    }
}

fn frame(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 256) as u8).collect()
}

/// A request of one piece for the device to write, in room `number` of 2 KiB.
fn room(number: u64, length: u32) -> Chunk {
    (number * 2048, length, true)
}

#[test]
fn card_shows_its_address() {
    let net = Net::new(ADDRESS, Some(9000));
    assert_eq!(
        net.configuration(),
        [2, 0, 0, 0, 0, 1, 1, 0, 1, 0, 0x28, 0x23]
    );
    assert_eq!((net.kind(), net.features() & MTU), (1, MTU));
    assert_eq!(Net::new(ADDRESS, None).features() & MTU, 0);
}

#[test]
fn each_frame_fills_one_request() {
    let memory = driver::memory(2);
    let mut card = Card::started(&memory, 0);
    let mut driver = Driver::new(&memory, 0);
    card.arrives(frame(60));
    assert_eq!(card.receive(), Ok(Progress::default()));
    assert!(!card.transport.device().has_room());
    // In several pieces, of which the first does not hold the header.
    driver.push(&[(0x100, 5, true), (0x200, 20, true), (0x300, 1600, true)]);
    driver.push(&[room(1, 2048)]);
    let served = card.receive().unwrap();
    assert!(served.interrupt && !served.more && card.transport.device().has_room());
    assert_eq!(driver.used(), Some((0, 72)));
    assert_eq!(driver.used(), None);
    let header = [driver.bytes(0x100, 5), driver.bytes(0x200, 7)].concat();
    assert_eq!(header, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    let result = [driver.bytes(0x207, 13), driver.bytes(0x300, 47)].concat();
    assert_eq!(result, frame(60));
    // Too long for a request: it is lost, and the request is for the next one.
    card.arrives(frame(2048));
    card.arrives(frame(14));
    assert!(card.receive().unwrap().interrupt);
    assert_eq!((driver.used(), card.wire.lost), (Some((3, 26)), 1));
}

#[test]
fn long_frame_spans_requests() {
    for features in [MERGE, MERGE | EVENT_INDEX] {
        let memory = driver::memory(2);
        let mut card = Card::started(&memory, features);
        let mut driver = Driver::new(&memory, 0);
        card.arrives(frame(2500));
        (0..2).for_each(|number| {
            driver.push(&[room(number, 1000)]);
        });
        assert_eq!(card.receive(), Ok(Progress::default()));
        assert_eq!(driver.used(), None);
        assert!(!card.transport.device().has_room());
        (2..4).for_each(|number| {
            driver.push(&[room(number, 1000)]);
        });
        assert!(card.receive().unwrap().interrupt);
        let used: Vec<_> = std::iter::from_fn(|| driver.used()).collect();
        assert_eq!(used, [(0, 1000), (1, 1000), (2, 512)]);
        assert_eq!(driver.get16(10), 3);
        let result = [
            driver.bytes(12, 988),
            driver.bytes(2048, 1000),
            driver.bytes(4096, 512),
        ];
        assert_eq!(result.concat(), frame(2500));
        // The fourth is for the next frame.
        card.arrives(frame(14));
        assert!(!card.receive().unwrap().more);
        assert_eq!((driver.used(), card.wire.lost), (Some((3, 26)), 0));
    }
}

#[test]
fn oversized_frame_is_dropped() {
    let memory = driver::memory(2);
    let mut card = Card::started(&memory, MERGE);
    let mut driver = Driver::new(&memory, 0);
    for number in 0..u64::from(ENTRIES) {
        driver.push(&[room(number, 13)]);
    }
    card.arrives(frame(usize::from(ENTRIES) * 13 - 11));
    card.arrives(frame(usize::from(ENTRIES) * 13 - 12));
    assert!(card.receive().unwrap().interrupt);
    assert_eq!(card.wire.lost, 1);
    let used = std::iter::from_fn(|| driver.used());
    assert_eq!(used.count(), usize::from(ENTRIES));
}

#[test]
fn received_offloads_are_negotiated() {
    for (features, expected) in [(0, 0), (GUEST_CHECKSUM | GUEST_TCP4, 1)] {
        let memory = driver::memory(2);
        let mut card = Card::started(&memory, features);
        let mut driver = Driver::new(&memory, 0);
        driver.push(&[room(0, 2000)]);
        driver.push(&[room(1, 2000)]);
        for kind in [4, 1] {
            let mut header = Header::default();
            (header.0[0], header.0[1]) = (1, kind);
            card.wire.coming.push_back((header, frame(60)));
        }
        let _interrupted = card.receive().unwrap();
        let used = std::iter::from_fn(|| driver.used());
        assert_eq!((used.count(), card.wire.lost), (expected, 2 - expected));
    }
}

#[test]
fn receive_flood_is_bounded_per_turn() {
    let memory = driver::memory(2);
    let mut card = Card::started(&memory, 0);
    let mut driver = Driver::new(&memory, 0);
    for _ in 0..100 {
        card.arrives(frame(3000));
    }
    driver.push(&[room(0, 2000)]);
    let served = card.receive().unwrap();
    assert!(served.more && !served.interrupt);
    assert_eq!(card.wire.lost, usize::from(ENTRIES));
}

#[test]
fn frames_are_sent_and_invalid_ones_dropped() {
    let memory = driver::memory(2);
    let mut card = Card::started(&memory, CHECKSUM | HOST_TCP4);
    let mut driver = Driver::new(&memory, 1);
    driver.put(0x400, &frame(3000));
    let header = |flags, segments| {
        let mut header = Header::default();
        (header.0[0], header.0[1]) = (flags, segments);
        header
    };
    for (at, header) in [
        (0x100, header(1, 1)),
        (0x120, header(1, 4)),
        (0x140, header(8, 0)),
    ] {
        driver.put(at, &header.0);
    }
    // With its header in the same piece, and apart from it.
    driver.push(&[(0x3f4, 72, false)]);
    driver.push(&[
        (0x100, 12, false),
        (0x400, 2000, false),
        (0xbd0, 1000, false),
    ]);
    // Offloads not negotiated; unknown flags; too short, too long.
    driver.push(&[(0x120, 12, false), (0x400, 60, false)]);
    driver.push(&[(0x140, 12, false), (0x400, 60, false)]);
    driver.push(&[(0x100, 12, false), (0x400, 13, false)]);
    driver.push(&[
        (0x100, 12, false),
        (0x400, 0xf000, false),
        (0x400, 0x1013, false),
    ]);
    assert!(card.transmit().unwrap().interrupt);
    let used = std::iter::from_fn(|| driver.used());
    assert_eq!(used.map(|(_, written)| written).collect::<Vec<_>>(), [0; 6]);
    let sent = &card.wire.sent;
    assert_eq!(sent[0], (header(0, 0), frame(60)));
    assert_eq!(sent[1], (header(1, 1), frame(3000)));
    assert_eq!((sent.len(), card.wire.lost), (2, 4));
}

#[test]
fn malformed_requests_break_the_card() {
    let memory = driver::memory(2);
    let mut card = Card::started(&memory, 0);
    let mut driver = Driver::new(&memory, 1);
    driver.push(&[(0x100, 11, false)]);
    assert_eq!(card.transmit(), Err(DriverError::Request));
    let mut driver = Driver::new(&memory, 0);
    driver.push(&[(0x100, 100, false)]);
    assert_eq!(card.receive(), Err(DriverError::Request));
}

#[test]
fn reset_drops_all_state() {
    let memory = driver::memory(2);
    let mut card = Card::started(&memory, MERGE);
    let mut driver = Driver::new(&memory, 0);
    driver.push(&[room(0, 100)]);
    card.arrives(frame(200));
    let _interrupt = card.receive().unwrap();
    let _reset = card.transport.write(0x70, 4, 0, &memory);
    assert_eq!(
        card.transport.device().receive_offloads(),
        Offloads::default()
    );
    // The same memory, with rings as they were: a driver would have cleared them.
    let memory = driver::memory(2);
    driver::start(&mut card.transport, &memory, 0);
    card.wire.memory = &memory;
    let mut driver = Driver::new(&memory, 0);
    driver.push(&[room(1, 100)]);
    card.arrives(frame(20));
    assert!(card.receive().unwrap().interrupt);
    assert_eq!(driver.used(), Some((0, 32)));
}

fn pieces() -> impl Strategy<Value = Vec<Chunk>> {
    let at = prop_oneof![0..0x1_0000_u64, any::<u64>()];
    let length = prop_oneof![0..100_u32, 0..0x1_0000_u32, any::<u32>()];
    prop::collection::vec((at, length, any::<bool>()), 0..5)
}

proptest! {
    /// Any requests and frames: nothing panics, no frame is sent that is none, and of each
    /// that arrived there is at most one.
    #[test]
    fn any_requests_break_at_most_the_card(
        features in prop::sample::subsequence(
            vec![CHECKSUM, GUEST_CHECKSUM, GUEST_TCP4, HOST_TCP4, HOST_TCP6, MERGE, EVENT_INDEX], 0..7),
        requests in prop::collection::vec((0..2_u32, pieces()), 0..40),
        coming in prop::collection::vec((0..4_u8, 0..6_u8, 0..3000_usize), 0..20),
    ) {
        let memory = driver::memory(2);
        let features = features.iter().fold(0, |all, one| all | one);
        let mut card = Card::started(&memory, features);
        let mut drivers = [Driver::new(&memory, 0), Driver::new(&memory, 1)];
        let count = coming.len();
        for (flags, segments, length) in coming {
            let mut header = Header::default();
            (header.0[0], header.0[1]) = (flags, segments);
            card.wire.coming.push_back((header, frame(length)));
        }
        for (queue, pieces) in requests {
            drivers[queue as usize].push(&pieces);
            let served = if queue == 0 { card.receive() } else { card.transmit() };
            if let Err(why) = served {
                card.transport.fail(why);
                break;
            }
        }
        prop_assert!(card.wire.sent.iter().all(|(_, frame)| (14..=MAX_FRAME).contains(&frame.len())));
        let arrived = std::iter::from_fn(|| drivers[0].used());
        prop_assert!(arrived.count() <= count * usize::from(ENTRIES));
    }
}
