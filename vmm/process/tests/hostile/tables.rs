//! Attacks on the memory that the host's kernel spends for page tables of the guest's processes.

use crate::attack::{
    attack_with, registers, Attack, ALIAS, CODE, LOWEST, MEMORY, MIDDLE, STACK, SWITCHER, TOP,
    UNDEFINED,
};
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trapline_abi::platform::SPACES;
use trapline_abi::spaces::{ENTRY, LOAD};
use trapline_interface::{Entry, Exit, Stop, Vcpu, PAGE};
use trapline_process::{Config, Crossing, Switch};

/// Bytes of page tables that a guest may have.
const BOUND: u64 = MEMORY as u64 / 64 + (4 << 20);
/// Attempts that need more, if each one succeeds: tables of 4 KiB, two for each.
const ATTEMPTS: u64 = BOUND / (2 * PAGE as u64) * 2;
const GIB: u64 = 1 << 30;
/// Time in which a guest is stopped.
const LIMIT: Duration = Duration::from_secs(120);

/// Code that touches `rcx` addresses from `rbx` on, at a distance of `rdx`, at `CODE` plus this.
const TOUCH: u64 = 0x100;
/// Code that writes to a port.
const OUT: u64 = 0x180;
/// mov al, [rbx]; add rbx, rdx; dec rcx; jnz back; ud2
const TOUCHING: [u8; 12] = [
    0x8a, 0x03, 0x48, 0x01, 0xd3, 0x48, 0xff, 0xc9, 0x75, 0xf6, 0x0f, 0x0b,
];

/// Starts a guest whose page tables map every address to its memory.
fn attack(config: Config) -> Attack {
    // call rax; ud2
    let attack = attack_with(config, &[&[0xff, 0xd0][..], &UNDEFINED].concat());
    attack.memory.write(CODE + TOUCH, &TOUCHING).unwrap();
    // out dx, eax; ud2
    let out = [&[0xef][..], &UNDEFINED].concat();
    attack.memory.write(CODE + OUT, &out).unwrap();
    let put = |at: u64, value: u64| attack.memory.write(at, &value.to_le_bytes()).unwrap();
    for index in 0..512 {
        put(TOP + 8 * index, MIDDLE | 0x27);
        put(MIDDLE + 8 * index, LOWEST | 0x27);
        put(LOWEST + 8 * index, 0xe7);
    }
    // The code, and the tables.
    put(LOWEST + 8, 1 << 21 | 0xe7);
    attack
}

/// Returns the bytes of page tables of all processes of the guest.
fn tables(attack: &Attack) -> u64 {
    let of_process = |process: u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmPTE:"));
        let kib = line.unwrap().trim().trim_end_matches(" kB");
        kib.parse::<u64>().unwrap() << 10
    };
    attack.vcpu.processes().into_iter().map(of_process).sum()
}

/// Checks the bound of up to four processes, to which each further one adds a quarter.
fn expect_bounded(attack: &Attack, what: &str) {
    let processes = attack.vcpu.processes().len() as u64;
    let (tables, bound) = (tables(attack), BOUND * processes.max(4) / 4);
    assert!(tables > 0 && tables <= bound, "{what}: {tables} of {bound}");
}

/// Makes the guest touch addresses.
fn touch(attack: &mut Attack, first: u64, distance: u64, count: u64) {
    attack.set(|general| {
        (general.rip, general.rbx) = (CODE + TOUCH, first);
        (general.rdx, general.rcx) = (distance, count);
    });
    attack.expect_triple_fault("the end");
    assert_eq!(registers(attack).rcx, 0, "all are touched");
}

/// Makes the guest map `length` bytes of its memory again, at `to` or anywhere. Returns the address if it succeeds.
fn map_again(attack: &mut Attack, length: u64, to: Option<u64>) -> Option<u64> {
    let fixed = to.map_or(0, |_| libc::MREMAP_FIXED);
    attack.set(|general| {
        general.rip = SWITCHER;
        general.rax = libc::SYS_mremap as u64;
        (general.rdi, general.rsi, general.rdx) = (ALIAS, 0, length);
        general.r10 = (libc::MREMAP_MAYMOVE | fixed) as u64;
        general.r8 = to.unwrap_or(0);
    });
    // With a tracer the call is a hypercall.
    let exit = attack.run();
    let is_made = exit == Exit::Stopped(Stop::TripleFault);
    assert!(is_made || matches!(exit, Exit::Hypercall { .. }), "{exit}");
    let result = registers(attack).rax;
    (is_made && (result as i64) > 0).then_some(result)
}

/// Maps memory again and again, until three attempts in a row have failed, and touches it.
fn map_repeatedly(attack: &mut Attack, length: u64, to: impl Fn(u64) -> Option<u64>) {
    let mut failed = 0;
    for attempt in 0..ATTEMPTS {
        if failed == 3 {
            break;
        }
        match map_again(attack, length, to(attempt)) {
            Some(at) => {
                failed = 0;
                touch(attack, at, 1 << 21, length.div_ceil(1 << 21));
            }
            None => failed += 1,
        }
    }
}

#[test]
fn guest_cannot_map_all_memory_again_and_again() {
    for crossing in Crossing::ALL {
        let mut attack = attack(crossing.into());
        map_repeatedly(&mut attack, MEMORY as u64, |_| None);
        expect_bounded(&attack, crossing.name());
        attack.expect_sandbox();
    }
}

