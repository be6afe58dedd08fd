//! Random instructions: the decoder agrees with a second one, and the executor leaves the registers and the memory that the
//! CPU leaves when it executes the instruction itself. The sequence of instructions is the same in each run.

mod guest;
mod native;

use guest::{Guest, Memory};
use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfo, InstructionInfoFactory, Register,
};
use native::Native;
use trapline_emulation::compute::{Computation, Target};
use trapline_emulation::decode::{operand, privileged, Form, Operand, LONGEST};
use trapline_emulation::execute::Execution;

/// A generator of reproducible numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn one_in(&mut self, count: u64) -> bool {
        (self.next() >> 32).is_multiple_of(count)
    }
}

/// Returns bytes of which most begin with an instruction that has a memory operand.
fn code(random: &mut Random) -> [u8; LONGEST] {
    const PREFIXES: [u8; 10] = [0x66, 0xf2, 0xf3, 0xf0, 0x2e, 0x3e, 0x26, 0x36, 0x64, 0x65];
    let mut code = [0; LONGEST];
    for bytes in code.chunks_mut(8) {
        bytes.copy_from_slice(&random.next().to_le_bytes()[..bytes.len()]);
    }
    let mut at = 0;
    while random.one_in(4) && at < 8 {
        code[at] = PREFIXES[(random.next() >> 33) as usize % PREFIXES.len()];
        at += 1;
    }
    if random.one_in(2) {
        code[at] = 0x40 | code[at] & 15;
        at += 1;
    }
    if random.one_in(3) {
        code[at] = 0x0f;
        at += 1;
    }
    // Registers of the guest are addresses: displacements are short.
    let mod_rm = &mut code[at + 1];
    match random.next() >> 62 {
        0 => {}
        1 => *mod_rm &= 0x3f,
        _ => *mod_rm = *mod_rm & 0x3f | 0x40,
    }
    code
}

/// Checks one input. Returns whether the executor and the CPU were compared.
fn check(code: &[u8; LONGEST], random: &mut Random, native: &mut Native) -> bool {
    let start = native.code_address();
    let guest = Guest::new(random, native.memory_address(), start);
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let instruction = decoder.decode();
    if let Some((_, length)) = privileged(code, &guest) {
        check_length(code, length, &instruction, |code| {
            privileged(code, &guest).is_some()
        });
    }
    let Some((operand, length)) = operand(code, &guest, |_| true) else {
        return false;
    };
    check_length(code, length, &instruction, |code| {
        trapline_emulation::decode::operand(code, &guest, |_| true).is_some()
    });
    let Some(mut execution) = Execution::new(&operand, length, &guest) else {
        return false;
    };
    let mut after = guest.clone();
    let mut memory = Memory::new(random, native.memory_address());
    let before = memory.clone();
    let is_finished = memory.run(&mut execution, &mut after);
    if instruction.is_invalid() || !may_execute(&instruction, &operand, &guest, &memory) {
        return false;
    }
    let context = || {
        format!(
            "{instruction:?} {:02x?} {guest:x?}",
            &code[..length as usize]
        )
    };
    assert!(is_finished, "{}", context());
    // The CPU executes all elements of a string.
    while after.rip == start {
        let (operand, _) = trapline_emulation::decode::operand(code, &after, |_| true).unwrap();
        let mut next = Execution::new(&operand, length, &after).unwrap();
        assert!(memory.run(&mut next, &mut after), "{}", context());
    }
    let (registers, bytes) = native.execute(&code[..length as usize], &guest, before.bytes());
    assert_eq!(after.rip, start + length, "{}", context());
    assert_eq!(after.general(), registers, "{}", context());
    assert_eq!(memory.bytes(), bytes, "{}", context());
    true
}

/// Checks the length against the other decoder, and that all of the instruction is needed.
fn check_length(
    code: &[u8],
    length: u64,
    instruction: &Instruction,
    decodes: impl Fn(&[u8]) -> bool,
) {
    let length = length as usize;
    if !instruction.is_invalid() {
        assert_eq!(length, instruction.len(), "{instruction:?} {code:02x?}");
    }
    assert!(decodes(&code[..length]), "{instruction:?} {code:02x?}");
    assert!(!decodes(&code[..length - 1]), "{instruction:?} {code:02x?}");
}

/// Returns whether the CPU can execute the instruction on the guest's memory.
fn may_execute(
    instruction: &Instruction,
    operand: &Operand,
    guest: &Guest,
    memory: &Memory,
) -> bool {
    let locks = instruction.has_lock_prefix()
        || matches!(
            operand.form,
            Form::Compute(Computation {
                target: Target::Exchange(_),
                ..
            })
        );
    // A locked access to two cache lines is an error on some hosts.
    let is_split = operand.address % 64 + u64::from(operand.size) > 64;
    let is_local = !matches!(instruction.segment_prefix(), Register::FS | Register::GS);
    let fits = match operand.form {
        Form::Jump | Form::Call => false,
        Form::Push => memory.contains(guest.stack().wrapping_sub(8), 8),
        Form::String(string) => {
            let elements = if string.is_repeated { guest.count() } else { 1 };
            let near =
                |at: Option<u64>| at.is_none_or(|at| memory.contains(at.wrapping_sub(32), 64));
            elements < 4 && near(string.source) && near(string.target)
        }
        _ => true,
    };
    fits && is_local && !(locks && is_split) && memory.contains(operand.address, operand.size)
}

/// Checks `inputs` inputs. Returns the number of instructions that were executed.
fn run(inputs: u64, seed: u64) -> u64 {
    let (mut random, mut native) = (Random(seed), Native::new());
    let mut executed = 0;
    for _ in 0..inputs {
        let code = code(&mut random);
        executed += u64::from(check(&code, &mut random, &mut native));
    }
    executed
}

#[test]
fn random_instructions_have_the_effects_of_the_cpu() {
    let executed = run(300_000, 1);
    assert!(executed > 30_000, "{executed}");
}

#[test]
#[ignore = "long: make fuzz"]
fn a_hundred_million_random_instructions() {
    let executed = run(100_000_000, 2);
    println!("{executed} of 100,000,000 inputs were executed");
    assert!(executed > 10_000_000, "{executed}");
}

/// Every memory operand that the other decoder finds is found, if the instruction is decoded.
#[test]
fn addresses_equal_those_of_another_decoder() {
    let (mut random, native) = (Random(3), Native::new());
    let mut factory = InstructionInfoFactory::new();
    let mut found = 0;
    for _ in 0..200_000 {
        let code = code(&mut random);
        let guest = Guest::new(&mut random, native.memory_address(), native.code_address());
        let Some((operand, _)) = operand(&code, &guest, |_| true) else {
            continue;
        };
        let mut decoder = Decoder::with_ip(64, &code, guest.rip, DecoderOptions::NONE);
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            continue;
        }
        let addresses = addresses(factory.info(&instruction), &guest);
        // Bit tests with a register address beyond their operand.
        assert!(
            addresses.contains(&operand.address) || addresses.is_empty(),
            "{instruction:?} {code:02x?}: {operand:x?} {addresses:x?} {guest:x?}"
        );
        found += usize::from(!addresses.is_empty());
    }
    assert!(found > 20_000, "{found}");
}

fn addresses(info: &InstructionInfo, guest: &Guest) -> Vec<u64> {
    let memories = info.used_memory().iter();
    let address = |memory: &iced_x86::UsedMemory| {
        memory.virtual_address(0, |register, _, _| guest.register(register))
    };
    memories.filter_map(address).collect()
}
