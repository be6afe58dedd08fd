//! An I/O APIC of a machine with one CPU (Intel 82093AA data sheet, chapter 3). Its pins are edge-triggered.

/// Number of pins.
pub const PINS: usize = 24;

/// Offsets of the two registers in memory.
const SELECT: u64 = 0;
const DATA: u64 = 0x10;
/// Selected registers; each pin has two from `ENTRIES`.
const ID: u8 = 0;
const VERSION: u8 = 1;
const ENTRIES: u8 = 0x10;

/// Version 0x11, and the number of the last entry.
const VERSION_VALUE: u32 = 0x11 | (PINS as u32 - 1) << 16;
/// Bits of an entry: masked, read-only ones, delivery mode.
const MASKED: u64 = 1 << 16;
const READ_ONLY: u64 = 1 << 12 | 1 << 14;
const MODE_SHIFT: u32 = 8;
const FIXED: u64 = 0;
const LOWEST_PRIORITY: u64 = 1;

/// The I/O APIC.
#[derive(Clone, Debug)]
pub struct IoApic {
    selected: u8,
    id: u32,
    entries: [u64; PINS],
}

impl Default for IoApic {
    fn default() -> Self {
        Self {
            selected: 0,
            id: 0,
            entries: [MASKED; PINS],
        }
    }
}

impl IoApic {
    /// Reads 32 bits at `offset`.
    pub fn read(&self, offset: u64) -> u32 {
        match (offset, self.selected) {
            (SELECT, selected) => selected.into(),
            (DATA, ID) => self.id,
            (DATA, VERSION) => VERSION_VALUE,
            (DATA, _) => match self.entry() {
                Some((pin, shift)) => (self.entries[pin] >> shift) as u32,
                None => 0,
            },
            _ => 0,
        }
    }

    /// Writes 32 bits at `offset`.
    pub fn write(&mut self, offset: u64, value: u32) {
        match (offset, self.selected) {
            (SELECT, _) => self.selected = value as u8,
            (DATA, ID) => self.id = value,
            (DATA, _) => {
                if let Some((pin, shift)) = self.entry() {
                    let written = (u64::from(value) << shift) & !READ_ONLY;
                    let kept = self.entries[pin] & !(0xffff_ffff << shift);
                    self.entries[pin] = kept | written;
                }
            }
            _ => {}
        }
    }

    /// Returns the vector that an edge at `pin` requests. An edge at a masked pin is lost.
    pub fn vector(&self, pin: u8) -> Option<u8> {
        let entry = *self.entries.get(usize::from(pin))?;
        let is_delivered = matches!(entry >> MODE_SHIFT & 7, FIXED | LOWEST_PRIORITY);
        (is_delivered && entry & MASKED == 0).then_some(entry as u8)
    }

    /// Returns the pin of the selected entry, and the position of the selected half.
    fn entry(&self) -> Option<(usize, u32)> {
        let index = self.selected.checked_sub(ENTRIES)?;
        let pin = usize::from(index / 2);
        (pin < PINS).then_some((pin, 32 * u32::from(index & 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(apic: &mut IoApic, register: u32, value: u32) {
        apic.write(SELECT, register);
        apic.write(DATA, value);
    }

    fn get(apic: &mut IoApic, register: u32) -> u32 {
        apic.write(SELECT, register);
        apic.read(DATA)
    }

    #[test]
    fn pins_are_masked_after_a_reset() {
        let mut apic = IoApic::default();
        assert_eq!(get(&mut apic, 1), 0x0017_0011);
        assert_eq!(get(&mut apic, 0x18), 1 << 16);
        assert!((0..=u8::MAX).all(|pin| apic.vector(pin).is_none()));
    }

    #[test]
    fn a_pin_requests_the_vector_of_its_entry() {
        let mut apic = IoApic::default();
        put(&mut apic, 0x19, 0x0100_0000);
        put(&mut apic, 0x18, 0x5031);
        assert_eq!(
            (get(&mut apic, 0x18), get(&mut apic, 0x19)),
            (0x31, 0x0100_0000)
        );
        assert_eq!((apic.vector(4), apic.vector(5)), (Some(0x31), None));
        put(&mut apic, 0x18, 0x1_0031);
        assert_eq!(apic.vector(4), None);
        // NMI, and ExtINT.
        for mode in [4, 7] {
            put(&mut apic, 0x18, mode << 8 | 0x31);
            assert_eq!(apic.vector(4), None);
        }
    }

    #[test]
    fn registers_that_do_not_exist_are_zero() {
        let mut apic = IoApic::default();
        for register in [2, 0x0f, 0x40, 0xff] {
            put(&mut apic, register, u32::MAX);
            assert_eq!(get(&mut apic, register), 0);
        }
        assert_eq!(apic.read(0x20), 0);
    }
}
