//! The clock that KVM offers to guests (Linux, Documentation/virt/kvm/x86/msr.rst): structures in guest memory from
//! which a guest computes time from its TSC, which counts nanoseconds here.

/// Bit of a flag: the clock is the same on all CPUs.
const STABLE: u8 = 1;
/// Even: the structure is complete.
const VERSION: u32 = 2;
/// 2^32 times the nanoseconds of a tick that was shifted left once.
const MULTIPLIER: u32 = 1 << 31;
const SHIFT: i8 = 1;

/// Returns the structure of a clock that has been 0 at `start`, in ticks of the TSC.
pub fn clock(start: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&VERSION.to_le_bytes());
    bytes[8..16].copy_from_slice(&start.to_le_bytes());
    bytes[24..28].copy_from_slice(&MULTIPLIER.to_le_bytes());
    bytes[28..30].copy_from_slice(&[SHIFT as u8, STABLE]);
    bytes
}

/// Returns the structure of the wall clock at that time, in seconds since 1970.
pub fn wall_clock(seconds: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&VERSION.to_le_bytes());
    bytes[4..8].copy_from_slice(&seconds.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns nanoseconds as a guest computes them (Linux, `__pvclock_read_cycles`).
    fn read(clock: &[u8; 32], tsc: u64) -> u64 {
        let word = |at: usize| u64::from_le_bytes(clock[at..at + 8].try_into().unwrap());
        let multiplier = word(24) & 0xffff_ffff;
        let ticks = (tsc - word(8)) << clock[28];
        word(16) + ((u128::from(ticks) * u128::from(multiplier)) >> 32) as u64
    }

    #[test]
    fn clock_counts_nanoseconds_from_its_start() {
        let clock = clock(1_000_000);
        for after in [0, 1, 999, 1 << 40] {
            assert_eq!(read(&clock, 1_000_000 + after), after);
        }
        assert_eq!((clock[0] & 1, clock[29] & STABLE), (0, STABLE));
    }

    #[test]
    fn wall_clock_has_seconds() {
        assert_eq!(wall_clock(0x0102_0304)[4..], [4, 3, 2, 1, 0, 0, 0, 0]);
    }
}
