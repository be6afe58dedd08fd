//! Arithmetic with an operand that was read from a device: result and flags.

use core::arch::asm;

/// Arithmetic flags (Intel SDM volume 1, 3.4.3.1): carry, parity, auxiliary carry, zero, sign, overflow.
const PARITY: u64 = 1 << 2;
const AUXILIARY: u64 = 1 << 4;
/// All of them.
pub const FLAGS: u64 = 1 | PARITY | AUXILIARY | 1 << 6 | 1 << 7 | 1 << 11;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Add,
    Or,
    And,
    Subtract,
    Xor,
}

impl Operation {
    /// Returns the operation with this number in opcodes (Intel SDM volume 2, A.2.1). 2 and 3 use the carry flag
    /// and are not supported; 7 compares.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        match number & 7 {
            0 => Some(Self::Add),
            1 => Some(Self::Or),
            4 => Some(Self::And),
            5 | 7 => Some(Self::Subtract),
            6 => Some(Self::Xor),
            _ => None,
        }
    }

    /// Returns the result in 64 bits, with the flags.
    fn apply(self, first: u64, second: u64) -> (u64, u64) {
        let mut result = first;
        macro_rules! with_flags {
            ($instruction:literal) => {{
                let flags: u64;
                // SAFETY: changes registers, and pops what it pushes.
                unsafe {
                    asm!(concat!($instruction, " {0}, {1}"), "pushfq", "pop {2}",
                         inout(reg) result, in(reg) second, out(reg) flags);
                }
                (result, flags & FLAGS)
            }};
        }
        match self {
            Self::Add => with_flags!("add"),
            Self::Or => with_flags!("or"),
            Self::And => with_flags!("and"),
            Self::Subtract => with_flags!("sub"),
            Self::Xor => with_flags!("xor"),
        }
    }
}

/// A computation with a value from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Computation {
    pub operation: Operation,
    /// The other operand.
    pub other: u64,
    /// The value from memory is the first operand.
    pub is_first: bool,
    /// Register for the result, if it is kept.
    pub register: Option<u8>,
    /// Size in bytes: 1, 2, 4 or 8.
    pub size: u8,
}

impl Computation {
    /// Returns result and flags.
    pub fn apply(&self, value: u64) -> (u64, u64) {
        let (first, second) = match self.is_first {
            true => (value, self.other),
            false => (self.other, value),
        };
        let (result, low) = self.operation.apply(first, second);
        // In the upper bits operands of any size have the flags of that size; parity and auxiliary carry are those
        // of the lowest bits.
        let shift = 64 - 8 * u32::from(self.size);
        let (_, high) = self.operation.apply(first << shift, second << shift);
        let of_low = PARITY | AUXILIARY;
        (result << shift >> shift, high & !of_low | low & of_low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_of_the_size() {
        let compare = |first: u64, second: u64, size| {
            let computation = Computation {
                operation: Operation::Subtract,
                other: second,
                is_first: true,
                register: None,
                size,
            };
            computation.apply(first).1
        };
        let (carry, zero, sign, overflow) = (1, 1 << 6, 1 << 7, 1 << 11);
        assert_eq!(compare(5, 5, 4), zero | PARITY);
        assert_eq!(compare(0x1_0000_0005, 5, 4), zero | PARITY);
        assert_eq!(compare(0, 1, 1), carry | sign | PARITY | AUXILIARY);
        assert_eq!(compare(0x80, 1, 1), overflow | AUXILIARY);
        assert_eq!(compare(0x8000_0000, 1, 4) & overflow, overflow);
        assert_eq!(compare(0x8000_0000, 1, 8) & overflow, 0);
    }

    #[test]
    fn results_have_the_size() {
        let add = Computation {
            operation: Operation::Add,
            other: 0xff,
            is_first: false,
            register: Some(0),
            size: 1,
        };
        let (result, flags) = add.apply(2);
        assert_eq!((result, flags & 1), (1, 1));
    }
}
