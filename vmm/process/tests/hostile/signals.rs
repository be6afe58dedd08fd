//! Attacks on the handler of signals: system calls from its page, forged frames, and forged reports.

use crate::attack::{attack_by, registers, Attack, ALIAS, CODE, SWITCHER, SYSCALL, UNDEFINED};
use std::time::{Duration, Instant};
use trapline_abi::platform::{HYPERCALL_PADDING, HYPERCALL_REFUSED, HYPERCALL_UNKNOWN};
use trapline_interface::{Entry, Exit, RegSet, Stop, Vcpu};
use trapline_process::Crossing;

const MECHANISMS: [Crossing; 3] = [Crossing::Dispatch, Crossing::Trap, Crossing::Notify];

/// Control page of the process, and the stack of its handler.
const CONTROL: u64 = SWITCHER + 0x4000;
const HANDLER_STACK: u64 = CONTROL + 0x1000;
const HANDLER: u64 = SWITCHER + 0x200;

/// jmp rbx
const JUMP: [u8; 2] = [0xff, 0xe3];

/// Exit of a process that was killed by its filter.
const KILLED: Exit = Exit::Stopped(Stop::Unknown(libc::SIGSYS as u32));

/// Makes a system call by the first instruction of the switcher, which `int3` follows.
fn call(attack: &mut Attack, number: libc::c_long, arguments: [u64; 4]) -> Exit {
    attack.set(|general| {
        general.rip = SWITCHER;
        general.rax = number as u64;
        [general.rdi, general.rsi, general.rdx, general.r10] = arguments;
    });
    attack.run()
}

#[test]
fn marked_call_is_answered_by_the_handler() {
    for crossing in [Crossing::Dispatch, Crossing::Trap] {
        let code = [&SYSCALL[..], &HYPERCALL_PADDING, &UNDEFINED].concat();
        let mut attack = attack_by(crossing, &code);
        attack.expect_triple_fault("the end");
        let general = registers(&mut attack);
        assert_eq!((general.rax, general.rip), (HYPERCALL_REFUSED, CODE + 20));
        attack.expect_sandbox();
    }
}

/// A sample: the tests of the filter try all.
#[test]
fn filter_kills_calls_from_the_switcher() {
    for crossing in MECHANISMS {
        for number in [
            libc::SYS_execve,
            libc::SYS_openat,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_mmap,
            libc::SYS_rt_sigaction,
            libc::SYS_prctl,
            libc::SYS_tgkill,
        ] {
            let mut attack = attack_by(crossing, &UNDEFINED);
            assert_eq!(
                call(&mut attack, number, [CODE, 0, 0, 0]),
                KILLED,
                "{number}"
            );
        }
        let mut attack = attack_by(crossing, &UNDEFINED);
        let requeue = [CONTROL, libc::FUTEX_REQUEUE as u64, 0, 0];
        assert_eq!(call(&mut attack, libc::SYS_futex, requeue), KILLED);
    }
}

#[test]
fn calls_of_32_bit_programs_are_hypercalls_or_killed() {
    for crossing in MECHANISMS {
        let mut attack = attack_by(crossing, &[0xcd, 0x80]);
        attack.set(|general| general.rax = 1);
        let exit = attack.run();
        let is_expected = matches!(exit, Exit::Stopped(_) | Exit::Hypercall { number: 1, .. });
        assert!(is_expected, "{exit}");
    }
}

/// The guest may change its own mappings, as it may change its own memory.
#[test]
fn process_maps_nothing_and_can_harm_only_its_own_mappings() {
    for crossing in MECHANISMS {
        let mut attack = attack_by(crossing, &UNDEFINED);
        let to: u64 = 0x5000_0000_0000;
        let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
        attack.set(|general| general.r8 = to);
        let moved = call(&mut attack, libc::SYS_mremap, [ALIAS, 0, 4096, flags]);
        assert_eq!(moved, Exit::Stopped(Stop::TripleFault));
        let refused = registers(&mut attack).rax as i64;
        assert_eq!(refused, -i64::from(libc::EPERM));
        attack.expect_sandbox();
        // The switcher, with the handler.
        let exit = call(&mut attack, libc::SYS_munmap, [SWITCHER, 0x2000, 0, 0]);
        assert_eq!(exit, Exit::Stopped(Stop::Unknown(libc::SIGSEGV as u32)));
    }
}

