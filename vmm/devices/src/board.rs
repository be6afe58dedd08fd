//! Which device answers where.

use crate::{Host, Order, Populate, Serial, Terminal, Transport, Trigger};
use trapline_abi::platform::{
    COM1, DEBUG_CONSOLE, EXIT, EXITS_HIGH, EXITS_LOW, FRAME, IDLE, POPULATE, POWER_CONTROL,
    POWER_OFF, POWER_RESET, POWER_RESET_PORT, TICKER, TICKER_IS_THERE, VIRTIO_MMIO,
};
use trapline_abi::populate::Refusal;

const COM1_LAST: u16 = COM1 + 7;

/// All the devices of a machine.
#[derive(Debug, Default)]
pub struct Board {
    serial: Serial,
    transport: Transport,
    exits_high: u32,
    can_idle: bool,
    has_ticker: bool,
    populate: Option<Populate>,
    has_power: bool,
    counts: Counts,
}

/// What a write does to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Effect {
    /// Nothing; the guest goes on.
    None,
    /// The guest ends the machine with this value.
    Exit(u32),
    /// The guest wants to halt unless its count of interrupts differs from this.
    Idle(u32),
    /// The guest says the frame that lies at this address of its memory.
    Frame(u32),
    /// The guest wants the timer to share the page at this address with it.
    Tick(u32),
    /// The guest wants memory, or gives it back; [`Board::populated`] is to be told.
    Populate(Order),
    /// The guest switches its machine off.
    Off,
    /// The guest resets its machine.
    Reset,
}

impl Effect {
    /// Of a write to the sleep control register.
    fn of_control(value: u8) -> Self {
        match value {
            POWER_OFF => Self::Off,
            _ => Self::None,
        }
    }

    /// Of a write to the reset register.
    fn of_reset(value: u8) -> Self {
        match value {
            POWER_RESET => Self::Reset,
            _ => Self::None,
        }
    }
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Port accesses.
    pub ports: u64,
    /// Memory accesses.
    pub mmio: u64,
    /// Those of either kind that no device claimed.
    pub unclaimed: u64,
}

impl Board {
    /// The devices of a machine, just switched on. `can_idle`: the guest may halt
    /// through [`IDLE`].
    pub fn new(can_idle: bool) -> Self {
        Self {
            can_idle,
            ..Self::default()
        }
    }

    /// The same with a timer that interrupts the guest, see [`TICKER`].
    #[must_use]
    pub fn with_ticker(self) -> Self {
        Self {
            has_ticker: true,
            ..self
        }
    }

    /// The same with memory for a guest that asks for it, see [`POPULATE`].
    #[must_use]
    pub fn with_populate(self) -> Self {
        Self {
            populate: Some(Populate::default()),
            ..self
        }
    }

    /// The same with registers that switch it off and reset it, see [`POWER_CONTROL`].
    #[must_use]
    pub fn with_power(self) -> Self {
        Self {
            has_power: true,
            ..self
        }
    }

    /// The same with a serial port whose other end waits until it is asked to send.
    #[must_use]
    pub fn with_flow_control(self) -> Self {
        Self {
            serial: Serial::with_flow_control(),
            ..self
        }
    }

