//! The suite on the fake: accepts the right trace and reports the first difference.

mod wider;

use super::*;
use crate::fake::{Fake, Script, Step};
use crate::{Exit, Gpa, IoAddr, Stop};

fn out(size: u8, data: u64) -> Step {
    at_port(0x600, size, data)
}

fn at_port(port: u16, size: u8, data: u64) -> Step {
    Step::new(Exit::Write {
        at: IoAddr::Port(port),
        size,
        data,
    })
}

fn input(size: u8) -> Step {
    let at = IoAddr::Port(0x600);
    Step::new(Exit::Read { at, size })
}

fn store(address: u64, size: u8, data: u64) -> Step {
    let at = IoAddr::Mmio(address);
    Step::new(Exit::Write { at, size, data })
}

fn load(address: u64, size: u8) -> Step {
    let at = IoAddr::Mmio(address);
    Step::new(Exit::Read { at, size })
}

/// Script of a correct guest.
fn accesses() -> Script {
    vec![
        Step::new(Exit::Started),
        out(1, 0x41),
        out(2, 0x4241),
        out(4, 0x4443_4241),
        input(1),
        out(4, 0xffff_ff5a).answered(0x5a),
        input(2),
        out(4, 0xffff_a55a).answered(0xa55a),
        input(4),
        out(4, 0xdead_beef).answered(0xdead_beef),
        out(1, 0x61),
        out(1, 0x62),
        out(1, 0x63),
        input(1),
        input(1).answered(0x11),
        out(4, 0x2211).answered(0x22),
        store(0xfeb0_0000, 1, 0x11),
        store(0xfeb0_0002, 2, 0x2211),
        store(0xfeb0_0004, 4, 0x4433_2211),
        store(0xfeb0_0008, 8, 0x8877_6655_4433_2211),
        load(0xfeb0_0010, 1),
        out(4, 0x99).answered(0x99),
        load(0xfeb0_0012, 2),
        out(4, 0xa0a1).answered(0xa0a1),
        load(0xfeb0_0014, 4),
        out(4, 0xb0b1_b2b3).answered(0xb0b1_b2b3),
        load(0xfeb0_0018, 8),
        out(4, 0x89ab_cdef).answered(0x0123_4567_89ab_cdef),
        out(4, 0x0123_4567),
        out(4, 0x600d_cafe),
        at_port(0x604, 1, 0xfe).changing(|general| general.r13 = 0x1122_3344_5566_7788),
        load(0x10_0000, 4),
        out(4, 0x1111_1111).answered(0x1111_1111),
        at_port(0x605, 1, 0x11),
        out(4, 0x2222_2222),
        at_port(0x606, 1, 0x22).storing(Gpa(0x10_0004), &[0x33; 4]),
        load(0x10_0000, 4),
        out(4, 0x4444_4444).answered(0x4444_4444),
        at_port(0x607, 1, 0x44),
        out(4, 0x5555_5555),
        store(0x10_0000, 4, 0x6666_6666),
        Step::new(Exit::Halted),
        Step::new(Exit::Kicked),
        at_port(0x608, 1, 0),
        Step::new(Exit::Kicked),
        at_port(0x608, 4, 0x7777_7777),
        Step::new(Exit::Stopped(Stop::TripleFault)),
    ]
}

fn interrupts() -> Script {
    let handled = || at_port(0x602, 1, 0x40).interrupted();
    vec![
        Step::new(Exit::Started),
        at_port(0x601, 1, 0),
        handled(),
        at_port(0x603, 1, 0),
        Step::new(Exit::Kicked),
        handled(),
        at_port(0x604, 1, 0),
        Step::new(Exit::Kicked),
        handled(),
        at_port(0x605, 1, 0),
    ]
}

fn run_on(accesses: Script, interrupts: Script) -> Result<Vec<Trace>, Failure> {
    let caps = Fake::probe().unwrap();
    let wider = [wider::memory(), wider::dirty()];
    let scripts =
        [accesses]
            .into_iter()
            .chain(wider)
            .chain([interrupts, halts(), wider::delivery()]);
    run(&Fake::replaying(scripts), &caps).map(|report| report.traces)
}

fn halts() -> Script {
    vec![
        Step::new(Exit::Started),
        at_port(0x603, 1, 0),
        Step::new(Exit::Kicked),
        at_port(0x602, 1, 0x40).interrupted(),
        at_port(0x605, 1, 0),
    ]
}

#[test]
fn the_fake_conforms() {
    let traces = run_on(accesses(), interrupts()).unwrap();
    let lengths: Vec<_> = traces.iter().map(|trace| trace.lines.len()).collect();
    let scripts = [
        accesses(),
        wider::memory(),
        wider::dirty(),
        interrupts(),
        halts(),
        wider::delivery(),
    ];
    assert_eq!(lengths, scripts.map(|script| script.len()));
}

#[test]
fn wrong_exit_is_reported_with_its_step() {
    for index in 0..accesses().len() {
        let mut script = accesses();
        script[index] = Step::new(Exit::Stopped(Stop::Internal(7)));
        match run_on(script, interrupts()) {
            Err(Failure::Trace { step, got, .. }) => {
                assert_eq!((step, got.as_str()), (index, "stopped internal 0x7"));
            }
            other => panic!("a wrong exit {index} was not found: {other:?}"),
        }
    }
}

#[test]
fn missing_store_is_reported() {
    let mut script = accesses();
    script[35] = at_port(0x606, 1, 0x22);
    let failure = run_on(script, interrupts()).unwrap_err().to_string();
    assert!(failure.contains("store is not in its memory"), "{failure}");
}

#[test]
fn wrong_register_is_reported() {
    let mut script = accesses();
    script[30] = at_port(0x604, 1, 0xfe);
    let failure = run_on(script, interrupts()).unwrap_err().to_string();
    assert!(failure.contains("r13"), "{failure}");
}

#[test]
fn fake_rejects_a_wrong_answer() {
    let caps = Fake::probe().unwrap();
    let mut script = accesses();
    script[5] = out(4, 0xffff_ff5a).answered(0x5b);
    let failure = run(&Fake::replaying([script, interrupts()]), &caps).unwrap_err();
    let text = failure.to_string();
    assert!(text.contains("should be 0x5b, not 0x5a"), "{text}");
}
