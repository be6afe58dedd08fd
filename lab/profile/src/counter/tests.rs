use super::*;
use crate::address_space::KERNEL;
use crate::insn::VMRUN;
use std::io::{Read, Seek};
use trapline_abi::marker;

const NOP: [u8; 1] = [0x90];
const JMP: [u8; 2] = [0xeb, 0];
const BEGIN: [u8; 8] = marker::of_batch(marker::BEGIN);
const END: [u8; 8] = marker::of_batch(marker::END);

/// Returns the windows that a counter writes during `run`.
fn windows(run: impl FnOnce(&Counter)) -> Vec<format::Window> {
    read_output(run).unwrap()
}

fn read_output(run: impl FnOnce(&Counter)) -> Result<Vec<format::Window>, format::FormatError> {
    let counter = Counter::new();
    let mut file = tempfile::tempfile().unwrap();
    counter.set_output(file.try_clone().unwrap());
    run(&counter);
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    format::read(&text)
}

fn insn(address: u64, bytes: &[u8]) -> Insn<'_> {
    Insn {
        address,
        physical: address as usize,
        bytes,
        ends_block: false,
        page: None,
        counted_ahead: 0,
    }
}

fn execute(counter: &Counter, insn: Insn<'_>) {
    let Translation::Single(blocks) = counter.translate([insn].into_iter()) else {
        panic!("a block without a count of executed instructions");
    };
    counter.execute(blocks[0].unwrap()).unwrap();
}

fn step(counter: &Counter, address: u64, bytes: &[u8]) {
    execute(counter, insn(address, bytes));
}

#[test]
fn each_window_counts_only_between_its_markers() {
    let found = windows(|counter| {
        for _ in 0..2 {
            step(counter, 0x10, &NOP);
            step(counter, 0x11, &BEGIN);
            step(counter, 0x20, &NOP);
            step(counter, 0x19, &NOP);
            step(counter, 0x20, &NOP);
            step(counter, 0x21, &END);
        }
    });
    let counts = found[0].insns.iter().map(|i| (i.address, i.count));
    assert_eq!(counts.collect::<Vec<_>>(), [(0x19, 1), (0x20, 2)]);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0], found[1]);
}

#[test]
fn missing_and_nested_markers_are_errors() {
    let marks = |marks: &[[u8; 8]]| {
        let run = |counter: &Counter| {
            for (at, mark) in marks.iter().enumerate() {
                step(counter, 0x10 * at as u64, mark);
            }
        };
        read_output(run).map(|windows| windows.len())
    };
    let marker = |error| Err(format::FormatError::Marker(error));
    assert_eq!(marks(&[BEGIN, END, BEGIN, END]), Ok(2));
    assert_eq!(marks(&[BEGIN, BEGIN, END]), marker(MarkerError::Nested));
    assert_eq!(marks(&[BEGIN, END, END]), marker(MarkerError::Unbegun));
    assert_eq!(marks(&[BEGIN]), Ok(0), "batch without end marker");
}

#[test]
fn guest_mode_lasts_from_vmrun_to_the_exit_target() {
    let found = windows(|counter| {
        step(counter, KERNEL, &VMRUN);
        step(counter, 0x11, &BEGIN);
        step(counter, 0x20, &NOP);
        step(counter, KERNEL + 3, &NOP);
        step(counter, 0x20, &NOP);
        step(counter, KERNEL, &VMRUN);
        step(counter, 0x21, &END);
    });
    let lines = &found[0].insns;
    let found: Vec<_> = lines
        .iter()
        .map(|i| (i.level, i.address, i.is_exit_target))
        .collect();
    let expected = [
        (0, 0x20, false),
        (0, KERNEL, false),
        (0, KERNEL + 3, true),
        (1, 0x20, false),
    ];
    assert_eq!(found, expected);
}

