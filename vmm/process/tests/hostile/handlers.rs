//! Attacks on the handlers of hypercalls in the guest's process, and on rewritten system calls.

use crate::attack::{attack_by, registers, Attack, CODE, STACK, SWITCHER, SYSCALL, UNDEFINED};
use trapline_abi::platform::{HYPERCALL_ENTRY, HYPERCALL_PADDING, HYPERCALL_REFUSED};
use trapline_interface::Exit;
use trapline_process::Crossing;

/// Length of a marked system call.
const MARKED: u64 = 20;

fn marked() -> Vec<u8> {
    [&SYSCALL[..], &HYPERCALL_PADDING].concat()
}

/// Returns the bytes that the guest's memory has at `CODE`.
fn code(attack: &Attack) -> Vec<u8> {
    let mut bytes = vec![0; MARKED as usize];
    attack.memory.read(CODE, &mut bytes).unwrap();
    bytes
}

#[test]
fn marked_call_is_answered_without_an_exit() {
    // Twice: rewritten by the VMM, then by its handler. `ud2` ends the guest.
    let twice = [&marked()[..], &[0xff, 0xcb, 0x75, 0xe8], &UNDEFINED].concat(); // dec ebx; jnz CODE
    let mut attack = attack_by(Crossing::Rewrite, &twice);
    attack.set(|general| (general.rax, general.rbx) = (7, 2));
    attack.expect_triple_fault("the end");
    let general = registers(&mut attack);
    assert_eq!(general.rax, HYPERCALL_REFUSED);
    assert_eq!(
        (general.rcx, general.rsp, general.rip),
        (CODE + MARKED, STACK, CODE + MARKED + 4)
    );
    assert_ne!(code(&attack), marked());
    attack.expect_sandbox();
}

#[test]
fn other_calls_are_not_rewritten() {
    let mut nearly = marked();
    nearly[19] ^= 1;
    let mut attack = attack_by(Crossing::Rewrite, &nearly);
    assert!(matches!(attack.run(), Exit::Hypercall { .. }));
    assert_eq!(code(&attack), nearly);
    // Neither are they without the mechanism, or across the end of a page.
    let mut attack = attack_by(Crossing::Ptrace, &marked());
    assert!(matches!(attack.run(), Exit::Hypercall { .. }));
    assert_eq!(code(&attack), marked());
    let mut attack = attack_by(Crossing::Rewrite, &[]);
    let start = CODE + 0x1000 - 4;
    attack.memory.write(start, &marked()).unwrap();
    attack.set(|general| general.rip = start);
    assert!(matches!(attack.run(), Exit::Hypercall { .. }));
}

/// A guest that jumps behind the first byte executes other instructions, as with any code of its own.
#[test]
fn middle_of_a_rewritten_call_is_code_of_the_guest() {
    for offset in 1..MARKED {
        let mut attack = attack_by(Crossing::Rewrite, &[&marked()[..], &UNDEFINED].concat());
        attack.expect_triple_fault("the end");
        attack.set(|general| {
            general.rip = CODE + offset;
            (general.r11, general.rcx) = (SWITCHER, CODE + MARKED);
            general.rax = libc::SYS_munmap as u64;
        });
        let exit = attack.run();
        // Bytes of the padding are a port access.
        assert!(!matches!(exit, Exit::Kicked), "{offset}: {exit}");
        attack.expect_sandbox();
    }
}

/// The handlers have no data, and use no address but the return address.
#[test]
fn every_byte_around_the_handlers_is_harmless() {
    for crossing in [Crossing::Rewrite, Crossing::Direct] {
        for offset in 0..0x60 {
            let mut attack = attack_by(crossing, &UNDEFINED);
            attack.set(|general| {
                general.rip = HYPERCALL_ENTRY - 16 + offset;
                general.rcx = CODE;
                general.rsp = STACK;
                general.rax = libc::SYS_mprotect as u64;
            });
            attack.memory.write(STACK, &CODE.to_le_bytes()).unwrap();
            attack.expect_triple_fault(&format!("offset {offset}"));
            attack.expect_sandbox();
        }
    }
}

#[test]
fn handler_that_is_called_returns_the_refusal() {
    // call rbx; ud2
    let mut attack = attack_by(Crossing::Direct, &[&[0xff, 0xd3][..], &UNDEFINED].concat());
    attack.set(|general| general.rbx = HYPERCALL_ENTRY);
    attack.expect_triple_fault("the end");
    let general = registers(&mut attack);
    assert_eq!(
        (general.rax, general.rsp, general.rip),
        (HYPERCALL_REFUSED, STACK, CODE + 2)
    );
}
