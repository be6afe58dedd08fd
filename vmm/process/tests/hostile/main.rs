//! Hostile guests: each attempt ends in a hypercall that the VMM refuses, or in an error of the guest.

mod handlers;
#[path = "../../../../tests/src/skip.rs"]
mod skip;

use skip::skip;
use std::fs;
use std::sync::Arc;
use std::time::Duration;
use trapline_interface::{
    Access, BootState, Controllers, Entry, Exit, General, Gpa, Hypervisor, RegSet, Region, Segment,
    Stop, System, Vcpu, VcpuId, Vm, VmSpec,
};
use trapline_process::{Crossing, Process, ProcessVcpu, ProcessVm};

const MEMORY: usize = 4 << 20;
/// Page tables: identity map of the first GiB.
const TOP: u64 = 0x10_0000;
const MIDDLE: u64 = 0x10_1000;
const LOWEST: u64 = 0x10_2000;
const CODE: u64 = 0x20_0000;
const STACK: u64 = 0x30_0000;
/// Addresses of the backend's own pages in the process.
const SWITCHER: u64 = 0x6fff_0000_0000;
const ALIAS: u64 = 0x7000_0000_0000;

const SYSCALL: [u8; 2] = [0x0f, 0x05];
const INT_80: [u8; 2] = [0xcd, 0x80];
const SYSENTER: [u8; 2] = [0x0f, 0x34];
const UNDEFINED: [u8; 2] = [0x0f, 0x0b];

struct Attack {
    _vm: ProcessVm,
    vcpu: ProcessVcpu,
    memory: Arc<Region>,
}

fn segment(attributes: u16) -> Segment {
    Segment {
        attributes,
        limit: u32::MAX,
        ..Segment::default()
    }
}

/// Starts `code` at ring 3, without an interrupt table: every exception ends the guest.
fn attack(code: &[u8]) -> Attack {
    attack_by(Crossing::Ptrace, code)
}

/// Starts `code` with this mechanism for hypercalls.
fn attack_by(crossing: Crossing, code: &[u8]) -> Attack {
    const TABLE: u64 = 0x27;
    const LARGE: u64 = 0xe7;
    let memory = Arc::new(Region::new(MEMORY).unwrap());
    let put = |at: u64, value: u64| memory.write(at, &value.to_le_bytes()).unwrap();
    put(TOP, MIDDLE | TABLE);
    put(MIDDLE, LOWEST | TABLE);
    (0..512).for_each(|index| put(LOWEST + index * 8, index << 21 | LARGE));
    memory.write(CODE, code).unwrap();
    let backend = Process::with(crossing);
    let vm = backend
        .create_vm(&VmSpec::with(Controllers::Local))
        .unwrap();
    vm.attach(Gpa(0), Arc::clone(&memory), Access::ReadWrite)
        .unwrap();
    let boot = BootState {
        general: General {
            rip: CODE,
            rsp: STACK,
            rflags: 0x202,
            ..General::default()
        },
        system: System {
            cs: segment(0xafb),
            cr0: 0x8000_0033,
            cr3: TOP,
            ..System::default()
        },
    };
    let mut vcpu = vm.create_vcpu(VcpuId(0), Some(&boot)).unwrap();
    assert_eq!(vcpu.run(Entry::Resume).unwrap(), Exit::Started);
    Attack {
        _vm: vm,
        vcpu,
        memory,
    }
}

impl Attack {
    fn run(&mut self) -> Exit {
        self.run_with(u64::MAX)
    }

    fn run_with(&mut self, answer: u64) -> Exit {
        self.vcpu.run(Entry::Answer(answer)).unwrap()
    }

    fn set(&mut self, change: impl FnOnce(&mut General)) {
        let state = self.vcpu.state(RegSet::GENERAL).unwrap();
        let mut general = state.general.unwrap();
        change(&mut general);
        self.vcpu.set_state(&general.into()).unwrap();
    }

    fn expect_triple_fault(&mut self, what: &str) {
        assert_eq!(self.run(), Exit::Stopped(Stop::TripleFault), "{what}");
    }

    /// Checks that the process has guest memory, the switcher, and nothing else.
    fn expect_sandbox(&self) {
        let folder = format!("/proc/{}", self.vcpu.process());
        let Ok(maps) = fs::read_to_string(format!("{folder}/maps")) else {
            return skip(
                "mappings of a sandboxed process",
                "they can be read by root only",
            );
        };
        for line in maps.lines() {
            let is_own = line.contains("guest-memory") || line.contains("[vsyscall]");
            assert!(is_own, "{line}");
        }
        assert_eq!(fs::read_dir(format!("{folder}/fd")).unwrap().count(), 0);
        let status = fs::read_to_string(format!("{folder}/status")).unwrap();
        for (name, value) in [("NoNewPrivs", "1"), ("Seccomp", "2"), ("Threads", "1")] {
            assert!(status.contains(&format!("{name}:\t{value}")), "{status}");
        }
    }
}

/// Instructions that make a system call, repeated by a jump back.
fn repeat(call: &[u8]) -> Vec<u8> {
    let back = (call.len() as u8 + 2).wrapping_neg();
    [call, &[0xeb, back]].concat()
}

#[test]
fn every_system_call_is_a_hypercall() {
    let mut attack = attack(&repeat(&SYSCALL));
    let odd = [1 << 30, (1 << 30) + 59, u64::MAX, 1 << 32, (1 << 32) + 59];
    let wide = [0, 1, u64::MAX, CODE, SWITCHER, ALIAS];
    attack.run_with(0);
    for number in (0..1024).chain(odd) {
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
    // mov [rbx], eax
    for page in [SWITCHER, SWITCHER + 0x1000] {
        let mut attack = attack(&[0x89, 0x03]);
        attack.set(|general| general.rbx = page);
        attack.expect_triple_fault("a store to the switcher");
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
        let mut attack = attack(&[0x8b, 0x03]);
        attack.set(|general| general.rbx = address);
        attack.expect_triple_fault(&format!("a load from {address:#x}"));
    }
}

#[test]
fn page_tables_reach_guest_memory_only() {
    // mov eax, [rbx]
    let mut attack = attack(&[0x8b, 0x03, 0xeb, 0xfc]);
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
        let mut attack = attack(instruction);
        attack.set(|general| general.rbx = CODE);
        attack.expect_triple_fault(&format!("{instruction:02x?}"));
    }
}

#[test]
fn guest_outside_64_bit_mode_is_stopped() {
    // push 0x23; push CODE + 16; retfq; at 16: jmp to itself in 32-bit mode, then a fault
    let mut code = vec![0x6a, 0x23, 0x68];
    code.extend((CODE as u32 + 16).to_le_bytes());
    code.extend([0x48, 0xcb]);
    code.resize(16, 0x90);
    code.extend([0xf4]);
    let mut attack = attack(&code);
    assert!(matches!(attack.run(), Exit::Stopped(_)));
    attack.expect_sandbox();
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
    for _ in 0..GUESTS {
        let mut code = Vec::new();
        while code.len() < 4000 {
            match random() % 3 {
                0 => code.extend(&random().to_le_bytes()[..1 + random() as usize % 4]),
                _ => code.extend(pieces[random() as usize % pieces.len()]),
            }
        }
        let mut attack = attack(&code);
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
        attack.expect_sandbox();
        drop(sender);
        watchdog.join().unwrap();
    }
    assert!(crossings > GUESTS * 2, "{crossings}");
}
