//! Hostile guests: each attempt ends in a hypercall that the VMM refuses, or in an error of the guest.

mod attack;
mod fuzz;
mod handlers;
mod signals;
mod spaces;
mod tables;

use attack::*;
use std::time::Duration;
use trapline_interface::{Exit, RegSet, Stop, Vcpu};
use trapline_process::Crossing;

/// Instructions that make a system call, repeated by a jump back.
fn repeat(call: &[u8]) -> Vec<u8> {
    let back = (call.len() as u8 + 2).wrapping_neg();
    [call, &[0xeb, back]].concat()
}

#[test]
fn every_system_call_is_a_hypercall() {
    for crossing in CONTROLS {
        let mut attack = attack_by(crossing, &repeat(&SYSCALL));
        let odd = [1 << 30, (1 << 30) + 59, u64::MAX, 1 << 32, (1 << 32) + 59];
        let wide = [0, 1, u64::MAX, CODE, SWITCHER, ALIAS];
        attack.run_with(0);
        // `uretprobe` and `uprobe` raise SIGILL if they are executed, which only the tracer prevents.
        let is_executed = |number| crossing != Crossing::Ptrace && [335, 336].contains(&number);
        for number in (0..1024).chain(odd).filter(|number| !is_executed(*number)) {
            for argument in wide {
                attack.set(|general| {
                    (general.rdi, general.rsi, general.rdx) = (argument, argument, argument);
                    (general.r10, general.r8, general.r9) = (argument, 50, 0);
                });
                // The answer to the last call is the number of the next.
                match attack.run_with(number) {
                    Exit::Hypercall {
                        number: called,
                        args,
                    } => {
                        assert_eq!((called, args), (number, [argument; 4]));
                    }
                    other => panic!("{number} {argument:#x}: {other}"),
                }
            }
        }
        attack.expect_sandbox();
    }
}

#[test]
fn calls_of_32_bit_programs_have_no_effect() {
    for call in [INT_80, SYSENTER] {
        for number in 0..512 {
            let mut attack = attack(&[&call[..], &UNDEFINED].concat());
            attack.set(|general| (general.rax, general.rbx) = (number, CODE));
            let is_refused = match attack.run() {
                Exit::Hypercall { number: called, .. } => called == number,
                Exit::Stopped(stop) => {
                    // Kernels without 32-bit programs, and `sysenter` on AMD.
                    assert_eq!(stop, Stop::TripleFault);
                    break;
                }
                other => panic!("{other}"),
            };
            assert!(is_refused);
            attack.expect_sandbox();
        }
    }
}

#[test]
fn code_of_the_switcher_gives_no_calls() {
    // mov rbx, address; jmp rbx
    let jump = |to: u64| [&[0x48, 0xbb][..], &to.to_le_bytes(), &[0xff, 0xe3]].concat();
    for number in [
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_mprotect,
        libc::SYS_execve,
    ] {
        let mut attack = attack(&jump(SWITCHER));
        attack.set(|general| {
            general.rax = number as u64;
            (general.rdi, general.rsi, general.rdx) = (SWITCHER, 4096, 7);
        });
        assert!(matches!(attack.run(), Exit::Hypercall { .. }), "{number}");
        attack.expect_sandbox();
        attack.expect_triple_fault("the instruction behind the call");
    }
    for offset in 1..64 {
        let mut attack = attack(&jump(SWITCHER + offset));
        let exit = attack.run();
        let is_harmless = matches!(exit, Exit::Stopped(_) | Exit::Hypercall { .. });
        assert!(is_harmless, "{offset}: {exit}");
        attack.expect_sandbox();
    }
}

#[test]
fn switcher_cannot_be_written() {
    for crossing in CONTROLS {
        // mov [rbx], eax
        for page in [SWITCHER, SWITCHER + 0x1000] {
            let mut attack = attack_by(crossing, &[0x89, 0x03]);
            attack.set(|general| general.rbx = page);
            attack.expect_triple_fault("a store to the switcher");
        }
    }
}

#[test]
fn forged_signal_frame_has_no_effect() {
    let mut attack = attack(&[&SYSCALL[..], &UNDEFINED].concat());
    // A frame of zeros with other selectors and an instruction pointer in the switcher.
    attack
        .memory
        .write(STACK + 168, &SWITCHER.to_le_bytes())
        .unwrap();
    attack
        .memory
        .write(STACK + 184, &0x23_u64.to_le_bytes())
        .unwrap();
    attack.set(|general| general.rax = libc::SYS_rt_sigreturn as u64);
    assert!(matches!(attack.run(), Exit::Hypercall { number: 15, .. }));
    let general = attack.vcpu.state(RegSet::GENERAL).unwrap().general.unwrap();
    assert_eq!((general.rip, general.rsp), (CODE + 2, STACK));
    attack.expect_triple_fault("the next instruction");
}

