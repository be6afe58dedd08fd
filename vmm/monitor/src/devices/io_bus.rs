//! Address decoding for the platform devices.

use crate::devices::{Hotplug, HotplugRequest, Serial, Shell, Terminal, Transport};
use trapline_abi::platform::{
    COM1, DEBUG_CONSOLE, EXIT, EXITS_HIGH, EXITS_LOW, FRAME, IDLE, POPULATE, POWER_CONTROL,
    POWER_OFF, POWER_RESET, POWER_RESET_PORT, SPACES, TICKER, TICKER_PRESENT, VIRTIO_MMIO,
};
use trapline_abi::populate::Refusal;
use trapline_abi::spaces::FAULTS_BY_PORT;

const COM1_LAST: u16 = COM1 + 7;

/// The devices at I/O ports, and the virtio register window.
#[derive(Debug, Default)]
pub struct IoBus {
    serial: Serial,
    transport: Transport,
    exits_high: u32,
    config: IoBusConfig,
    hotplug: Hotplug,
    unclaimed: u64,
}

/// Optional devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoBusConfig {
    /// Port [`IDLE`], by which the guest halts.
    pub idle: bool,
    /// The timer at port [`TICKER`].
    pub ticker: bool,
    /// Memory hotplug at port [`POPULATE`].
    pub hotplug: bool,
    /// Address spaces of a guest at ring 3 at port [`SPACES`].
    pub spaces: bool,
    /// Registers for power-off and reset, from [`POWER_CONTROL`].
    pub power: bool,
    /// The serial terminal sends only while RTS is set.
    pub flow_control: bool,
}

/// Effect of a port write on the VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Effect {
    /// None.
    None,
    /// The guest exits with this value.
    Exit(u32),
    /// The guest halts, unless its interrupt count differs from this.
    Idle(u32),
    /// The guest writes the frame at this address to the console.
    Frame(u32),
    /// The guest starts the ticker with the page at this address.
    SetTicker(u32),
    /// The guest requests memory; [`IoBus::hotplug_done`] takes the result.
    Hotplug(HotplugRequest),
    /// The guest makes the request for address spaces at this address.
    Space(u32),
    /// The guest powers off.
    PowerOff,
    /// The guest resets the VM.
    Reset,
}

impl IoBus {
    /// Creates the devices in reset state.
    pub fn new(config: IoBusConfig) -> Self {
        Self {
            serial: Serial::new(config.flow_control),
            config,
            ..Self::default()
        }
    }

    /// Records the result of a hotplug request.
    pub fn hotplug_done(&mut self, request: HotplugRequest, result: Result<(), Refusal>) {
        self.hotplug.done(request, result);
    }

    /// Number of accesses that no device has claimed.
    pub fn unclaimed(&self) -> u64 {
        self.unclaimed
    }

    /// Handles new input for the serial port.
    pub fn input_arrived(&mut self, terminal: &mut impl Terminal) {
        self.serial.input_arrived(terminal);
    }

    /// Writes `size` bytes (1, 2 or 4) to `port`.
    #[inline(always)]
    pub fn write_port(&mut self, port: u16, size: u8, data: u32, shell: &mut impl Shell) -> Effect {
        if size == 1 {
            if let Some(register) = serial_register(port) {
                self.serial.write(register, data as u8, shell);
                return Effect::None;
            }
            if port == DEBUG_CONSOLE {
                shell.print(data as u8);
                return Effect::None;
            }
        }
        self.write_other(port, size, data, shell)
    }

    /// Reads `size` bytes (1, 2 or 4) from `port`. `exits` returns the exit count of the vCPU.
    #[inline(always)]
    pub fn read_port(
        &mut self,
        port: u16,
        size: u8,
        shell: &mut impl Shell,
        exits: impl FnOnce() -> u64,
    ) -> u32 {
        if size == 1 {
            if let Some(register) = serial_register(port) {
                return self.serial.read(register, shell).into();
            }
        }
        self.read_other(port, size, shell, exits)
    }

    /// Writes `size` bytes (1, 2, 4 or 8) to an MMIO address.
    #[inline(always)]
    pub fn write_mmio(&mut self, address: u64, size: u8, data: u64) {
        match transport_register(address, size) {
            Some(offset) => self.transport.write(offset, data as u32),
            None => self.unclaimed += 1,
        }
    }

