mod world;

use self::world::*;
use super::header::{NEITHER, RECEIVES_NO_MORE};
use super::operation::*;
use super::*;
use crate::virtio::driver;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

#[test]
fn guest_connection_transfers_data() {
    let memory = driver::memory(3);
    let mut world = World::new(&memory);
    assert_eq!(
        world.transport.device().configuration(),
        [5, 0, 0, 0, 0, 0, 0, 0]
    );
    world.tell(REQUEST);
    let (header, _) = world.hear().unwrap();
    assert_eq!((header.operation, header.buffer), (RESPONSE, BUFFER));
    assert_eq!(
        (header.source_port, header.destination_port),
        (SERVICE, PORT)
    );
    world.say(World::header(RW), b"hello");
    assert_eq!(world.host.of(KEY).heard, b"hello");
    world.host.of(KEY).says.extend(b"world");
    world.readable(KEY);
    let (header, bytes) = world.hear().unwrap();
    assert_eq!((header.operation, &bytes[..]), (RW, &b"world"[..]));
    assert_eq!(header.forwarded, 5);
    // Half of it first, then all.
    world.shut_down(SENDS_NO_MORE);
    assert!(world.host.of(KEY).was_finished);
    assert!(world.operations().is_empty());
    world.shut_down(RECEIVES_NO_MORE);
    assert_eq!(world.operations(), [RST]);
    assert_eq!(world.host.closed, [KEY]);
    assert_eq!(world.transport.device().interests().count(), 0);
}

#[test]
fn host_connection_transfers_data() {
    let memory = driver::memory(3);
    let mut world = World::new(&memory);
    let key = world.transport.device().open(SERVICE).unwrap();
    world.host.begin(key);
    world.serve();
    let (header, _) = world.hear().unwrap();
    assert_eq!(
        (header.operation, header.destination_port),
        (REQUEST, SERVICE)
    );
    assert_eq!(header.source_port, FIRST_PORT);
    let from_guest = |operation| Header {
        source_port: SERVICE,
        destination_port: FIRST_PORT,
        ..World::header(operation)
    };
    world.say(from_guest(RESPONSE), &[]);
    assert!(world.host.of(key).was_accepted);
    world.host.of(key).says.extend(b"hi");
    world.host.of(key).has_ended = true;
    world.readable(key);
    assert_eq!(world.hear().unwrap().1, b"hi");
    let (header, _) = world.hear().unwrap();
    assert_eq!((header.operation, header.flags), (SHUTDOWN, SENDS_NO_MORE));
    // It does not take anything either, which shows when it should.
    world.host.of(key).is_gone = true;
    world.say(from_guest(RW), b"are you there?");
    let (header, _) = world.hear().unwrap();
    assert_eq!((header.operation, header.flags), (SHUTDOWN, NEITHER));
    assert_eq!(world.host.closed, [key]);
    world.say(from_guest(RST), &[]);
    assert!(world.operations().is_empty());
    assert_eq!(world.transport.device().interests().count(), 0);
}

#[test]
fn unexpected_packets_are_reset() {
    let memory = driver::memory(3);
    let mut world = World::new(&memory);
    let of = World::header;
    for header in [
        Header {
            destination_port: 81,
            ..of(REQUEST)
        },
        Header {
            kind: 2,
            ..of(REQUEST)
        },
        Header {
            destination_cid: 7,
            ..of(REQUEST)
        },
        of(RW),
        of(RESPONSE),
        of(99),
    ] {
        world.say(header, &[]);
        let (reset_packet, _) = world.hear().unwrap();
        assert_eq!(reset_packet.source_cid, header.destination_cid);
        assert_eq!(reset_packet.operation, RST, "{header:?}");
        assert_eq!(reset_packet.source_port, header.destination_port);
        assert_eq!(reset_packet.kind, header.kind);
    }
    // A packet with a wrong source and a reset get no answer.
    world.say(
        Header {
            source_cid: 6,
            ..of(REQUEST)
        },
        &[],
    );
    world.tell(RST);
    assert!(world.operations().is_empty());
    // A malformed packet ends its connection.
    for operation in [REQUEST, RESPONSE, 0, 99] {
        let memory = driver::memory(3);
        let mut world = World::connected(&memory);
        world.tell(operation);
        assert_eq!(world.operations(), [RST], "{operation}");
        assert_eq!(world.host.closed, [KEY]);
    }
}

