use super::*;
use crate::worlds::KERNEL;
use std::io::{Read, Seek};

const NOP: [u8; 1] = [0x90];
const BEGIN: [u8; 8] = [0x0f, 0x1f, 0x84, 0, mark::BEGIN, 0, 0x70, 0x7a];
const END: [u8; 8] = [0x0f, 0x1f, 0x84, 0, mark::END, 0, 0x70, 0x7a];

/// What a tally writes when `run` has let it count.
fn windows(run: impl FnOnce(&Tally)) -> Vec<wire::Window> {
    written(run).unwrap()
}

fn written(run: impl FnOnce(&Tally)) -> Result<Vec<wire::Window>, wire::BadText> {
    let tally = Tally::new();
    let mut file = tempfile::tempfile().unwrap();
    tally.write_to(file.try_clone().unwrap());
    run(&tally);
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    wire::read(&text)
}

fn insn(address: u64, bytes: &[u8]) -> Insn<'_> {
    Insn {
        address,
        physical: address as usize,
        bytes,
        ends: false,
        page: None,
    }
}

fn step(tally: &Tally, address: u64, bytes: &[u8]) {
    tally.count(tally.place(&insn(address, bytes))).unwrap();
}

#[test]
fn only_what_is_between_the_marks_is_counted_and_each_window_anew() {
    let found = windows(|tally| {
        for _ in 0..2 {
            step(tally, 0x10, &NOP);
            step(tally, 0x11, &BEGIN);
            step(tally, 0x20, &NOP);
            step(tally, 0x19, &NOP);
            step(tally, 0x20, &NOP);
            step(tally, 0x21, &END);
        }
    });
    let told: Vec<_> = found[0]
        .lines
        .iter()
        .map(|l| (l.address, l.count))
        .collect();
    assert_eq!(told, [(0x19, 1), (0x20, 2)]);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0], found[1]);
}

#[test]
fn marks_that_are_missing_or_nested_are_no_window() {
    let marks = |marks: &[[u8; 8]]| {
        let run = |tally: &Tally| {
            for (at, mark) in marks.iter().enumerate() {
                step(tally, 0x10 * at as u64, mark);
            }
        };
        written(run).map(|windows| windows.len())
    };
    let astray = |astray| Err(wire::BadText::Astray(astray));
    assert_eq!(marks(&[BEGIN, END, BEGIN, END]), Ok(2));
    assert_eq!(marks(&[BEGIN, BEGIN, END]), astray(Astray::Nested));
    assert_eq!(marks(&[BEGIN, END, END]), astray(Astray::Unbegun));
    assert_eq!(marks(&[BEGIN]), Ok(0), "one that never ended");
}

#[test]
fn behind_vmrun_runs_the_guest_until_the_machine_is_left_to() {
    let found = windows(|tally| {
        step(tally, KERNEL, &VMRUN);
        step(tally, 0x11, &BEGIN);
        step(tally, 0x20, &NOP);
        step(tally, KERNEL + 3, &NOP);
        step(tally, 0x20, &NOP);
        step(tally, KERNEL, &VMRUN);
        step(tally, 0x21, &END);
    });
    let lines = &found[0].lines;
    let told: Vec<_> = lines
        .iter()
        .map(|l| (l.in_guest, l.address, l.leaves))
        .collect();
    let expected = [
        (false, 0x20, false),
        (false, KERNEL, false),
        (false, KERNEL + 3, true),
        (true, 0x20, false),
    ];
    assert_eq!(told, expected);
}

#[test]
fn an_instruction_that_changed_keeps_what_it_had_counted() {
    let found = windows(|tally| {
        step(tally, 0x11, &BEGIN);
        step(tally, 0x20, &NOP);
        step(tally, 0x20, &END);
    });
    assert_eq!(found[0].lines[0].count, 1);
}

#[test]
fn programs_at_one_address_are_told_apart_by_their_pages() {
    let found = windows(|tally| {
        tally.expect_xen();
        step(tally, 0x11, &BEGIN);
        for page in [7, 9, 7] {
            let insn = Insn {
                page: tally.asks_page(0x20).then_some(page),
                ..insn(0x20, &NOP)
            };
            tally.count(tally.place(&insn)).unwrap();
        }
        step(tally, 0x11, &END);
    });
    let told: Vec<_> = found[0].lines.iter().map(|l| (l.page, l.count)).collect();
    assert_eq!(told, [(Some(7), 2), (Some(9), 1)]);
    assert!(
        !Tally::new().asks_page(0x20),
        "on a Linux alone nobody asks"
    );
}