    /// Reads `size` bytes (1, 2, 4 or 8) from an MMIO address.
    #[inline(always)]
    pub fn read_mmio(&mut self, address: u64, size: u8) -> u64 {
        match transport_register(address, size) {
            Some(offset) => self.transport.read(offset).into(),
            None => {
                self.unclaimed += 1;
                u64::MAX
            }
        }
    }

    #[inline(never)]
    fn write_other(&mut self, port: u16, size: u8, data: u32, shell: &mut impl Shell) -> Effect {
        match port {
            EXIT => return Effect::Exit(data),
            FRAME if size == 4 => return Effect::Frame(data),
            DEBUG_CONSOLE => shell.print(data as u8),
            IDLE if self.config.idle && size == 4 => return Effect::Idle(data),
            TICKER if self.config.ticker && size == 4 => return Effect::SetTicker(data),
            POPULATE if self.config.hotplug && size == 4 => {
                return self
                    .hotplug
                    .write(data)
                    .map_or(Effect::None, Effect::Hotplug)
            }
            SPACES if self.config.spaces && size == 4 => return Effect::Space(data),
            POWER_CONTROL if self.config.power && data as u8 == POWER_OFF => {
                return Effect::PowerOff
            }
            POWER_RESET_PORT if self.config.power && data as u8 == POWER_RESET => {
                return Effect::Reset
            }
            POWER_CONTROL..=POWER_RESET_PORT if self.config.power => {}
            COM1..=COM1_LAST => self.write_wide(port, size, data, shell),
            _ => self.unclaimed += 1,
        }
        Effect::None
    }

    #[inline(never)]
    fn read_other(
        &mut self,
        port: u16,
        size: u8,
        shell: &mut impl Shell,
        exits: impl FnOnce() -> u64,
    ) -> u32 {
        match (port, size) {
            (EXITS_LOW, 4) => {
                shell.flush();
                let exits = exits();
                self.exits_high = (exits >> 32) as u32;
                exits as u32
            }
            (EXITS_HIGH, 4) => self.exits_high,
            (TICKER, 4) if self.config.ticker => TICKER_PRESENT,
            (POPULATE, 4) if self.config.hotplug => self.hotplug.read(),
            (SPACES, 4) if self.config.spaces => FAULTS_BY_PORT,
            // The guest detects the console by this value.
            (DEBUG_CONSOLE, 1) => DEBUG_CONSOLE.into(),
            (POWER_CONTROL..=POWER_RESET_PORT, _) if self.config.power => 0,
            (COM1..=COM1_LAST, _) => self.read_wide(port, size, shell),
            _ => {
                self.unclaimed += 1;
                u32::MAX
            }
        }
    }

    /// Splits a wide access to the serial port into bytes.
    fn write_wide(&mut self, port: u16, size: u8, data: u32, shell: &mut impl Shell) {
        let bytes = data.to_le_bytes();
        for (port, byte) in (port..).zip(&bytes[..usize::from(size.min(4))]) {
            match port {
                COM1..=COM1_LAST => self.serial.write((port - COM1) as u8, *byte, shell),
                _ => self.unclaimed += 1,
            }
        }
    }

    fn read_wide(&mut self, port: u16, size: u8, shell: &mut impl Shell) -> u32 {
        let mut bytes = [0xff; 4];
        for (port, byte) in (port..).zip(&mut bytes[..usize::from(size.min(4))]) {
            match port {
                COM1..=COM1_LAST => *byte = self.serial.read((port - COM1) as u8, shell),
                _ => self.unclaimed += 1,
            }
        }
        u32::from_le_bytes(bytes)
    }
}

/// Returns the serial register at `port`.
#[inline(always)]
fn serial_register(port: u16) -> Option<u8> {
    let register = port.wrapping_sub(COM1);
    (register <= COM1_LAST - COM1).then_some(register as u8)
}

/// Returns the virtio register at `address`, if accessed with 32 bits.
#[inline(always)]
fn transport_register(address: u64, size: u8) -> Option<u32> {
    let offset = address.wrapping_sub(VIRTIO_MMIO);
    (offset < Transport::SIZE && offset.is_multiple_of(4) && size == 4).then_some(offset as u32)
}

#[cfg(test)]
pub(crate) mod tests;
