//! Markers: instructions without effect at the begin and end of a measured batch and at the stages of a boot, which the
//! instrumentation of a simulated machine recognises. They are executed with and without it.
//!
//! Markers of a batch are `xchg bx, bx` with segment prefixes, which a register operand ignores, and which no compiler
//! emits (Intel SDM volume 2, section 2.1.1 and XCHG). It is the magic breakpoint of Bochs, at which its debugger stops.
//! Markers of stages are `nop dword [rax + rax + displacement]` (NOP), which has room for a number. All have 8 bytes.
//!
//! An announcement is `mov rax, ADDRESS` with such prefixes. It gives the instrumentation an address of code that only the
//! running system has.

/// Bytes of a marker of a stage before the kind, and after the stage.
const NOP: ([u8; 4], [u8; 2]) = ([0x0f, 0x1f, 0x84, 0x00], [0x70, 0x7a]);

/// Marker without a meaning, used in calibration: it exchanges `cx` with itself.
pub const IDLE: u8 = 0x64;

/// Precedes the first instruction of a batch.
pub const BEGIN: u8 = 0x26;

/// Follows the last instruction of a batch.
pub const END: u8 = 0x36;

/// Follows a reading of the clock at a stage of the boot. The number of the stage follows the
/// kind. See [`crate::stamp!`].
pub const STAGE: u8 = 3;

/// Returns the marker of a batch of this kind.
pub const fn of_batch(kind: u8) -> [u8; 8] {
    let registers = match kind {
        IDLE => 0xc9,
        _ => 0xdb,
    };
    [0x2e, 0x3e, 0x2e, 0x3e, kind, 0x66, 0x87, registers]
}

/// Instructions from the first reading of the clock of a batch to the second, without those
/// between the markers: `rdtsc`, `lfence`, two moves and the marker before the batch, the marker
/// and `lfence` after it.
pub const OVERHEAD: u64 = 7;

/// Returns the kind of the marker of a batch that an instruction is.
pub fn kind(bytes: &[u8]) -> Option<u8> {
    [BEGIN, END, IDLE]
        .into_iter()
        .find(|kind| bytes == of_batch(*kind))
}

/// Returns the number of the stage that an instruction marks.
pub fn stage(bytes: &[u8]) -> Option<u8> {
    match bytes.strip_prefix(&NOP.0)? {
        [STAGE, number, tail @ ..] if *tail == NOP.1 => Some(*number),
        _ => None,
    }
}

/// Bytes of an announcement before the address.
const ANNOUNCEMENT: [u8; 7] = [0x2e, 0x3e, 0x2e, 0x3e, 0x2e, 0x48, 0xb8];

/// Returns the announcement of an address.
pub fn announcement(address: u64) -> [u8; 15] {
    let mut bytes = [0; 15];
    let (before, behind) = bytes.split_at_mut(ANNOUNCEMENT.len());
    before.copy_from_slice(&ANNOUNCEMENT);
    behind.copy_from_slice(&address.to_le_bytes());
    bytes
}

/// Returns the address that an instruction announces.
pub fn announced(bytes: &[u8]) -> Option<u64> {
    let address = bytes.strip_prefix(&ANNOUNCEMENT)?;
    Some(u64::from_le_bytes(address.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_are_recognised() {
        let bytes = announcement(0xffff_ffff_c040_1a7b);
        assert_eq!(announced(&bytes), Some(0xffff_ffff_c040_1a7b));
        assert_eq!(announced(&bytes[..14]), None);
        assert_eq!(announced(&bytes[1..]), None);
        assert_eq!((kind(&bytes), stage(&bytes)), (None, None));
    }

    #[test]
    fn stage_markers_are_recognised() {
        let marker = |number| [0x0f, 0x1f, 0x84, 0x00, STAGE, number, 0x70, 0x7a];
        for number in [0, 7, 255] {
            assert_eq!(stage(&marker(number)), Some(number));
            assert_eq!(kind(&marker(number)), None);
        }
        assert_eq!(stage(&marker(0)[..7]), None);
    }

    #[test]
    fn markers_are_recognised_and_padding_is_not() {
        for wanted in [BEGIN, END, IDLE] {
            let bytes = of_batch(wanted);
            assert_eq!(kind(&bytes), Some(wanted));
            assert_eq!(kind(&bytes[..7]), None);
            assert_eq!(stage(&bytes), None);
        }
        // `xchg bx, bx` alone, and padding of assemblers.
        assert_eq!(kind(&[0x66, 0x87, 0xdb]), None);
        assert_eq!(kind(&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]), None);
        assert_eq!(kind(&[]), None);
    }
}