/// A call, its target, and the return, between the marks; with a system call.
fn work(tally: &Tally) {
    let call = [0xe8, 0, 0, 0, 0];
    let slot = Slot {
        address: 0x800,
        physical: 0x800,
    };
    let touch = |address, bytes: &[u8]| {
        step(tally, address, bytes);
        tally.touch(tally.place(&insn(address, bytes)), slot);
    };
    step(tally, 0x11, &BEGIN);
    for _ in 0..3 {
        touch(0x20, &call);
        step(tally, 0x30, &NOP);
        step(tally, KERNEL, &NOP);
        touch(0x31, &[0xc3]);
        step(tally, 0x25, &NOP);
    }
    step(tally, 0x26, &END);
}

#[test]
fn stacks_are_told_if_asked_for_and_hold_all_that_was_counted() {
    let told = windows(|tally| {
        tally.keep_stacks();
        work(tally);
        work(tally);
    });
    assert_eq!(told[0], told[1], "a window knows nothing of the one before");
    let paths: Vec<_> = told[0]
        .contexts
        .iter()
        .map(|context| (context.depth, context.counts.clone()))
        .collect();
    let expected = [
        (0, vec![(0x20, 3), (0x25, 3)]),
        (1, vec![(0x30, 3), (0x31, 3)]),
        (2, vec![(KERNEL, 3)]),
    ];
    assert_eq!(paths, expected);
    let without = windows(work);
    assert_eq!(without[0].lines, told[0].lines);
    assert_eq!(without[0].contexts, []);
}

#[test]
fn an_access_of_a_later_instruction_is_not_taken_for_that_of_a_call() {
    let told = windows(|tally| {
        tally.keep_stacks();
        step(tally, 0x11, &BEGIN);
        let call = tally.place(&insn(0x20, &[0xe8, 0, 0, 0, 0]));
        step(tally, 0x20, &[0xe8, 0, 0, 0, 0]);
        step(tally, 0x21, &NOP);
        let (address, physical) = (0x700, 0x700);
        tally.touch(call, Slot { address, physical });
        step(tally, 0x22, &NOP);
        step(tally, 0x23, &END);
    });
    assert_eq!(told[0].contexts.len(), 1, "{told:?}");
}

fn reach(stage: Stage) -> [u8; 8] {
    [0x0f, 0x1f, 0x84, 0, mark::STAGE, stage as u8, 0x70, 0x7a]
}

#[test]
fn stages_are_windows_from_exec_to_the_end_and_leave_batches_alone() {
    let found = windows(|tally| {
        step(tally, 0x30, &reach(Stage::GuestMain));
        for _ in 0..2 {
            step(tally, 0x31, &reach(Stage::Exec));
            step(tally, 0x20, &NOP);
            step(tally, 0x30, &reach(Stage::GuestMain));
            step(tally, 0x11, &BEGIN);
            step(tally, 0x20, &NOP);
            step(tally, 0x19, &END);
        }
        step(tally, 0x32, &reach(Stage::Reaped));
        step(tally, 0x20, &NOP);
    });
    let told: Vec<_> = found
        .iter()
        .map(|window| {
            let counts = window.lines.iter().map(|l| (l.address, l.count));
            (window.span, counts.collect::<Vec<_>>())
        })
        .collect();
    let started = Span::Stage(Stage::Exec, Stage::GuestMain);
    let ended = Span::Stage(Stage::GuestMain, Stage::Reaped);
    let batch = (Span::Batch, vec![(0x20, 1)]);
    let start = (started, vec![(0x20, 1), (0x31, 1)]);
    let end = (ended, vec![(0x11, 1), (0x19, 1), (0x20, 1), (0x30, 1)]);
    let expected = [start.clone(), batch.clone(), start, batch, end];
    assert_eq!(told, expected, "a start that was not reaped is forgotten");
}
