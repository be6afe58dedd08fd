//! Parts beyond the first guest. Their scripts are derived from the traces.

use super::*;
use crate::PAGE;

fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap(),
    }
}

fn exit(line: &str) -> Exit {
    let words: Vec<_> = line.split(' ').collect();
    let at = |kind, at| match kind {
        "port" => IoAddr::Port(number(at) as u16),
        _ => IoAddr::Mmio(number(at)),
    };
    match words[..] {
        ["started"] => Exit::Started,
        ["read", kind, address, "size", size] => Exit::Read {
            at: at(kind, address),
            size: number(size) as u8,
        },
        ["write", kind, address, "size", size, "data", data] => Exit::Write {
            at: at(kind, address),
            size: number(size) as u8,
            data: number(data),
        },
        _ => panic!("not a line of a trace: {line}"),
    }
}

fn script(trace: &str) -> Script {
    trace.lines().map(|line| Step::new(exit(line))).collect()
}

fn change(script: &mut Script, index: usize, how: impl FnOnce(Step) -> Step) {
    script[index] = how(script[index].clone());
}

/// Step after the store across the end of memory.
const STORED_AT_THE_END: usize = 23;

pub(super) fn memory() -> Script {
    let mut script = script(&super::super::memory::expected(&Fake::probe().unwrap()));
    change(&mut script, STORED_AT_THE_END, |step| {
        step.storing(Gpa(0x10_0ffc), &0x5566_7788u32.to_le_bytes())
    });
    script
}

/// Pages written before each step of the dirty-tracking guest.
const WRITES: [(usize, &[u64]); 4] = [
    (2, &[1, 3, 64, 69]),
    (5, &[1, 65, 67]),
    (6, &[5]),
    (7, &[6]),
];

pub(super) fn dirty() -> Script {
    let mut script = script(trace::DIRTY);
    let at = |page: u64| Gpa(0x10_0000 + page * PAGE as u64);
    for (index, pages) in WRITES {
        for page in pages {
            change(&mut script, index, |step| step.storing(at(*page), &[1]));
        }
    }
    // From page 3 to page 4.
    let edge = Gpa(at(4).0 - 4);
    change(&mut script, 2, |step| step.storing(edge, &[1; 8]));
    script
}

pub(super) fn delivery() -> Script {
    let mut script = script(trace::DELIVERY);
    for index in [4, 5, 7, 9, 11] {
        change(&mut script, index, Step::interrupted);
    }
    script
}

fn processors() -> Vec<Script> {
    [trace::FIRST_VCPU, trace::SECOND_VCPU].map(script).into()
}

fn run_machines(machines: impl IntoIterator<Item = Vec<Script>>) -> Result<Report, Failure> {
    let caps = Caps {
        ring0: Ring0::Native,
        vcpus: 2,
        ..Fake::probe().unwrap()
    };
    run(&Fake::with_machines(machines), &caps)
}

/// The machines of the suite, the last but for its vCPUs' scripts.
fn machines(last: Vec<Script>) -> impl Iterator<Item = Vec<Script>> {
    let single = [
        accesses(),
        memory(),
        dirty(),
        interrupts(),
        halts(),
        delivery(),
    ];
    single.map(|script| vec![script]).into_iter().chain([last])
}

#[test]
fn full_capabilities_skip_nothing() {
    let report = run_machines(machines(processors())).unwrap();
    assert_eq!((report.traces.len(), report.skipped.len()), (8, 0));
}

#[test]
fn skipped_parts_are_reported() {
    let caps = Caps {
        irq_lines: false,
        dirty: false,
        ..Fake::probe().unwrap()
    };
    let report = run(&Fake::replaying([accesses(), memory()]), &caps).unwrap();
    let skipped: Vec<_> = report.skipped.iter().map(|part| part.part).collect();
    let parts = [
        "dirty tracking",
        "interrupts",
        "halts in the guest",
        "interrupt delivery",
        "processors",
    ];
    assert_eq!(skipped, parts);
    let emulated = Caps {
        vcpus: 2,
        ..Fake::probe().unwrap()
    };
    let scripts = machines(Vec::new()).take(6);
    let report = run(&Fake::with_machines(scripts), &emulated).unwrap();
    assert!(report.skipped[0].why.contains("emulated"), "{report:?}");
}

#[test]
fn failing_vcpu_ends_the_other() {
    let mut vcpus = processors();
    // It reads the page that it should have forgotten.
    vcpus[1][6] = Step::new(exit("write port 0x602 size 4 data 0x11111111"));
    // The other one never gets on.
    vcpus[0].truncate(3);
    vcpus[0].push(Step::new(Exit::Kicked));
    match run_machines(machines(vcpus)) {
        Err(Failure::Trace { part, step, .. }) => {
            assert_eq!((part, step), ("processors, vCPU 1", 6));
        }
        other => panic!("a wrong page was not found: {other:?}"),
    }
}

#[test]
fn wrong_dirty_log_is_reported() {
    let mismatch = |step: usize, page: u64| {
        let mut script = dirty();
        change(&mut script, step, |step| {
            step.storing(Gpa(0x10_0000 + page * PAGE as u64), &[1])
        });
        script
    };
    let mut forgotten = dirty();
    forgotten[7] = Step::new(exit("write port 0x605 size 1 data 0x0"));
    for script in [mismatch(2, 2), mismatch(3, 68), mismatch(7, 5), forgotten] {
        let machines = [vec![accesses()], vec![memory()], vec![script]];
        let failure = run_machines(machines).unwrap_err().to_string();
        assert!(failure.contains("were written to instead of"), "{failure}");
    }
}

#[test]
fn missing_store_at_end_of_memory_is_reported() {
    let mut script = memory();
    script[STORED_AT_THE_END] = Step::new(exit("write mmio 0x101000 size 4 data 0x11223344"));
    let failure = run_machines([vec![accesses()], vec![script]]).unwrap_err();
    assert!(
        failure.to_string().contains("is not in its memory"),
        "{failure}"
    );
}
