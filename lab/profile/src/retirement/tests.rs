use super::*;
use crate::address_space::{AddressLayout, KERNEL, XEN};

const OPEN: OpenWindows = [true, false];
const HANDLER: u64 = KERNEL + 0x100;
const MOV: [u8; 2] = [0x88, 0x07];
const CALL: [u8; 2] = [0xff, 0xd0];
const IRET: [u8; 2] = [0x48, 0xcf];
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const OUT: [u8; 1] = [0xee];

/// Executes these instructions (address, bytes, whether the block ends) in host mode; returns
/// the unretired ones by the address they led to.
fn unretired_on(layout: AddressLayout, insns: &[(u64, &[u8], bool)]) -> Vec<(u64, u64)> {
    let retirement = Retirement::new();
    for &(address, bytes, ends_block) in insns {
        let insn = InsnTraits::new(layout, address, bytes, ends_block);
        retirement.execute_on_host(insn, 0, None, OPEN);
    }
    assert!(retirement.take(1).is_empty(), "that window is closed");
    let found = retirement.take(0).into_iter();
    found.map(|((_, entry), count)| (entry, count)).collect()
}

fn unretired(insns: &[(u64, &[u8], bool)]) -> Vec<(u64, u64)> {
    unretired_on(AddressLayout::Linux, insns)
}

#[test]
fn retried_instruction_did_not_retire() {
    let again = [
        (0x10, &MOV[..], true),
        (HANDLER, &MOV[..], false),
        (HANDLER + 2, &IRET, true),
        (0x10, &MOV, true),
    ];
    assert_eq!(unretired(&again), [(HANDLER, 1)]);
    let within_block = [(0x10, &MOV[..], false), (HANDLER, &MOV[..], false)];
    assert_eq!(unretired(&within_block), [(HANDLER, 1)]);
}

#[test]
fn call_of_absent_code_retired() {
    let fetch = [
        (0x10, &CALL[..], true),
        (HANDLER, &MOV[..], false),
        (HANDLER + 2, &IRET, true),
        (0x5000, &MOV, false),
    ];
    assert_eq!(unretired(&fetch), []);
}

#[test]
fn kernel_copies_fault_and_jumps_retire() {
    let copy = [
        (KERNEL, &[0xf3, 0xa4][..], true),
        (HANDLER, &MOV[..], false),
    ];
    assert_eq!(unretired(&copy), [(HANDLER, 1)]);
    let jump = [(KERNEL, &CALL[..], true), (HANDLER, &MOV[..], false)];
    assert_eq!(unretired(&jump), []);
    let call = [(0x10, &SYSCALL[..], true), (HANDLER, &MOV[..], false)];
    assert_eq!(unretired(&call), []);
}

/// Returns the unretired instructions of a guest that is a process: a call faults, the handler of signals runs and
/// returns by a system call, and the guest continues as given.
fn unretired_in_process(continued: &[(u64, &[u8], bool)]) -> usize {
    let signal = [
        (0x10, &CALL[..], true),
        (HANDLER, &MOV[..], false),
        (HANDLER + 2, &IRET, true),
        (HYPERCALL_ENTRY, &MOV, true),
        (HANDLER, &MOV, false),
        (HANDLER + 2, &IRET, true),
        (HYPERCALL_ENTRY + 2, &SYSCALL, true),
        (HANDLER + 2, &IRET, true),
    ];
    unretired(&[&signal[..], continued].concat()).len()
}

#[test]
fn call_that_a_signal_interrupts_retires_if_it_is_not_retried() {
    assert_eq!(
        unretired_in_process(&[(0x5000, &MOV, true)]),
        0,
        "absent code"
    );
    assert_eq!(unretired_in_process(&[(0x10, &CALL, true)]), 1, "mapped");
    let own_handler = [
        (0x7000, &MOV[..], false),
        (0x7002, &IRET, true),
        (0x10, &CALL, true),
    ];
    assert_eq!(unretired_in_process(&own_handler), 1, "fault of the guest");
}

/// Returns the number of unretired instructions if a guest executes `last`, exits, and continues
/// at `next`.
fn unretired_by_exit(last: Option<InsnTraits>, next: u64) -> u64 {
    let retirement = Retirement::new();
    if let Some(last) = last {
        retirement.execute_in_guest(last, 1, OPEN);
    }
    let insn = |address| InsnTraits::new(AddressLayout::Linux, address, &MOV, false);
    retirement.execute_on_host(insn(KERNEL), 0, Some(1), OPEN);
    retirement.execute_in_guest(insn(next), 1, OPEN);
    retirement.take(0).values().sum()
}

#[test]
fn exits_by_instruction_and_by_interrupt_are_distinguished() {
    let insn = |bytes: &[u8], ends| InsnTraits::new(AddressLayout::Linux, 0x20, bytes, ends);
    let out = insn(&OUT, true);
    assert_eq!(unretired_by_exit(Some(out), 0x21), 1, "intercepted");
    let store = insn(&MOV, false);
    assert_eq!(unretired_by_exit(Some(store), 0x22), 1, "emulated");
    let store = insn(&MOV, true);
    assert_eq!(unretired_by_exit(Some(store), 0x20), 1, "page absent");
    assert_eq!(unretired_by_exit(Some(store), 0x22), 0, "interrupt");
    assert_eq!(unretired_by_exit(None, 0x20), 0, "nothing executed");
}

#[test]
fn first_domain_of_xen_faults_like_a_program() {
    let retired = |last: &[u8], ends| {
        let insns = [(HANDLER, last, ends), (XEN.start, &MOV[..], false)];
        unretired_on(AddressLayout::Xen, &insns).is_empty()
    };
    assert!(retired(&SYSCALL, true), "hypercall");
    assert!(!retired(&MOV, false), "write to a page table");
    assert!(!retired(&OUT, true), "port");
    let (wrmsr, clts) = ([0x0f, 0x30], [0x0f, 0x06]);
    assert!(retired(&wrmsr, true) && retired(&clts, true), "refused");
}
