use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::vec::Vec;
use trapline_abi::platform::{EXIT_DONE, POPULATE_PRESENT, SERIAL_SCRATCH, VIRTIO_MAGIC};
use trapline_abi::populate::MemoryRequest;

/// A shell that records calls.
#[derive(Default)]
pub(crate) struct TestShell {
    pub(crate) output: Vec<u8>,
    pub(crate) input: VecDeque<u8>,
    pub(crate) polls: u32,
    pub(crate) interrupts: u32,
    pub(crate) full: bool,
}

impl TestShell {
    pub(crate) fn with_input(bytes: &[u8]) -> Self {
        Self {
            input: bytes.iter().copied().collect(),
            ..Self::default()
        }
    }
}

impl Terminal for TestShell {
    fn send(&mut self, byte: u8) {
        self.output.push(byte);
    }

    fn has_room(&self) -> bool {
        !self.full
    }

    fn receive(&mut self) -> Option<u8> {
        self.polls += 1;
        self.input.pop_front()
    }

    fn interrupt(&mut self) {
        self.interrupts += 1;
    }
}

impl Shell for TestShell {
    fn print(&mut self, byte: u8) {
        self.output.push(byte);
    }

    fn print_all(&mut self, bytes: &[u8]) {
        self.output.extend(bytes);
    }

    fn flush(&mut self) {}

    fn stop_reason(&mut self) -> Option<crate::StopReason> {
        None
    }
}

/// All devices of an image's VM.
const IMAGE: IoBusConfig = IoBusConfig {
    idle: true,
    ticker: true,
    hotplug: true,
    spaces: true,
    power: false,
    flow_control: false,
};

/// No optional device.
fn bare() -> IoBus {
    IoBus::new(IoBusConfig::default())
}

fn read(bus: &mut IoBus, port: u16, size: u8) -> u32 {
    bus.read_port(port, size, &mut TestShell::default(), || 0x1_2345_6789)
}

#[test]
fn each_port_reaches_its_device() {
    let (mut bus, mut shell) = (IoBus::new(IMAGE), TestShell::default());
    assert_eq!(
        bus.write_port(SERIAL_SCRATCH, 1, 0x77, &mut shell),
        Effect::None
    );
    assert_eq!(read(&mut bus, SERIAL_SCRATCH, 1), 0x77);
    assert_eq!(
        bus.write_port(DEBUG_CONSOLE, 1, b'x'.into(), &mut shell),
        Effect::None
    );
    assert_eq!(shell.output, b"x");
    assert_eq!(read(&mut bus, DEBUG_CONSOLE, 1), 0xe9);
    assert_eq!(read(&mut bus, EXITS_LOW, 4), 0x2345_6789);
    assert_eq!(read(&mut bus, EXITS_HIGH, 4), 1);
    assert_eq!(bus.write_port(IDLE, 4, 9, &mut shell), Effect::Idle(9));
    assert_eq!(
        bus.write_port(FRAME, 4, 0x11_2233, &mut shell),
        Effect::Frame(0x11_2233)
    );
    assert_eq!(
        bus.write_port(SPACES, 4, 0x14_0000, &mut shell),
        Effect::Space(0x14_0000)
    );
    assert_eq!(
        bus.write_port(EXIT, 4, EXIT_DONE, &mut shell),
        Effect::Exit(EXIT_DONE)
    );
    assert_eq!(bus.read_mmio(VIRTIO_MMIO, 4), u64::from(VIRTIO_MAGIC));
    assert_eq!(bus.unclaimed(), 0);
}

#[test]
fn ticker_is_optional() {
    let mut shell = TestShell::default();
    let mut with = IoBus::new(IMAGE);
    let page = 0x13_4000;
    assert_eq!(read(&mut with, TICKER, 4), TICKER_PRESENT);
    let effect = with.write_port(TICKER, 4, page, &mut shell);
    assert_eq!(effect, Effect::SetTicker(page));
    let effect = with.write_port(TICKER, 2, page, &mut shell);
    assert_eq!(effect, Effect::None);
    let mut without = bare();
    assert_eq!(read(&mut without, TICKER, 4), u32::MAX);
    let effect = without.write_port(TICKER, 4, page, &mut shell);
    assert_eq!(effect, Effect::None);
}

