use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use trapline_abi::platform::{EXIT_DONE, POPULATE_IS_THERE, SCRATCH, VIRTIO_MAGIC};
use trapline_abi::populate::Wish;

/// A host that remembers.
#[derive(Default)]
pub(crate) struct Outside {
    pub(crate) said: Vec<u8>,
    pub(crate) input: VecDeque<u8>,
    pub(crate) asked: u32,
    pub(crate) triggered: u32,
    pub(crate) exits: u64,
    pub(crate) full: bool,
}

impl Outside {
    pub(crate) fn hearing(bytes: &[u8]) -> Self {
        Self {
            input: bytes.iter().copied().collect(),
            ..Self::default()
        }
    }
}

impl Terminal for Outside {
    fn say(&mut self, byte: u8) {
        self.said.push(byte);
    }

    fn has_room(&self) -> bool {
        !self.full
    }

    fn hear(&mut self) -> Option<u8> {
        self.asked += 1;
        self.input.pop_front()
    }
}

impl Trigger for Outside {
    fn trigger(&mut self) {
        self.triggered += 1;
    }
}

impl Host for Outside {
    fn print(&mut self, byte: u8) {
        self.said.push(byte);
    }

    fn exits(&mut self, accesses: u64) -> u64 {
        self.exits + accesses
    }
}

#[test]
fn each_port_has_its_device() {
    let (mut board, mut outside) = (Board::new(true), Outside::default());
    outside.exits = 0x1_2345_6789 - 5;
    assert_eq!(
        board.write_port(SCRATCH, 1, 0x77, &mut outside),
        Effect::None
    );
    assert_eq!(board.read_port(SCRATCH, 1, &mut outside), 0x77);
    assert_eq!(
        board.write_port(DEBUG_CONSOLE, 1, b'x'.into(), &mut outside),
        Effect::None
    );
    assert_eq!(outside.said, b"x");
    assert_eq!(board.read_port(DEBUG_CONSOLE, 1, &mut outside), 0xe9);
    assert_eq!(board.read_port(EXITS_LOW, 4, &mut outside), 0x2345_6789);
    assert_eq!(board.read_port(EXITS_HIGH, 4, &mut outside), 1);
    assert_eq!(board.write_port(IDLE, 4, 9, &mut outside), Effect::Idle(9));
    assert_eq!(
        board.write_port(FRAME, 4, 0x11_2233, &mut outside),
        Effect::Frame(0x11_2233)
    );
    assert_eq!(
        board.write_port(EXIT, 4, EXIT_DONE, &mut outside),
        Effect::Exit(EXIT_DONE)
    );
    assert_eq!(board.read_mmio(VIRTIO_MMIO, 4), u64::from(VIRTIO_MAGIC));
    assert_eq!(
        board.counts(),
        Counts {
            ports: 9,
            mmio: 1,
            unclaimed: 0
        }
    );
}

#[test]
fn a_ticker_is_there_only_if_the_machine_has_one() {
    let mut outside = Outside::default();
    let mut with = Board::new(true).with_ticker();
    let page = 0x13_4000;
    assert_eq!(with.read_port(TICKER, 4, &mut outside), TICKER_IS_THERE);
    let effect = with.write_port(TICKER, 4, page, &mut outside);
    assert_eq!(effect, Effect::Tick(page));
    let effect = with.write_port(TICKER, 2, page, &mut outside);
    assert_eq!(effect, Effect::None);
    let mut without = Board::new(true);
    assert_eq!(without.read_port(TICKER, 4, &mut outside), u32::MAX);
    let effect = without.write_port(TICKER, 4, page, &mut outside);
    assert_eq!(effect, Effect::None);
}

#[test]
fn memory_can_be_asked_for_only_if_the_machine_gives_any() {
    let mut outside = Outside::default();
    let mut with = Board::new(true).with_populate();
    let (wish, answer) = (Wish::ALL[0], POPULATE_IS_THERE);
    assert_eq!(with.read_port(POPULATE, 4, &mut outside), answer);
    let effect = with.write_port(POPULATE, 4, wish.word(), &mut outside);
    assert_eq!(effect, Effect::Populate(Order::Give(wish)));
    with.populated(Order::Give(wish), Ok(()));
    assert_eq!(with.read_port(POPULATE, 4, &mut outside), wish.word());
    assert_eq!(with.write_port(POPULATE, 4, 0, &mut outside), Effect::None);
    let mut without = Board::new(true);
    assert_eq!(without.read_port(POPULATE, 4, &mut outside), u32::MAX);
    let effect = without.write_port(POPULATE, 4, wish.word(), &mut outside);
    assert_eq!((effect, without.counts().unclaimed), (Effect::None, 2));
}