/// Kernels of both levels have equal virtual addresses.
#[test]
fn nested_guests_are_counted_by_level() {
    let nested = |address: u64, bytes| Insn {
        physical: address as usize + 0x10_0000,
        ..insn(address, bytes)
    };
    let found = windows(|counter| {
        counter.set_nested(2);
        let execute = |insn: &Insn<'_>| execute(counter, *insn);
        execute(&insn(KERNEL, &VMRUN));
        execute(&insn(0x11, &BEGIN));
        execute(&nested(KERNEL, &VMRUN));
        execute(&insn(KERNEL + 3, &JMP));
        execute(&insn(KERNEL, &VMRUN));
        execute(&insn(0x20, &NOP));
        execute(&insn(KERNEL + 3, &JMP));
        execute(&insn(KERNEL, &VMRUN));
        execute(&nested(KERNEL + 3, &NOP));
        execute(&insn(0x21, &END));
    });
    let found = found[0].insns.iter();
    let found: Vec<_> = found
        .map(|i| (i.level, i.address, i.count, i.unretired))
        .collect();
    let expected = [
        (0, KERNEL, 2, 0),
        (0, KERNEL + 3, 2, 2),
        (1, KERNEL, 1, 0),
        (1, KERNEL + 3, 1, 0),
        (2, 0x20, 1, 0),
    ];
    assert_eq!(found, expected);
}

#[test]
fn modified_instruction_keeps_its_count() {
    let found = windows(|counter| {
        step(counter, 0x11, &BEGIN);
        step(counter, 0x20, &NOP);
        step(counter, 0x20, &END);
    });
    assert_eq!(found[0].insns[0].count, 1);
}

#[test]
fn programs_at_equal_addresses_are_distinguished_by_page() {
    let found = windows(|counter| {
        counter.set_xen();
        step(counter, 0x11, &BEGIN);
        for page in [7, 9, 7] {
            let insn = Insn {
                page: counter.needs_page(0x20).then_some(page),
                ..insn(0x20, &NOP)
            };
            execute(counter, insn);
        }
        step(counter, 0x11, &END);
    });
    let found: Vec<_> = found[0].insns.iter().map(|i| (i.page, i.count)).collect();
    assert_eq!(found, [(Some(7), 2), (Some(9), 1)]);
    assert!(!Counter::new().needs_page(0x20), "without Xen");
}

/// Executes a batch with a call, a system call and the return, three times.
fn work(counter: &Counter) {
    let call = [0xe8, 0, 0, 0, 0];
    let slot = StackSlot {
        address: 0x800,
        physical: 0x800,
    };
    let access = |address, bytes: &[u8]| {
        step(counter, address, bytes);
        counter.access_slot(counter.site(&insn(address, bytes)), slot);
    };
    step(counter, 0x11, &BEGIN);
    for _ in 0..3 {
        access(0x20, &call);
        step(counter, 0x30, &NOP);
        step(counter, KERNEL, &NOP);
        access(0x31, &[0xc3]);
        step(counter, 0x25, &NOP);
    }
    step(counter, 0x26, &END);
}

#[test]
fn paths_contain_all_counted_instructions() {
    let found = windows(|counter| {
        counter.enable_paths();
        work(counter);
        work(counter);
    });
    assert_eq!(found[0], found[1], "windows are independent");
    let paths: Vec<_> = found[0]
        .paths
        .iter()
        .map(|path| (path.depth, path.counts.clone()))
        .collect();
    let expected = [
        (0, vec![(0x20, 3), (0x25, 3)]),
        (1, vec![(0x30, 3), (0x31, 3)]),
        (2, vec![(KERNEL, 3)]),
    ];
    assert_eq!(paths, expected);
    let without = windows(work);
    assert_eq!(without[0].insns, found[0].insns);
    assert_eq!(without[0].paths, []);
}

#[test]
fn memory_access_of_a_later_instruction_is_ignored() {
    let found = windows(|counter| {
        counter.enable_paths();
        step(counter, 0x11, &BEGIN);
        let call = counter.site(&insn(0x20, &[0xe8, 0, 0, 0, 0]));
        step(counter, 0x20, &[0xe8, 0, 0, 0, 0]);
        step(counter, 0x21, &NOP);
        let (address, physical) = (0x700, 0x700);
        counter.access_slot(call, StackSlot { address, physical });
        step(counter, 0x22, &NOP);
        step(counter, 0x23, &END);
    });
    assert_eq!(found[0].paths.len(), 1, "{found:?}");
}

fn reach(stage: Stage) -> [u8; 8] {
    [0x0f, 0x1f, 0x84, 0, marker::STAGE, stage as u8, 0x70, 0x7a]
}