#[test]
fn memory_can_be_polls_for_only_if_the_machine_gives_any() {
    let mut shell = TestShell::default();
    let mut with = IoBus::new(IMAGE);
    let (wish, answer) = (MemoryRequest::ALL[0], POPULATE_PRESENT);
    assert_eq!(read(&mut with, POPULATE, 4), answer);
    let effect = with.write_port(POPULATE, 4, wish.word(), &mut shell);
    assert_eq!(effect, Effect::Hotplug(HotplugRequest::Attach(wish)));
    with.hotplug_done(HotplugRequest::Attach(wish), Ok(()));
    assert_eq!(read(&mut with, POPULATE, 4), wish.word());
    assert_eq!(with.write_port(POPULATE, 4, 0, &mut shell), Effect::None);
    let mut without = bare();
    assert_eq!(read(&mut without, POPULATE, 4), u32::MAX);
    let effect = without.write_port(POPULATE, 4, wish.word(), &mut shell);
    assert_eq!((effect, without.unclaimed()), (Effect::None, 2));
}

#[test]
fn power_registers_accept_only_their_values() {
    let mut shell = TestShell::default();
    let mut write =
        |bus: &mut IoBus, port, value: u8| bus.write_port(port, 1, value.into(), &mut shell);
    let mut with = IoBus::new(IoBusConfig {
        power: true,
        ..IoBusConfig::default()
    });
    assert_eq!(write(&mut with, POWER_CONTROL, POWER_OFF), Effect::PowerOff);
    assert_eq!(write(&mut with, POWER_CONTROL, 0x20), Effect::None);
    assert_eq!(
        write(&mut with, POWER_RESET_PORT, POWER_RESET),
        Effect::Reset
    );
    assert_eq!(write(&mut with, POWER_RESET_PORT, 0), Effect::None);
    let mut without = bare();
    assert_eq!(write(&mut without, POWER_CONTROL, POWER_OFF), Effect::None);
    assert_eq!(without.unclaimed(), 1);
    assert_eq!(read(&mut with, POWER_CONTROL, 1), 0);
}

#[test]
fn unclaimed_accesses_read_ones_and_are_counted() {
    let (mut bus, mut shell) = (bare(), TestShell::default());
    assert_eq!(read(&mut bus, 0x1234, 2), u32::MAX);
    assert_eq!(bus.write_port(IDLE, 4, 9, &mut shell), Effect::None);
    assert_eq!(bus.write_port(SPACES, 4, 0, &mut shell), Effect::None);
    assert_eq!(bus.read_mmio(VIRTIO_MMIO + 1, 4), u64::MAX);
    assert_eq!(bus.read_mmio(VIRTIO_MMIO, 8), u64::MAX);
    bus.write_mmio(VIRTIO_MMIO + Transport::SIZE, 4, 0);
    assert_eq!(bus.unclaimed(), 6);
}

#[test]
fn wide_accesses_are_split() {
    let (mut bus, mut shell) = (bare(), TestShell::default());
    assert_eq!(
        bus.write_port(SERIAL_SCRATCH, 2, 0xaa55, &mut shell),
        Effect::None
    );
    assert_eq!(read(&mut bus, SERIAL_SCRATCH, 2), 0xffff_ff55);
    assert_eq!(bus.unclaimed(), 2);
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
    fn random_accesses_are_harmless(pokes in prop::collection::vec(poke(), 0..200)) {
        let (mut bus, mut shell) = (IoBus::new(IMAGE), TestShell::with_input(b"some input"));
        let mut ports = 0;
        for poke in pokes {
            match poke {
                Poke::WritePort(port, size, data) => {
                    ports += 1;
                    let effect = bus.write_port(port, size, data, &mut shell);
                    prop_assert!(effect == Effect::None || [EXIT, IDLE, FRAME, TICKER, POPULATE, SPACES].contains(&port));
                    if let Effect::Hotplug(request) = effect {
                        bus.hotplug_done(request, Ok(()));
                    }
                }
                Poke::ReadPort(port, size) => {
                    ports += 1;
                    read(&mut bus, port, size);
                }
                Poke::WriteMmio(address, size, data) => {
                    bus.write_mmio(address, size, data);
                }
                Poke::ReadMmio(address, size) => {
                    bus.read_mmio(address, size);
                }
            }
        }
        prop_assert!(shell.output.len() as u64 <= ports * 4);
    }
}