#[test]
fn guest_is_limited_by_credit() {
    let memory = driver::memory(3);
    let mut world = World::connected(&memory);
    world.host.of(KEY).takes = 0;
    let bytes = [7; 4096];
    for _ in 0..BUFFER / 4096 {
        world.say(World::header(RW), &bytes);
    }
    assert!(world.operations().is_empty());
    let waits = |world: &mut World<'_>| world.transport.device().interests().next().unwrap();
    assert!(waits(&mut world).room && waits(&mut world).bytes);
    // The host takes it, and the guest may send again.
    world.host.of(KEY).takes = BUFFER as usize / 2;
    world.transport.device().writable(KEY, &mut world.host);
    world.serve();
    let (header, _) = world.hear().unwrap();
    assert_eq!(
        (header.operation, header.forwarded),
        (CREDIT_UPDATE, BUFFER / 2)
    );
    world.tell(CREDIT_REQUEST);
    assert_eq!(world.operations(), [CREDIT_UPDATE]);
    // A byte too many ends it.
    for _ in 0..BUFFER / 2 / 4096 {
        world.say(World::header(RW), &bytes);
    }
    assert!(world.operations().is_empty());
    world.say(World::header(RW), &[7]);
    assert_eq!(world.operations(), [RST]);
}

#[test]
fn host_is_limited_by_credit() {
    let memory = driver::memory(3);
    let mut world = World::new(&memory);
    let buffer = 1500;
    world.say(
        Header {
            buffer,
            ..World::header(REQUEST)
        },
        &[],
    );
    world.host.of(KEY).says.extend([1; 4000]);
    world.readable(KEY);
    let mut lengths = Vec::new();
    while let Some((header, _)) = world.hear() {
        lengths.push((header.operation, header.length));
        world.serve();
    }
    let max = ROOM - LENGTH as u32;
    assert_eq!(
        lengths,
        [
            (RESPONSE, 0),
            (RW, max),
            (RW, 1500 - max),
            (CREDIT_REQUEST, 0)
        ]
    );
    // Who says to have passed on more than it got has no room.
    let odd = Header {
        buffer,
        forwarded: 1501,
        ..World::header(CREDIT_UPDATE)
    };
    world.say(odd, &[]);
    assert_eq!(world.operations(), [CREDIT_REQUEST]);
    let some = Header {
        buffer,
        forwarded: 1400,
        ..World::header(CREDIT_UPDATE)
    };
    world.say(some, &[]);
    assert_eq!(world.operations(), [RW, RW, CREDIT_REQUEST]);
    assert_eq!(world.host.of(KEY).says.len(), 4000 - 1500 - 1400);
}

#[test]
fn connections_are_bounded_and_lingering_ones_reset() {
    let memory = driver::memory(3);
    let mut world = World::new(&memory);
    for number in 0..MAX as u32 {
        world.say(
            Header {
                source_port: number,
                ..World::header(REQUEST)
            },
            &[],
        );
        assert_eq!(world.operations(), [RESPONSE]);
    }
    assert_eq!(world.transport.device().open(SERVICE), None);
    let another = Header {
        source_port: 99,
        ..World::header(REQUEST)
    };
    world.say(another, &[]);
    assert_eq!(world.operations(), [RST]);
    // One that has ended at the host, of which the guest does not let go.
    let key = Key {
        guest: 3,
        host: SERVICE,
    };
    (world.host.of(key).has_ended, world.host.of(key).is_gone) = (true, true);
    world.readable(key);
    world.say(
        Header {
            source_port: 3,
            ..World::header(RW)
        },
        b"x",
    );
    assert_eq!(world.operations(), [SHUTDOWN, SHUTDOWN]);
    world.say(another, &[]);
    assert_eq!(world.operations(), [RST, RST]);
    world.say(another, &[]);
    assert_eq!(world.operations(), [RESPONSE]);
}

