//! Access to the registers by model-specific registers (Intel SDM volume 3, 11.12).

use super::{Apic, Requests, COMMAND};

/// Model-specific registers of the APIC: the first is that of offset 0, and the next are 16 bytes apart.
const FIRST: u32 = 0x800;
const LAST: u32 = 0x83f;

const LOGICAL_ID: u64 = 0xd0;
const SELF_INTERRUPT: u64 = 0x3f0;
/// Bits of the command: shorthand for destinations, and delivery mode, of which these two deliver the vector.
const SHORTHAND_SHIFT: u32 = 18;
const MODE_SHIFT: u32 = 8;
const FIXED: u64 = 0;
const LOWEST_PRIORITY: u64 = 1;

impl<R: Requests> Apic<R> {
    /// Reads the register of a model-specific register; `None` if it is none of the APIC.
    pub fn read_msr(&mut self, number: u32, now: u64) -> Option<u64> {
        Some(match offset(number)? {
            // APIC ID 0 is the first of cluster 0.
            LOGICAL_ID => 1,
            offset => self.read(offset, now).into(),
        })
    }

    /// Writes the register of a model-specific register; `None` if it is none of the APIC.
    pub fn write_msr(&mut self, number: u32, value: u64, now: u64) -> Option<()> {
        match offset(number)? {
            COMMAND if is_for_this(value) => self.requests.request(value as u8),
            COMMAND | LOGICAL_ID => {}
            SELF_INTERRUPT => self.requests.request(value as u8),
            offset => self.write(offset, value as u32, now),
        }
        Some(())
    }
}

fn offset(number: u32) -> Option<u64> {
    let index = number.checked_sub(FIRST)?;
    (number <= LAST).then_some(u64::from(index) * 16)
}

/// Returns whether a command interrupts the only CPU.
fn is_for_this(command: u64) -> bool {
    const TO_ALL: u64 = 0xffff_ffff;
    const ID: u64 = 0;
    const LOGICAL: u64 = 1;
    let is_delivered = matches!(command >> MODE_SHIFT & 7, FIXED | LOWEST_PRIORITY);
    is_delivered
        && match command >> SHORTHAND_SHIFT & 3 {
            0 => matches!(command >> 32, ID | LOGICAL | TO_ALL),
            shorthand => shorthand != 3,
        }
}

#[cfg(test)]
mod tests {
    use super::super::VECTORS;
    use super::*;

    #[test]
    fn registers_have_the_values_of_their_offsets() {
        let mut apic = Apic::new([0; VECTORS / 32]);
        assert_eq!(apic.write_msr(0x80f, 0x1ff, 0), Some(()));
        assert_eq!(
            (apic.read(0xf0, 0), apic.read_msr(0x80f, 0)),
            (0x1ff, Some(0x1ff))
        );
        assert_eq!(
            (apic.read_msr(0x80d, 0), apic.read_msr(0x802, 0)),
            (Some(1), Some(0))
        );
        assert_eq!(
            (apic.read_msr(0x7ff, 0), apic.write_msr(0x840, 0, 0)),
            (None, None)
        );
    }

    #[test]
    fn commands_to_other_cpus_are_ignored() {
        for (command, is_delivered) in [
            (0x30, true),
            (1 << 32 | 1 << 11 | 0x30, true),
            (1 << 18 | 0x30, true),
            (2 << 18 | 0x30, true),
            (3 << 18 | 0x30, false),
            (2 << 32 | 0x30, false),
            // INIT.
            (5 << 8 | 0x30, false),
        ] {
            let mut apic = Apic::new([0; VECTORS / 32]);
            apic.write_msr(0x80f, 0x1ff, 0);
            apic.write_msr(0x830, command, 0);
            assert_eq!(apic.pending(), is_delivered.then_some(0x30), "{command:#x}");
        }
        let mut apic = Apic::new([0; VECTORS / 32]);
        apic.write_msr(0x80f, 0x1ff, 0);
        apic.write_msr(0x83f, 0x31, 0);
        assert_eq!(apic.pending(), Some(0x31));
    }
}