    /// What came of an order to give memory, or to take it back.
    pub fn populated(&mut self, order: Order, outcome: Result<(), Refusal>) {
        if let Some(populate) = &mut self.populate {
            populate.done(order, outcome);
        }
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Something has arrived for the serial port that the guest is to hear.
    pub fn arrived(&mut self, host: &mut (impl Terminal + Trigger)) {
        self.serial.arrived(host);
    }

    /// The guest writes `size` bytes (1, 2 or 4) to `port`.
    #[inline(always)]
    pub fn write_port(&mut self, port: u16, size: u8, data: u32, host: &mut impl Host) -> Effect {
        self.counts.ports += 1;
        if size == 1 {
            if let Some(register) = serial_register(port) {
                self.serial.write(register, data as u8, host);
                return Effect::None;
            }
            if port == DEBUG_CONSOLE {
                host.print(data as u8);
                return Effect::None;
            }
        }
        self.write_other(port, size, data, host)
    }

    /// The guest reads `size` bytes (1, 2 or 4) from `port`.
    #[inline(always)]
    pub fn read_port(&mut self, port: u16, size: u8, host: &mut impl Host) -> u32 {
        self.counts.ports += 1;
        if size == 1 {
            if let Some(register) = serial_register(port) {
                return self.serial.read(register, host).into();
            }
        }
        self.read_other(port, size, host)
    }

    /// The guest writes `size` bytes (1, 2, 4 or 8) to memory that is none.
    #[inline(always)]
    pub fn write_mmio(&mut self, address: u64, size: u8, data: u64) {
        self.counts.mmio += 1;
        match transport_register(address, size) {
            Some(offset) => self.transport.write(offset, data as u32),
            None => self.counts.unclaimed += 1,
        }
    }

    /// The guest reads `size` bytes (1, 2, 4 or 8) of memory that is none.
    #[inline(always)]
    pub fn read_mmio(&mut self, address: u64, size: u8) -> u64 {
        self.counts.mmio += 1;
        match transport_register(address, size) {
            Some(offset) => self.transport.read(offset).into(),
            None => {
                self.counts.unclaimed += 1;
                u64::MAX
            }
        }
    }

    #[inline(never)]
    fn write_other(&mut self, port: u16, size: u8, data: u32, host: &mut impl Host) -> Effect {
        match port {
            EXIT => return Effect::Exit(data),
            FRAME if size == 4 => return Effect::Frame(data),
            DEBUG_CONSOLE => host.print(data as u8),
            IDLE if self.can_idle && size == 4 => return Effect::Idle(data),
            TICKER if self.has_ticker && size == 4 => return Effect::Tick(data),
            POPULATE if size == 4 => return self.order(data),
            POWER_CONTROL if self.has_power => return Effect::of_control(data as u8),
            POWER_RESET_PORT if self.has_power => return Effect::of_reset(data as u8),
            COM1..=COM1_LAST => self.write_wide(port, size, data, host),
            _ => self.counts.unclaimed += 1,
        }
        Effect::None
    }

    fn order(&mut self, word: u32) -> Effect {
        match &mut self.populate {
            Some(populate) => populate.write(word).map_or(Effect::None, Effect::Populate),
            None => {
                self.counts.unclaimed += 1;
                Effect::None
            }
        }
    }

    #[inline(never)]
    fn read_other(&mut self, port: u16, size: u8, host: &mut impl Host) -> u32 {
        match (port, size) {
            (EXITS_LOW, 4) => {
                let exits = host.exits(self.counts.ports + self.counts.mmio);
                self.exits_high = (exits >> 32) as u32;
                exits as u32
            }
            (EXITS_HIGH, 4) => self.exits_high,
            (TICKER, 4) if self.has_ticker => TICKER_IS_THERE,
            (POPULATE, 4) if self.populate.is_some() => {
                self.populate.as_ref().map_or(u32::MAX, Populate::read)
            }
            // How a guest finds out that the console is there.
            (DEBUG_CONSOLE, 1) => DEBUG_CONSOLE.into(),
            (POWER_CONTROL..=POWER_RESET_PORT, _) if self.has_power => 0,
            (COM1..=COM1_LAST, _) => self.read_wide(port, size, host),
            _ => {
                self.counts.unclaimed += 1;
                u32::MAX
            }
        }
    }

    /// A wide access to ports of one byte each is one to each of them.
    fn write_wide(&mut self, port: u16, size: u8, data: u32, host: &mut impl Host) {
        let bytes = data.to_le_bytes();
        for (port, byte) in (port..).zip(&bytes[..usize::from(size.min(4))]) {
            match port {
                COM1..=COM1_LAST => self.serial.write((port - COM1) as u8, *byte, host),
                _ => self.counts.unclaimed += 1,
            }
        }
    }

    fn read_wide(&mut self, port: u16, size: u8, host: &mut impl Host) -> u32 {
        let mut bytes = [0xff; 4];
        for (port, byte) in (port..).zip(&mut bytes[..usize::from(size.min(4))]) {
            match port {
                COM1..=COM1_LAST => *byte = self.serial.read((port - COM1) as u8, host),
                _ => self.counts.unclaimed += 1,
            }
        }
        u32::from_le_bytes(bytes)
    }
}

/// The serial port's register at `port`.
#[inline(always)]
fn serial_register(port: u16) -> Option<u8> {
    let register = port.wrapping_sub(COM1);
    (register <= COM1_LAST - COM1).then_some(register as u8)
}

/// The transport's register at `address`, if a 32-bit one is accessed as such.
#[inline(always)]
fn transport_register(address: u64, size: u8) -> Option<u32> {
    let offset = address.wrapping_sub(VIRTIO_MMIO);
    (offset < Transport::SIZE && offset.is_multiple_of(4) && size == 4).then_some(offset as u32)
}

#[cfg(test)]
pub(crate) mod tests {
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
        assert_eq!(board.read_mmio(VIRTIO_MMIO, 4), VIRTIO_MAGIC.into());
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
        let mut write = |board: &mut Board, port, value: u8| {
            board.write_port(port, 1, value.into(), &mut outside)
        };
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
}
