//! Which device answers where.

use crate::devices::{Host, Order, Populate, Serial, Terminal, Transport, Trigger};
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
pub(crate) mod tests;