#[test]
fn the_machine_is_switched_off_only_by_what_says_so() {
    let mut outside = Outside::default();
    let mut write =
        |board: &mut Board, port, value: u8| board.write_port(port, 1, value.into(), &mut outside);
    let mut with = Board::new(false).with_power();
    assert_eq!(write(&mut with, POWER_CONTROL, POWER_OFF), Effect::Off);
    assert_eq!(write(&mut with, POWER_CONTROL, 0x20), Effect::None);
    assert_eq!(
        write(&mut with, POWER_RESET_PORT, POWER_RESET),
        Effect::Reset
    );
    assert_eq!(write(&mut with, POWER_RESET_PORT, 0), Effect::None);
    let mut without = Board::new(false);
    assert_eq!(write(&mut without, POWER_CONTROL, POWER_OFF), Effect::None);
    assert_eq!(without.counts().unclaimed, 1);
    assert_eq!(with.read_port(POWER_CONTROL, 1, &mut Outside::default()), 0);
}

#[test]
fn what_nobody_claims_reads_all_ones_and_is_counted() {
    let (mut board, mut outside) = (Board::new(false), Outside::default());
    assert_eq!(board.read_port(0x1234, 2, &mut outside), u32::MAX);
    assert_eq!(board.write_port(IDLE, 4, 9, &mut outside), Effect::None);
    assert_eq!(board.read_mmio(VIRTIO_MMIO + 1, 4), u64::MAX);
    assert_eq!(board.read_mmio(VIRTIO_MMIO, 8), u64::MAX);
    board.write_mmio(VIRTIO_MMIO + Transport::SIZE, 4, 0);
    assert_eq!(board.counts().unclaimed, 5);
}

#[test]
fn wide_accesses_reach_each_register() {
    let (mut board, mut outside) = (Board::new(false), Outside::default());
    assert_eq!(
        board.write_port(SCRATCH, 2, 0xaa55, &mut outside),
        Effect::None
    );
    assert_eq!(board.read_port(SCRATCH, 2, &mut outside), 0xffff_ff55);
    assert_eq!(board.counts().unclaimed, 2);
}

#[derive(Clone, Copy, Debug)]
enum Poke {
    WritePort(u16, u8, u32),
    ReadPort(u16, u8),
    WriteMmio(u64, u8, u64),
    ReadMmio(u64, u8),
}

fn poke() -> impl Strategy<Value = Poke> {
    let port = prop_oneof![any::<u16>(), COM1..=COM1_LAST, 0x500u16..0x530];
    let near = VIRTIO_MMIO - 8..VIRTIO_MMIO + Transport::SIZE + 8;
    let address = prop_oneof![any::<u64>(), near];
    let size = prop_oneof![Just(1u8), Just(2), Just(4), Just(8), any::<u8>()];
    (0..4, port, address, size, any::<u64>()).prop_map(|(kind, port, address, size, data)| {
        match kind {
            0 => Poke::WritePort(port, size, data as u32),
            1 => Poke::ReadPort(port, size),
            2 => Poke::WriteMmio(address, size, data),
            _ => Poke::ReadMmio(address, size),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_poke_does_harm(pokes in prop::collection::vec(poke(), 0..200)) {
        let (mut board, mut outside) = (Board::new(true).with_ticker().with_populate(), Outside::hearing(b"some input"));
        let (mut ports, mut mmio) = (0, 0);
        for poke in pokes {
            match poke {
                Poke::WritePort(port, size, data) => {
                    ports += 1;
                    let effect = board.write_port(port, size, data, &mut outside);
                    prop_assert!(effect == Effect::None || [EXIT, IDLE, FRAME, TICKER, POPULATE].contains(&port));
                    if let Effect::Populate(order) = effect {
                        board.populated(order, Ok(()));
                    }
                }
                Poke::ReadPort(port, size) => {
                    ports += 1;
                    board.read_port(port, size, &mut outside);
                }
                Poke::WriteMmio(address, size, data) => {
                    mmio += 1;
                    board.write_mmio(address, size, data);
                }
                Poke::ReadMmio(address, size) => {
                    mmio += 1;
                    board.read_mmio(address, size);
                }
            }
        }
        prop_assert_eq!(board.counts().ports, ports);
        prop_assert_eq!(board.counts().mmio, mmio);
        prop_assert!(outside.said.len() as u64 <= ports * 4);
    }
}
