//! Arithmetic with an operand in the memory of a device: result and flags.
//!
//! The CPU of this program computes, so that flags which the manual leaves undefined are those of a guest that executes
//! the instruction itself.

use core::arch::asm;

/// Arithmetic flags (Intel SDM volume 1, 3.4.3.1): carry, parity, auxiliary carry, zero, sign, overflow.
pub const FLAGS: u64 = 1 | 1 << 2 | 1 << 4 | ZERO | 1 << 7 | 1 << 11;
const ZERO: u64 = 1 << 6;

/// Executes an instruction with operands in `rax` and `rcx`. Returns `rax` and the flags.
macro_rules! native {
    ($instruction:expr, $first:ident, $second:ident, $flags:ident) => {{
        let (result, flags): (u64, u64);
        // SAFETY: changes two registers and arithmetic flags, and pops what it pushes.
        unsafe {
            asm!("push {flags}", "popfq", $instruction, "pushfq", "pop {flags}",
                 flags = inout(reg) $flags & FLAGS => flags,
                 inout("rax") $first => result, in("rcx") $second);
        }
        (result, flags & FLAGS)
    }};
}

/// Defines [`Operation`]: name, mnemonic, and operands of 1, 2, 4 and 8 bytes.
macro_rules! operations {
    ($($name:ident $mnemonic:literal $byte:literal $word:literal $double:literal $quad:literal,)*) => {
        /// An instruction with at most two operands.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Operation {
            /// Returns the second operand and keeps the flags.
            Move,
            $($name,)*
        }

        impl Operation {
            /// Returns the result, whose bytes beyond `size` are undefined, and the flags.
            fn apply(self, size: u8, first: u64, second: u64, flags: u64) -> (u64, u64) {
                match (self, size) {
                    (Self::Move, _) => (second, flags & FLAGS),
                    $(
                        (Self::$name, 1) => native!(concat!($mnemonic, $byte), first, second, flags),
                        (Self::$name, 2) => native!(concat!($mnemonic, $word), first, second, flags),
                        (Self::$name, 4) => native!(concat!($mnemonic, $double), first, second, flags),
                        (Self::$name, _) => native!(concat!($mnemonic, $quad), first, second, flags),
                    )*
                }
            }
        }
    };
}

// Bit tests and products have no form with bytes.
operations! {
    Add "add" " al, cl" " ax, cx" " eax, ecx" " rax, rcx",
    Or "or" " al, cl" " ax, cx" " eax, ecx" " rax, rcx",
    AddCarry "adc" " al, cl" " ax, cx" " eax, ecx" " rax, rcx",
    SubtractBorrow "sbb" " al, cl" " ax, cx" " eax, ecx" " rax, rcx",
    And "and" " al, cl" " ax, cx" " eax, ecx" " rax, rcx",
    Subtract "sub" " al, cl" " ax, cx" " eax, ecx" " rax, rcx",
    Xor "xor" " al, cl" " ax, cx" " eax, ecx" " rax, rcx",
    Multiply "imul" " ax, cx" " ax, cx" " eax, ecx" " rax, rcx",
    BitTest "bt" " ax, cx" " ax, cx" " eax, ecx" " rax, rcx",
    BitSet "bts" " ax, cx" " ax, cx" " eax, ecx" " rax, rcx",
    BitReset "btr" " ax, cx" " ax, cx" " eax, ecx" " rax, rcx",
    BitComplement "btc" " ax, cx" " ax, cx" " eax, ecx" " rax, rcx",
    RotateLeft "rol" " al, cl" " ax, cl" " eax, cl" " rax, cl",
    RotateRight "ror" " al, cl" " ax, cl" " eax, cl" " rax, cl",
    RotateCarryLeft "rcl" " al, cl" " ax, cl" " eax, cl" " rax, cl",
    RotateCarryRight "rcr" " al, cl" " ax, cl" " eax, cl" " rax, cl",
    ShiftLeft "shl" " al, cl" " ax, cl" " eax, cl" " rax, cl",
    ShiftRight "shr" " al, cl" " ax, cl" " eax, cl" " rax, cl",
    ShiftRightSigned "sar" " al, cl" " ax, cl" " eax, cl" " rax, cl",
    Increment "inc" " al" " ax" " eax" " rax",
    Decrement "dec" " al" " ax" " eax" " rax",
    Not "not" " al" " ax" " eax" " rax",
    Negate "neg" " al" " ax" " eax" " rax",
}

