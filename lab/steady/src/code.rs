//! Machine code of QEMU's `x86_cpu_do_interrupt`, in which the offsets of its fields are read.
//!
//! The function passes the vector (`CPUState::exception_index`) and `CPUX86State::exception_is_int`
//! to `do_interrupt_all`, unless the vector is that of an exit from a guest. The code is that of
//! Debian's QEMU 7.2 and 10.0.

/// A function may begin with ENDBR64.
const ENDBR64: &str = "f3 0f 1e fa";

/// The start up to the comparison of the vector in ESI with that of an exit. RBP is the CPU, and so is
/// RAX, which `object_dynamic_cast_assert` returns. The last byte is a jump's distance.
const START: &str = "55 48 8d 35 .. .. .. .. 48 89 fd 4c 8d 05 .. .. .. .. 53 \
    b9 .. .. .. .. 48 8d 15 .. .. .. .. 48 83 ec 08 e8 .. .. .. .. \
    8b b5 vector .. .. .. 48 89 c3 81 fe 00 01 00 00 75 other";

/// The target of that jump: the call of `do_interrupt_all` with the error code in ECX,
/// `exception_is_int` in EDX, and the address of the next instruction in R8.
const CALL: &str = "8b 88 error .. .. .. 8b 90 instruction .. .. .. 45 31 c9 48 89 c7 \
    4c 8b 80 next .. .. .. e8 callee .. .. ..";

/// Offsets in QEMU's CPU, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// Vector of the pending exception.
    pub vector: usize,
    /// Nonzero if an instruction INT n has raised it.
    pub is_instruction: usize,
}

/// Returns the offsets, if `code` is that of `x86_cpu_do_interrupt`, and `do_interrupt_all` is
/// `callee` bytes after its start.
pub fn fields(code: &[u8], callee: usize) -> Option<Fields> {
    let start = if matches(code, ENDBR64) {
        length(ENDBR64)
    } else {
        0
    };
    let body = code.get(start..)?;
    matches(body, START).then_some(())?;
    let distance = usize::from(*body.get(position(START, "other")?)?);
    let call = start + length(START) + distance;
    let at_call = code.get(call..)?;
    let end = call + length(CALL);
    let is_call = matches(at_call, CALL)
        && end.wrapping_add_signed(operand(at_call, CALL, "callee")?) == callee;
    let is_instruction = operand(at_call, CALL, "instruction")?;
    // The three fields follow each other in this order.
    let is_together = operand(at_call, CALL, "error")? + 4 == is_instruction
        && is_instruction + 4 == operand(at_call, CALL, "next")?;
    (is_call && is_together).then_some(Fields {
        vector: operand(body, START, "vector")?.try_into().ok()?,
        is_instruction: is_instruction.try_into().ok()?,
    })
}

/// Returns true if `code` begins with the bytes of `pattern`. A word that is no hexadecimal number
/// stands for any byte.
fn matches(code: &[u8], pattern: &str) -> bool {
    let mut bytes = code.iter();
    pattern.split_ascii_whitespace().all(|word| {
        let expected = u8::from_str_radix(word, 16).ok();
        let byte = bytes.next().copied();
        byte.is_some() && (expected.is_none() || expected == byte)
    })
}

fn length(pattern: &str) -> usize {
    pattern.split_ascii_whitespace().count()
}

fn position(pattern: &str, name: &str) -> Option<usize> {
    pattern
        .split_ascii_whitespace()
        .position(|word| word == name)
}

/// Returns the number of 32 bits that begins at the word `name`.
fn operand(code: &[u8], pattern: &str, name: &str) -> Option<isize> {
    let start = position(pattern, name)?;
    let bytes = code.get(start..start + 4)?;
    let number = i32::from_le_bytes(bytes.try_into().ok()?);
    isize::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Debian 12, QEMU 7.2.22.
    const QEMU_7_2: &str = "55 48 8d 35 81 99 44 00 48 89 fd 4c 8d 05 9e 19 44 00 53 \
        b9 21 00 00 00 48 8d 15 f1 ce 43 00 48 83 ec 08 e8 58 bf 1a 00 \
        8b b5 04 03 00 00 48 89 c3 81 fe 00 01 00 00 75 1f \
        83 b8 a0 47 00 00 ff 75 45 48 83 c4 08 48 8d b8 b0 13 00 00 5b 5d e9 6c f5 ff ff \
        0f 1f 40 00 8b 88 30 47 00 00 8b 90 34 47 00 00 45 31 c9 48 89 c7 \
        4c 8b 80 38 47 00 00 e8 8a 20 05 00 c7 83 a0 47 00 00 ff ff ff ff";

    /// Debian 13, QEMU 10.0.13.
    const QEMU_10_0: &str = "f3 0f 1e fa \
        55 48 8d 35 c7 41 36 00 48 89 fd 4c 8d 05 9a 7a 51 00 53 \
        b9 1f 00 00 00 48 8d 15 bd 29 36 00 48 83 ec 08 e8 94 3f 14 00 \
        8b b5 d0 02 00 00 48 89 c3 81 fe 00 01 00 00 75 23 \
        83 b8 10 60 00 00 ff 0f 85 bb e6 ca ff 48 83 c4 08 48 8d b8 c0 2b 00 00 5b 5d \
        e9 94 f4 ff ff 0f 1f 40 00 8b 88 a0 5f 00 00 8b 90 a4 5f 00 00 45 31 c9 48 89 c7 \
        4c 8b 80 a8 5f 00 00 e8 42 85 06 00 c7 83 10 60 00 00 ff ff ff ff";

    /// Distances from x86_cpu_do_interrupt to do_interrupt_all.
    const CALLEE_7_2: usize = 0x6a_dfb0 - 0x65_beb0;
    const CALLEE_10_0: usize = 0x86_5800 - 0x7f_d240;

    fn bytes(text: &str) -> Vec<u8> {
        let words = text.split_ascii_whitespace();
        words
            .map(|word| u8::from_str_radix(word, 16).unwrap())
            .collect()
    }

    #[test]
    fn offsets_are_those_of_the_code() {
        let old = Fields {
            vector: 0x304,
            is_instruction: 0x4734,
        };
        let new = Fields {
            vector: 0x2d0,
            is_instruction: 0x5fa4,
        };
        assert_eq!(fields(&bytes(QEMU_7_2), CALLEE_7_2), Some(old));
        assert_eq!(fields(&bytes(QEMU_10_0), CALLEE_10_0), Some(new));
    }

    #[test]
    fn another_callee_is_rejected() {
        assert_eq!(fields(&bytes(QEMU_7_2), CALLEE_7_2 + 1), None);
    }

    #[test]
    fn cut_code_is_rejected() {
        let code = bytes(QEMU_7_2);
        let last = code.len() - length("c7 83 a0 47 00 00 ff ff ff ff");
        for end in 0..last {
            assert_eq!(fields(&code[..end], CALLEE_7_2), None, "{end} bytes");
        }
        assert!(fields(&code[..last], CALLEE_7_2).is_some());
    }

    #[test]
    fn each_byte_of_an_instruction_is_compared() {
        let code = bytes(QEMU_7_2);
        for (index, word) in START.split_ascii_whitespace().enumerate() {
            let mut other = code.clone();
            other[index] ^= 0x10;
            let is_any = u8::from_str_radix(word, 16).is_err() && word != "other";
            assert_eq!(fields(&other, CALLEE_7_2).is_some(), is_any, "byte {index}");
        }
    }
}