#[test]
fn pending_resets_are_bounded() {
    let memory = driver::memory(3);
    let mut world = World::needs_poll(&memory);
    let mut header = World::header(RW);
    for number in 0..3 * MAX_RESETS as u32 {
        header.source_port = number;
        // A guest waits until its packet was taken.
        world.says.put(OWN, &header.bytes());
        if number < MAX_RESETS as u32 + 10 {
            world.says.push(&[(OWN, LENGTH as u32, false)]);
        }
        world.serve();
        while world.says.used().is_some() {}
    }
    assert_eq!(world.transport.device().resets.len(), MAX_RESETS);
    (0..ROOMS).for_each(|number| world.offer(number));
    world.serve();
    let result = world.operations();
    assert_eq!(result, [RST; MAX_RESETS + 10]);
}

#[test]
fn reset_ends_connections() {
    let memory = driver::memory(3);
    let mut world = World::connected(&memory);
    let _reset = world.transport.write(0x70, 4, 0, &memory);
    let vsock = world.transport.device();
    assert_eq!((vsock.in_flight(), vsock.open(SERVICE)), (1, None));
    assert!(vsock.take_orphaned() && !vsock.take_orphaned());
    assert_eq!((vsock.in_flight(), vsock.interests().count()), (0, 0));
}

#[test]
fn malformed_requests_break_the_device() {
    let memory = driver::memory(3);
    let mut world = World::new(&memory);
    world.says.push(&[(OWN, LENGTH as u32 - 1, false)]);
    assert_eq!(world.try_serve(), Err(DriverError::Request));
    let memory = driver::memory(3);
    let mut world = World::new(&memory);
    let length = 9;
    world.says.put(
        OWN,
        &Header {
            length,
            ..World::header(RW)
        }
        .bytes(),
    );
    world.says.push(&[(OWN, LENGTH as u32 + 8, false)]);
    assert_eq!(world.try_serve(), Err(DriverError::Request));
    // No room for a byte.
    let memory = driver::memory(3);
    let mut world = World::needs_poll(&memory);
    world.hears.push(&[(0, LENGTH as u32, true)]);
    assert_eq!(world.try_serve(), Err(DriverError::Request));
}

/// A guest that keeps to the rules, as a model: what it may send, and what it has got.
#[derive(Default)]
struct Peer {
    buffer: u32,
    sent: u32,
    their_forwarded: u32,
    got: Vec<u8>,
}

impl Peer {
    fn header(&self, operation: u16) -> Header {
        Header {
            buffer: self.buffer,
            forwarded: self.got.len() as u32,
            ..World::header(operation)
        }
    }

    /// Says something, as much of it as it may.
    fn send_packet(&mut self, world: &mut World<'_>, amount: usize) {
        let may = BUFFER - self.sent.wrapping_sub(self.their_forwarded);
        let bytes = pattern(self.sent as usize, amount.min(may as usize));
        self.sent += bytes.len() as u32;
        world.say(self.header(RW), &bytes);
    }

    fn listen(&mut self, world: &mut World<'_>) {
        while let Some((header, bytes)) = world.hear() {
            assert_ne!(header.operation, RST);
            self.got.extend(bytes);
            self.their_forwarded = header.forwarded;
        }
        world.say(self.header(CREDIT_UPDATE), &[]);
        world.readable(KEY);
    }
}

/// The program of the host takes so many bytes more.
fn take(world: &mut World<'_>, amount: usize) {
    world.host.of(KEY).takes = amount;
    world.transport.device().writable(KEY, &mut world.host);
}