/// Operations with these numbers in opcodes (Intel SDM volume 2, A.2.1 and A.4): arithmetic, where 7 compares; shifts,
/// where 6 is 4; bit tests, from 4.
const ARITHMETIC: [Operation; 8] = [
    Operation::Add,
    Operation::Or,
    Operation::AddCarry,
    Operation::SubtractBorrow,
    Operation::And,
    Operation::Subtract,
    Operation::Xor,
    Operation::Subtract,
];
const SHIFTS: [Operation; 8] = [
    Operation::RotateLeft,
    Operation::RotateRight,
    Operation::RotateCarryLeft,
    Operation::RotateCarryRight,
    Operation::ShiftLeft,
    Operation::ShiftRight,
    Operation::ShiftLeft,
    Operation::ShiftRightSigned,
];
const BIT_TESTS: [Operation; 4] = [
    Operation::BitTest,
    Operation::BitSet,
    Operation::BitReset,
    Operation::BitComplement,
];

impl Operation {
    pub(crate) fn arithmetic(number: u8) -> Self {
        ARITHMETIC[usize::from(number & 7)]
    }

    pub(crate) fn shift(number: u8) -> Self {
        SHIFTS[usize::from(number & 7)]
    }

    pub(crate) fn bit_test(number: u8) -> Self {
        BIT_TESTS[usize::from(number & 3)]
    }
}

/// Destination of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The flags only.
    Flags,
    /// This register.
    Register(u8),
    /// The memory operand.
    Memory,
    /// The memory operand, whose old value this register receives.
    Exchange(u8),
    /// The other operand goes to the memory operand if that equals this accumulator, which receives the old value
    /// otherwise (`cmpxchg`).
    CompareExchange(u64),
}

/// A computation with a value from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Computation {
    /// Operation.
    pub operation: Operation,
    /// The other operand.
    pub other: u64,
    /// The value from memory is the first operand.
    pub is_first: bool,
    /// Destination of the result.
    pub target: Target,
    /// Size in bytes: 1, 2, 4 or 8.
    pub size: u8,
}

/// Result of a [`Computation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Arithmetic flags.
    pub flags: u64,
    /// Value for the memory operand, unless it is only read.
    pub memory: u64,
    /// Register to be changed, with its value.
    pub register: Option<(u8, u64)>,
}

impl Computation {
    /// Computes with `value` from memory and the current flags.
    pub fn apply(&self, value: u64, flags: u64) -> Outcome {
        const ACCUMULATOR: u8 = 0;
        let (first, second) = match (self.target, self.is_first) {
            (Target::CompareExchange(accumulator), _) => (accumulator, value),
            (_, true) => (value, self.other),
            (_, false) => (self.other, value),
        };
        let (result, flags) = self.operation.apply(self.size, first, second, flags);
        let (memory, register) = match self.target {
            Target::Flags => (value, None),
            Target::Register(register) => (value, Some((register, result))),
            Target::Memory => (result, None),
            Target::Exchange(register) => (result, Some((register, value))),
            Target::CompareExchange(_) if flags & ZERO != 0 => (self.other, None),
            Target::CompareExchange(_) => (value, Some((ACCUMULATOR, value))),
        };
        Outcome {
            flags,
            memory,
            register,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn computed(operation: Operation, target: Target, size: u8) -> impl Fn(u64, u64) -> Outcome {
        move |value, other| {
            let computation = Computation {
                operation,
                other,
                is_first: true,
                target,
                size,
            };
            computation.apply(value, 0)
        }
    }

    #[test]
    fn flags_are_those_of_the_size() {
        let compare = |first, second, size| {
            computed(Operation::Subtract, Target::Flags, size)(first, second).flags
        };
        let (carry, parity, auxiliary, sign, overflow) = (1, 1 << 2, 1 << 4, 1 << 7, 1 << 11);
        assert_eq!(compare(5, 5, 4), ZERO | parity);
        assert_eq!(compare(0x1_0000_0005, 5, 4), ZERO | parity);
        assert_eq!(compare(0, 1, 1), carry | sign | parity | auxiliary);
        assert_eq!(compare(0x80, 1, 1), overflow | auxiliary);
        assert_eq!(compare(0x8000_0000, 1, 4) & overflow, overflow);
        assert_eq!(compare(0x8000_0000, 1, 8) & overflow, 0);
    }

    #[test]
    fn exchanges_return_the_old_value() {
        let add = computed(Operation::Add, Target::Exchange(3), 1)(2, 0xff);
        assert_eq!(
            (add.memory & 0xff, add.register, add.flags & 1),
            (1, Some((3, 2)), 1)
        );
        let exchange = |accumulator| {
            computed(Operation::Subtract, Target::CompareExchange(accumulator), 8)(7, 9)
        };
        assert_eq!((exchange(7).memory, exchange(7).register), (9, None));
        assert_eq!(
            (exchange(8).memory, exchange(8).register),
            (7, Some((0, 7)))
        );
    }
}
