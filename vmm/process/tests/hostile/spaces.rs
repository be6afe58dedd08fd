//! Attacks on several address spaces: a forged table, a switch to processes that do not exist, forged stack pointers.

use crate::attack::{
    attack_with, registers, Attack, CODE, MEMORY, OTHER_MEMORY, STACK, SWITCHER, SYSCALL, TOP,
    UNDEFINED,
};
use std::time::Duration;
use trapline_abi::platform::SPACES;
use trapline_abi::spaces::{DISCARD, ENTRY, FLUSH, LOAD, OPEN, SHARED_END};
use trapline_interface::{Entry, Exit, Gpa, Vcpu, Vm, PAGE};
use trapline_process::{Config, Crossing, Switch};

/// Fields of the table in the control page.
const CONTROL: u64 = SWITCHER + 0x4000;
const CURRENT: u64 = CONTROL + 8;
const COUNT: u64 = CONTROL + 16;
const STACK_POINTER: u64 = CONTROL + 24;
const ENTRIES: u64 = CONTROL + 64;
/// Entry 1: its table, and the word at which its process waits.
const ROOT: u64 = ENTRIES + 32;
const TURN: u64 = ROOT + 8;

/// A request at the guest-physical address of the stack.
const REQUEST: u64 = STACK + 0x1000;
/// A second top-level table.
const OTHER: u64 = 0x10_8000;

const SWITCHES: [Switch; 2] = [Switch::Guest, Switch::Vmm];

fn attack(switch: Switch, code: &[u8]) -> Attack {
    let attack = attack_with(
        Config {
            spaces: 4,
            switch,
            ..Crossing::Auto.into()
        },
        code,
    );
    // The other table is a copy of the first.
    let mut table = [0; 4096];
    attack.memory.read(TOP, &mut table).unwrap();
    attack.memory.write(OTHER, &table).unwrap();
    attack
}

/// call rax; ud2
const CALL: [u8; 4] = [0xff, 0xd0, 0x0f, 0x0b];
/// out dx, eax; ud2
const OUT: [u8; 3] = [0xef, 0x0f, 0x0b];
/// mov [rbx], rcx; call rax; ud2
const STORE_AND_CALL: [u8; 7] = [0x48, 0x89, 0x0b, 0xff, 0xd0, 0x0f, 0x0b];

fn request(attack: &mut Attack, operation: u64, first: u64, second: u64) {
    attack.set(|general| {
        general.rax = ENTRY;
        (general.rdi, general.rsi, general.rdx) = (operation, first, second);
    });
}

/// Runs the guest, which may wait for itself for ever, until it stops or is kicked. Checks all of its processes.
fn expect_contained(attack: &mut Attack, what: &str) {
    let kicker = attack.vcpu.kicker();
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let _ended = receiver.recv_timeout(Duration::from_millis(300));
        kicker.kick();
    });
    let exit = attack.vcpu.run(Entry::Resume);
    drop(sender);
    watchdog.join().unwrap();
    // Any exit or error is one of the guest.
    let is_expected = !matches!(&exit, Ok(Exit::Started | Exit::Halted));
    assert!(is_expected, "{what}: {exit:?}");
    attack.expect_sandbox();
}

#[test]
fn every_process_is_confined() {
    for switch in SWITCHES {
        let mut attack = attack(switch, &CALL);
        assert_eq!(attack.vcpu.processes().len(), 4);
        attack.expect_sandbox();
        if switch == Switch::Guest {
            let first = attack.vcpu.process();
            request(&mut attack, LOAD, OTHER, 0);
            attack.expect_triple_fault("the instruction behind a load");
            assert_ne!(attack.vcpu.process(), first, "another process runs");
            assert_eq!(registers(&mut attack).rip, CODE + 2);
            attack.expect_sandbox();
        }
    }
}

#[test]
fn load_by_the_port_continues_in_another_process() {
    let mut attack = attack(Switch::Vmm, &OUT);
    let request = [LOAD, OTHER, 0].map(u64::to_le_bytes).concat();
    attack.memory.write(REQUEST, &request).unwrap();
    let first = attack.vcpu.process();
    attack.set(|general| {
        (general.rax, general.rdx) = (REQUEST, SPACES.into());
        general.rbx = 77;
    });
    attack.expect_triple_fault("the instruction behind a load");
    assert_ne!(attack.vcpu.process(), first);
    let general = registers(&mut attack);
    assert_eq!((general.rbx, general.rip), (77, CODE + 1));
    attack.expect_sandbox();
}

#[test]
fn forged_table_stops_or_continues_the_guest() {
    let values = [
        0,
        1,
        3,
        4,
        31,
        32,
        1 << 31,
        u64::MAX,
        CODE,
        SWITCHER,
        OTHER | 1,
    ];
    for switch in SWITCHES {
        for field in [
            CONTROL,
            CURRENT,
            COUNT,
            STACK_POINTER,
            ENTRIES,
            ROOT,
            TURN,
            TURN + 8,
        ] {
            for value in values {
                let mut attack = attack(switch, &STORE_AND_CALL);
                request(&mut attack, LOAD, OTHER, 0);
                attack.set(|general| (general.rbx, general.rcx) = (field, value));
                expect_contained(&mut attack, &format!("{field:#x} {value:#x}"));
            }
        }
    }
}

