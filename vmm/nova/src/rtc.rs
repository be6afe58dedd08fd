//! The machine's real-time clock (Motorola MC146818A data sheet).

#[cfg(trapline_image)]
use crate::ports::{in8, out8, RTC};

/// Registers: second, minute, hour, day, month, year of the century.
#[cfg(trapline_image)]
const REGISTERS: [u8; 6] = [0, 2, 4, 7, 8, 9];

/// Returns the time in seconds since 1970, in this century. The clock is not being updated: it is that of a simulated
/// machine, and counts from the reset.
#[cfg(trapline_image)]
pub fn seconds() -> u32 {
    seconds_of(REGISTERS.map(|register| {
        out8(RTC, register);
        in8(RTC + 1)
    }))
}

/// Converts decimal digits of four bits each.
fn seconds_of(registers: [u8; 6]) -> u32 {
    let [second, minute, hour, day, month, year] =
        registers.map(|bcd| u32::from(bcd >> 4) * 10 + u32::from(bcd & 15));
    ((days(2000 + year, month, day) * 24 + hour) * 60 + minute) * 60 + second
}

/// Days from the start of 1970 to a day of a year between 2000 and 2099.
fn days(year: u32, month: u32, day: u32) -> u32 {
    const BEFORE: [u32; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leap_days = (year - 1 - 1968) / 4 + u32::from(year.is_multiple_of(4) && month > 2);
    let before = BEFORE[(month.max(1) as usize - 1) % 12];
    (year - 1970) * 365 + leap_days + before + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_converted() {
        for (registers, expected) in [
            ([0, 0, 0, 1, 1, 0x24], 1_704_067_200),
            ([0x59, 0x59, 0x23, 0x31, 0x12, 0x23], 1_704_067_199),
            ([0, 0, 0, 0x29, 2, 0x24], 1_709_164_800),
            ([0, 0, 0, 1, 3, 0x24], 1_709_251_200),
            ([0x56, 0x34, 0x12, 1, 1, 0], 946_730_096),
        ] {
            assert_eq!(seconds_of(registers), expected, "{registers:x?}");
        }
    }
}