#[test]
fn memory_of_the_vmm_does_not_exist() {
    for crossing in CONTROLS {
        let secret = Box::new(0x5ec2e7_u64);
        let on_heap = &raw const *secret as u64;
        let on_stack = &raw const secret as u64;
        let code = every_system_call_is_a_hypercall as *const () as u64;
        for address in [
            on_heap,
            on_stack,
            code,
            0x40_0000 << 20,
            !0xfff,
            1 << 47,
            0xffff_ffff_8100_0000,
        ] {
            // mov eax, [rbx]
            let mut attack = attack_by(crossing, &[0x8b, 0x03]);
            attack.set(|general| general.rbx = address);
            attack.expect_triple_fault(&format!("a load from {address:#x}"));
        }
    }
}

#[test]
fn page_tables_reach_guest_memory_only() {
    for crossing in CONTROLS {
        // mov eax, [rbx]
        let mut attack = attack_by(crossing, &[0x8b, 0x03, 0xeb, 0xfc]);
        for physical in [
            MEMORY as u64,
            1 << 32,
            (1 << 40) - 4096,
            SWITCHER & 0xf_ffff_f000,
        ] {
            attack
                .memory
                .write(
                    LOWEST + 8 * 500,
                    &(physical & !0x1f_ffff | 0xe7).to_le_bytes(),
                )
                .unwrap();
            attack.set(|general| (general.rip, general.rbx) = (CODE, 500 << 21));
            let exit = attack.run();
            assert!(matches!(exit, Exit::Read { .. }), "{physical:#x}: {exit}");
            attack.run_and_check_answer();
        }
        attack.expect_sandbox();
    }
}

impl Attack {
    /// Answers the read; the next one is an exit, too.
    fn run_and_check_answer(&mut self) {
        assert!(matches!(self.run(), Exit::Read { .. }));
        let general = self.vcpu.state(RegSet::GENERAL).unwrap().general.unwrap();
        assert_eq!(general.rax, u32::MAX.into());
        self.run();
    }
}

#[test]
fn privileged_instructions_at_ring_3_are_exceptions() {
    for crossing in CONTROLS {
        let instructions: [&[u8]; 8] = [
            &[0xf4],             // hlt
            &[0xfa],             // cli
            &[0x0f, 0x30],       // wrmsr
            &[0x0f, 0x32],       // rdmsr
            &[0x0f, 0x22, 0xd8], // mov cr3, rax
            &[0x0f, 0x01, 0x13], // lgdt [rbx]
            &[0x0f, 0x01, 0x1b], // lidt [rbx]
            &[0x0f, 0x09],       // wbinvd
        ];
        for instruction in instructions {
            let mut attack = attack_by(crossing, instruction);
            attack.set(|general| general.rbx = CODE);
            attack.expect_triple_fault(&format!("{instruction:02x?}"));
        }
    }
}

#[test]
fn guest_outside_64_bit_mode_is_stopped() {
    for crossing in CONTROLS {
        // push 0x23; push CODE + 16; retfq; at 16: jmp to itself in 32-bit mode, then a fault
        let mut code = vec![0x6a, 0x23, 0x68];
        code.extend((CODE as u32 + 16).to_le_bytes());
        code.extend([0x48, 0xcb]);
        code.resize(16, 0x90);
        code.extend([0xf4]);
        let mut attack = attack_by(crossing, &code);
        assert!(matches!(attack.run(), Exit::Stopped(_)));
        attack.expect_sandbox();
    }
}

/// Number of random guests, and exits of each at most.
const GUESTS: u64 = 400;
const EXITS: u32 = 200;

#[test]
fn random_code_stays_in_its_process() {
    let mut state = 7_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    // Calls and port accesses between random bytes, so that most guests cross often.
    let pieces: [&[u8]; 6] = [
        &SYSCALL,
        &INT_80,
        &[0xee],
        &[0xec],
        &[0x8b, 0x03],
        &[0x89, 0x03],
    ];
    let mut crossings = 0;
    for guest in 0..GUESTS {
        let crossing = CONTROLS[guest as usize % CONTROLS.len()];
        let mut code = Vec::new();
        while code.len() < 4000 {
            match random() % 3 {
                0 => code.extend(&random().to_le_bytes()[..1 + random() as usize % 4]),
                _ => code.extend(pieces[random() as usize % pieces.len()]),
            }
        }
        let mut attack = attack_by(crossing, &code);
        attack.set(|general| {
            (general.rbx, general.rdi) = (random() % (1 << 34), random());
            (general.rsi, general.rdx) = (random() % (1 << 48), random());
        });
        let kicker = attack.vcpu.kicker();
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let watchdog = std::thread::spawn(move || {
            let _ended = receiver.recv_timeout(Duration::from_millis(200));
            kicker.kick();
        });
        for _ in 0..EXITS {
            crossings += 1;
            if matches!(attack.run(), Exit::Stopped(_) | Exit::Kicked) {
                break;
            }
        }
        // The kernel kills a process for some system calls.
        if attack.is_alive() {
            attack.expect_sandbox();
        }
        drop(sender);
        watchdog.join().unwrap();
    }
    assert!(crossings > GUESTS * 2, "{crossings}");
}