#[test]
fn stages_and_batches_are_independent_windows() {
    let found = windows(|counter| {
        step(counter, 0x30, &reach(Stage::GuestMain));
        for _ in 0..2 {
            step(counter, 0x31, &reach(Stage::Exec));
            step(counter, 0x33, &reach(Stage::Exec));
            step(counter, 0x20, &NOP);
            step(counter, 0x30, &reach(Stage::GuestMain));
            step(counter, 0x11, &BEGIN);
            step(counter, 0x20, &NOP);
            step(counter, 0x19, &END);
        }
        step(counter, 0x32, &reach(Stage::Reaped));
        step(counter, 0x20, &NOP);
    });
    let found: Vec<_> = found
        .iter()
        .map(|window| {
            let counts = window.insns.iter().map(|i| (i.address, i.count));
            (window.kind, counts.collect::<Vec<_>>())
        })
        .collect();
    let started = WindowKind::Stage(Stage::Exec, Stage::GuestMain);
    let ended = WindowKind::Stage(Stage::GuestMain, Stage::Reaped);
    let batch = (WindowKind::Batch, vec![(0x20, 1)]);
    let start = (started, vec![(0x20, 1), (0x31, 1), (0x33, 1)]);
    let end = (ended, vec![(0x11, 1), (0x19, 1), (0x20, 1), (0x30, 1)]);
    let expected = [start.clone(), batch.clone(), start, batch, end];
    assert_eq!(found, expected, "a launch that was not reaped is discarded");
}

/// Blocks of a machine: in a program, in the kernel around the entry of a guest, in the kernel's handlers, and in a
/// guest.
const BLOCKS: [(u64, &[&[u8]]); 10] = [
    (0x1_0000, &[&NOP, &NOP, &JMP]),
    (0x1_0001, &[&NOP, &JMP]),
    (0x1_0100, &[&NOP, &[0x0f, 0x05]]),
    (0x1_0200, &[&BEGIN, &NOP]),
    (0x1_0300, &[&NOP, &END]),
    (KERNEL, &[&NOP, &NOP, &VMRUN]),
    (KERNEL + 5, &[&NOP, &NOP, &JMP]),
    (KERNEL + 0x100, &[&NOP, &[0x88, 0x07], &JMP]),
    (KERNEL + 0x101, &[&[0x88, 0x07], &JMP]),
    (KERNEL + 0x200, &[&NOP, &[0x48, 0xcf]]),
];

/// Executes the first instructions of blocks, as QEMU does. Returns what is written.
fn output_of(steps: &[(usize, usize)], executed: Option<&'static AtomicU64>) -> String {
    let counter = Counter::new();
    let mut file = tempfile::tempfile().unwrap();
    counter.set_output(file.try_clone().unwrap());
    if let Some(executed) = executed {
        counter.set_executed(executed);
    }
    counter.start_launch();
    let reap = reach(Stage::Reaped);
    let last = (0x1_0400, &[&reap[..]][..]);
    let run = steps
        .iter()
        .map(|(number, insns)| (BLOCKS[*number], *insns));
    for ((mut address, block), insns) in run.chain([(last, 1)]) {
        let translated = block.iter().enumerate().map(|(index, bytes)| {
            let ends_block = index + 1 == block.len();
            let insn = Insn {
                ends_block,
                ..insn(address, bytes)
            };
            address += bytes.len() as u64;
            insn
        });
        let insns = insns.min(block.len());
        match counter.translate(translated) {
            Translation::Whole(whole) => {
                counter.begin_block(whole);
                executed.unwrap().fetch_add(insns as u64, Relaxed);
            }
            Translation::Single(singles) => {
                for single in &singles[..insns] {
                    counter.execute(single.unwrap()).unwrap();
                }
            }
        }
    }
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

proptest::proptest! {
    #[test]
    fn blocks_are_counted_as_their_instructions_are(
        steps in proptest::collection::vec((0..BLOCKS.len(), 1_usize..4), 1..60),
    ) {
        let whole = output_of(&steps, Some(Box::leak(Box::default())));
        proptest::prop_assert_eq!(&whole, &output_of(&steps, None));
        proptest::prop_assert!(!whole.is_empty());
    }
}