#[test]
fn requests_with_any_arguments_are_harmless() {
    let values = [
        0,
        1,
        4096,
        OTHER,
        SHARED_END,
        SWITCHER,
        SWITCHER - 4096,
        MEMORY as u64,
        1 << 47,
        !0xfff,
    ];
    for operation in [OPEN, LOAD, FLUSH, DISCARD, 4, u64::MAX] {
        for first in values {
            for second in [0, 4096, 1 << 47, !0xfff] {
                let mut attack = attack(Switch::Guest, &CALL);
                request(&mut attack, operation, first, second);
                expect_contained(&mut attack, &format!("{operation} {first:#x} {second:#x}"));
            }
            let mut attack = attack(Switch::Vmm, &OUT);
            let request = [operation, first, 4096].map(u64::to_le_bytes).concat();
            attack.memory.write(REQUEST, &request).unwrap();
            attack.set(|general| (general.rax, general.rdx) = (REQUEST, SPACES.into()));
            expect_contained(&mut attack, &format!("port {operation} {first:#x}"));
        }
    }
}

#[test]
fn request_outside_of_memory_is_ignored() {
    for address in [MEMORY as u64, MEMORY as u64 - 8, 0xffff_fff0, STACK + 4088] {
        let mut attack = attack(Switch::Vmm, &OUT);
        attack.set(|general| (general.rax, general.rdx) = (address, SPACES.into()));
        attack.expect_triple_fault("the instruction behind a request");
        assert_eq!(registers(&mut attack).rip, CODE + 1, "{address:#x}");
    }
}

#[test]
fn corrupted_stack_pointer_harms_the_guest_only() {
    for pointer in [0, 8, CODE, SWITCHER, CONTROL, 1 << 47, u64::MAX - 7] {
        // mov [rbx], rcx; jmp rax, into the wait for a turn that is already there.
        let code = [&STORE_AND_CALL[..3], &[0xff, 0xe0], &UNDEFINED].concat();
        for offset in 0..0x180 {
            let mut attack = attack(Switch::Guest, &code);
            attack.set(|general| {
                general.rax = ENTRY + offset;
                (general.rbx, general.rcx) = (STACK_POINTER, pointer);
                (general.r8, general.r12) = (CONTROL, ENTRIES);
                (general.rdi, general.rsi) = (TURN, OTHER);
            });
            expect_contained(&mut attack, &format!("{pointer:#x} at {offset:#x}"));
            if pointer != CODE {
                break;
            }
        }
    }
}

/// A kick reaches the guest while its processes hand over to each other without a pause.
#[test]
fn guest_that_switches_without_end_can_be_kicked() {
    // mov rsi, r14; mov edi, 1; call r13; xchg r14, r15; jmp back
    let code = [
        &[0x4c, 0x89, 0xf6][..],
        &[0xbf, 1, 0, 0, 0],
        &[0x41, 0xff, 0xd5],
        &[0x4d, 0x87, 0xf7],
        &[0xeb, 0xf0],
    ];
    let mut attack = attack(Switch::Guest, &code.concat());
    attack.set(|general| {
        general.r13 = ENTRY;
        (general.r14, general.r15) = (OTHER, TOP);
    });
    for _ in 0..300 {
        let kicker = attack.vcpu.kicker();
        let watchdog = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(700));
            kicker.kick();
        });
        assert_eq!(attack.vcpu.run(Entry::Resume).unwrap(), Exit::Kicked);
        watchdog.join().unwrap();
    }
    attack.expect_sandbox();
}

/// Memory that is tracked is not writable any more in the processes that do not run.
#[test]
fn writes_of_every_process_are_tracked() {
    // mov rsi, r14; mov edi, 1; call r13; xchg r14, r15; mov [rbx], eax; syscall; jmp back
    let code = [
        &[0x4c, 0x89, 0xf6][..],
        &[0xbf, 1, 0, 0, 0],
        &[0x41, 0xff, 0xd5],
        &[0x4d, 0x87, 0xf7],
        &[0x89, 0x03],
        &SYSCALL,
        &[0xeb, 0xec],
    ];
    let mut attack = attack(Switch::Guest, &code.concat());
    let page = 0x28_0000;
    attack.set(|general| {
        (general.r13, general.rbx) = (ENTRY, page);
        (general.r14, general.r15) = (OTHER, TOP);
        // A push to tracked memory is not emulated.
        general.rsp = OTHER_MEMORY + 0x800;
    });
    for _ in 0..2 {
        assert!(matches!(attack.run_with(0), Exit::Hypercall { .. }));
    }
    attack.vm.track_dirty(Gpa(0), true).unwrap();
    for _ in 0..2 {
        let exit = attack.run_with(0);
        assert!(matches!(exit, Exit::Hypercall { .. }), "{exit}");
        let log = attack.vm.dirty_log(Gpa(0)).unwrap();
        let number = page as usize / PAGE;
        assert_ne!(log[number / 64] & 1 << (number % 64), 0, "{log:x?}");
    }
    attack.expect_sandbox();
}