fn pattern(from: usize, length: usize) -> Vec<u8> {
    (from..from + length).map(|at| (at % 251) as u8).collect()
}

/// Its stream is closed as soon as both sides of the host have ended, while the guest may keep the connection open.
#[test]
fn a_closed_stream_is_not_used_again() {
    let memory = driver::memory(3);
    let mut world = World::connected(&memory);
    let program = world.host.of(KEY);
    (program.is_gone, program.has_ended) = (true, true);
    world.say(World::header(RW), &[1]);
    world.readable(KEY);
    assert_eq!(world.host.closed, [KEY]);
    world.readable(KEY);
    world.shut_down(SENDS_NO_MORE);
    assert!(world.host.all.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the pace of both sides, all bytes arrive, in order, and nothing is buffered
    /// beyond the bounds.
    #[test]
    fn all_bytes_arrive_in_order(
        steps in prop::collection::vec((0..5_u8, 1..9000_usize), 1..200),
        buffer in 500..8000_u32,
    ) {
        let memory = driver::memory(3);
        let mut world = World::new(&memory);
        world.say(Header { buffer, ..World::header(REQUEST) }, &[]);
        world.host.of(KEY).takes = 0;
        let mut peer = Peer { buffer, ..Peer::default() };
        let mut said = 0;
        for (what, amount) in steps {
            match what {
                0 => peer.send_packet(&mut world, amount),
                1 => {
                    world.host.of(KEY).says.extend(pattern(said, amount));
                    said += amount;
                }
                2 => world.readable(KEY),
                3 => peer.listen(&mut world),
                _ => take(&mut world, amount),
            }
            let buffered = world.transport.device().connections[0].buffered.len();
            prop_assert!(buffered <= BUFFER as usize);
        }
        take(&mut world, usize::MAX);
        for _ in 0..said / 500 + 2 {
            peer.listen(&mut world);
        }
        prop_assert!(world.host.of(KEY).heard == pattern(0, peer.sent as usize));
        prop_assert!(peer.got == pattern(0, said));
    }

    /// Any packets: nothing panics, and there are never more connections, bytes or resets
    /// than there may be.
    #[test]
    fn any_packets_stay_in_bounds(
        packets in prop::collection::vec(
            (0..9_u16, 0..4_u32, prop::sample::select(vec![SERVICE, 81, FIRST_PORT]),
                prop_oneof![Just(0_u32), Just(1 << 16), any::<u32>()], any::<u32>(),
                0..5000_usize, 0..40_u8), 1..200),
    ) {
        let memory = driver::memory(3);
        let mut world = World::new(&memory);
        for (operation, port, to, buffer, forwarded, length, chance) in packets {
            let header = Header {
                source_port: port,
                destination_port: to,
                buffer,
                forwarded,
                flags: forwarded,
                ..World::header(operation)
            };
            world.say(header, &pattern(0, length));
            let key = Key { guest: port, host: to };
            match chance {
                0 => drop(world.transport.device().open(port).map(|key| world.host.begin(key))),
                1..5 => world.host.all.iter_mut().for_each(|(_, program)| {
                    program.has_ended = chance == 1;
                    program.is_gone = chance == 2;
                    program.says.extend([1; 100]);
                    program.takes = 200;
                }),
                5..15 => world.readable(key),
                15..20 => world.transport.device().writable(key, &mut world.host),
                20..30 => while world.hear().is_some() {},
                _ => {}
            }
            let vsock = world.transport.device();
            prop_assert!(vsock.connections.len() <= MAX);
            prop_assert!(vsock.resets.len() <= MAX_RESETS);
            for connection in &vsock.connections {
                prop_assert!(connection.buffered.len() <= BUFFER as usize);
            }
            // Who is not in the table is not held.
            prop_assert!(world.host.all.len() <= vsock.connections.len());
        }
    }
}