/// Returns a `struct ucontext` with these registers and blocked signals.
fn frame(rip: u64, selectors: u64, blocked: u64) -> Vec<u8> {
    let mut words = [0_u64; 64];
    (words[20], words[21], words[22]) = (CODE, rip, 0x202);
    (words[23], words[37]) = (selectors, blocked);
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

const USER_SELECTORS: u64 = 0x33 | 0x2b << 48;

fn attack_with_frame(crossing: Crossing, code: &[u8], frame: &[u8]) -> Attack {
    let mut attack = attack_by(crossing, code);
    attack.memory.write(CODE + 0x1000, frame).unwrap();
    attack.set(|general| {
        (general.rip, general.rsp) = (SWITCHER, CODE + 0x1000);
        general.rax = libc::SYS_rt_sigreturn as u64;
    });
    attack
}

#[test]
fn forged_frame_gives_registers_only() {
    for crossing in MECHANISMS {
        // `ud2` at the new address, in 64-bit mode and in another one.
        for selectors in [USER_SELECTORS, 0x23 | 0x2b << 48, 0x10, u64::MAX] {
            let frame = frame(CODE, selectors, 0);
            let mut attack = attack_with_frame(crossing, &UNDEFINED, &frame);
            let exit = attack.run();
            assert!(matches!(exit, Exit::Stopped(_)), "{selectors:#x}: {exit}");
        }
        let frame = frame(0xffff_8000_0000_0000, USER_SELECTORS, 0);
        let mut attack = attack_with_frame(crossing, &UNDEFINED, &frame);
        assert!(matches!(attack.run(), Exit::Stopped(_)));
    }
}

#[test]
fn guest_that_blocks_signals_is_given_up() {
    // A loop without an exit, and a fault.
    let frame = frame(CODE, USER_SELECTORS, u64::MAX);
    let mut attack = attack_with_frame(Crossing::Trap, &[0xeb, 0xfe], &frame);
    let kicker = attack.vcpu.kicker();
    let begun = Instant::now();
    let watchdog = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        kicker.kick();
    });
    let error = attack.vcpu.run(Entry::Resume).unwrap_err().to_string();
    assert!(error.contains("timed out"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(60));
    watchdog.join().unwrap();
    let mut attack = attack_with_frame(Crossing::Trap, &UNDEFINED, &frame);
    let exit = attack.run();
    assert_eq!(exit, Exit::Stopped(Stop::Unknown(libc::SIGILL as u32)));
}

/// Enters the handler with a frame at `context` and a `siginfo_t` at `info`.
fn report(crossing: Crossing, context: u64, info: u64) -> Result<Exit, String> {
    let mut attack = attack_by(crossing, &JUMP);
    attack.set(|general| {
        general.rbx = HANDLER;
        (general.rdi, general.rsi, general.rdx) = (11, info, context);
    });
    let result = attack.vcpu.run(Entry::Resume);
    result.map_err(|error| error.to_string())
}

#[test]
fn reports_outside_of_the_handlers_stack_are_rejected() {
    let inside = HANDLER_STACK + 0x100;
    let end = HANDLER_STACK + 0x4000;
    for crossing in MECHANISMS {
        for outside in [
            0,
            8,
            CONTROL,
            CODE,
            end,
            end - 8,
            inside + 1,
            u64::MAX - 7,
            ALIAS,
        ] {
            for (context, info) in [(outside, inside), (inside, outside)] {
                let error = report(crossing, context, info).unwrap_err();
                assert!(error.contains("Bad message"), "{outside:#x}: {error}");
            }
        }
        // A report from within the stack is a stop of the guest, with any registers.
        assert!(matches!(
            report(crossing, inside, inside),
            Ok(Exit::Stopped(_))
        ));
    }
}

/// The VMM is notified of the number of an image's hypercalls, and answers without knowing the registers.
#[test]
fn notified_call_is_answered_and_its_registers_follow() {
    let mut attack = attack_by(Crossing::Notify, &[&SYSCALL[..], &UNDEFINED].concat());
    attack.set(|general| {
        general.rax = HYPERCALL_UNKNOWN;
        (general.rdi, general.rbx) = (5, 6);
    });
    let Exit::Hypercall { number, args } = attack.run() else {
        panic!("no hypercall");
    };
    assert_eq!((number, args[0]), (HYPERCALL_UNKNOWN, 5));
    assert!(attack.vcpu.state(RegSet::GENERAL).is_err());
    // The kick is before the next instruction.
    attack.vcpu.kicker().kick();
    assert_eq!(attack.run_with(7), Exit::Kicked);
    let general = registers(&mut attack);
    assert_eq!((general.rax, general.rbx, general.rip), (7, 6, CODE + 2));
    attack.expect_triple_fault("the next instruction");
    attack.expect_sandbox();
}