#[test]
fn guest_cannot_map_pages_far_apart() {
    for crossing in Crossing::ALL {
        let mut attack = attack(crossing.into());
        let at = |attempt| Some(0x1000_0000_0000 + attempt * GIB);
        map_repeatedly(&mut attack, PAGE as u64, at);
        expect_bounded(&attack, crossing.name());
        attack.expect_sandbox();
    }
}

/// The VMM maps pages on behalf of the guest. At the end of each round most is mapped.
#[test]
fn page_tables_that_point_everywhere_are_mapped_in_part() {
    for crossing in Crossing::ALL {
        let mut attack = attack(crossing.into());
        for distance in [GIB, 1 << 21, GIB + (1 << 21), 1 << 39] {
            for first in [GIB, 0x1000_0000_0000] {
                // Up to the switcher.
                let count = ATTEMPTS.min((SWITCHER - first) / distance - 1);
                touch(&mut attack, first, distance, count);
                expect_bounded(&attack, crossing.name());
            }
        }
        attack.expect_sandbox();
    }
}

#[test]
fn processes_of_one_guest_share_the_bound() {
    let few = [1, 2, 3, 4, 5, 16].map(|spaces| (spaces, Switch::Guest));
    for (spaces, switch) in few.into_iter().chain([(4, Switch::Vmm)]) {
        let mut attack = attack(Config {
            spaces,
            switch,
            ..Crossing::Auto.into()
        });
        let mut table = [0; PAGE];
        attack.memory.read(TOP, &mut table).unwrap();
        for root in (0..spaces as u64).map(|index| 0x10_8000 + index * PAGE as u64) {
            attack.memory.write(root, &table).unwrap();
            let request = [LOAD, root, 0].map(u64::to_le_bytes).concat();
            attack.memory.write(STACK, &request).unwrap();
            attack.set(|general| {
                (general.rdi, general.rsi) = (LOAD, root);
                general.rdx = SPACES.into();
                (general.rip, general.rax) = match switch {
                    Switch::Guest => (CODE, ENTRY),
                    Switch::Vmm => (CODE + OUT, STACK),
                };
            });
            attack.expect_triple_fault("the instruction behind a load");
            touch(&mut attack, 0x1000_0000_0000, GIB, ATTEMPTS);
            expect_bounded(&attack, &format!("{spaces} {switch:?}"));
        }
        attack.expect_sandbox();
    }
}

/// The guest forges the report of a fault, and then makes none of the calls by which the VMM has it map the page.
#[test]
fn guest_that_makes_no_requested_calls_can_be_stopped() {
    const OWN: u64 = SWITCHER + 0x8e00;
    const FRAME: u64 = SWITCHER + 0x5100;
    const REPORTS: u64 = SWITCHER + 0x4000;
    const REQUESTED: u64 = CODE + 0x800;
    let selectors = 0x33 | 0x2b << 48;
    // Address of the frame and of the information, state, instruction pointer, selectors, signal, its code and address.
    let words = [
        (OWN + 8, FRAME),
        (OWN + 16, FRAME + 0x200),
        (OWN, 1),
        (FRAME + 40 + 16 * 8, CODE),
        (FRAME + 40 + 18 * 8, selectors),
        (FRAME + 0x200, libc::SIGSEGV as u64),
        (FRAME + 0x208, 1),
        (FRAME + 0x210, 0x1000_0000_0000),
        (REPORTS, 1),
    ];
    // mov rbx, address; mov rcx, value; mov [rbx], rcx
    let store = |(address, value): (u64, u64)| {
        [
            &[0x48, 0xbb][..],
            &address.to_le_bytes(),
            &[0x48, 0xb9],
            &value.to_le_bytes(),
            &[0x48, 0x89, 0x0b],
        ]
        .concat()
    };
    let mut code: Vec<u8> = words.into_iter().flat_map(store).collect();
    // The VMM has requested calls when it lets the process continue: mov rbx, OWN; cmp dword [rbx], 2; jne back
    code.extend(
        [
            &[0x48, 0xbb][..],
            &OWN.to_le_bytes(),
            &[0x83, 0x3b, 2, 0x75, 0xfb],
        ]
        .concat(),
    );
    code.extend(store((REQUESTED, 1)));
    code.extend([0xeb, 0xfe]);
    for crossing in [Crossing::Auto, Crossing::Dispatch, Crossing::Trap] {
        let mut attack = attack(crossing.into());
        attack.memory.write(CODE + 0x200, &code).unwrap();
        attack.set(|general| general.rip = CODE + 0x200);
        let kicker = attack.vcpu.kicker();
        let memory = Arc::clone(&attack.memory);
        let begun = Instant::now();
        let watchdog = std::thread::spawn(move || {
            while memory.load64(REQUESTED) != Some(1) && begun.elapsed() < LIMIT {
                std::thread::sleep(Duration::from_millis(10));
            }
            kicker.kick();
        });
        let error = attack.vcpu.run(Entry::Resume).unwrap_err().to_string();
        assert!(error.contains("Bad message"), "{error}");
        assert!(begun.elapsed() < LIMIT);
        watchdog.join().unwrap();
        expect_bounded(&attack, crossing.name());
    }
}
