use super::*;
use trapline_abi::frame::{encode, MAX_FRAME};
use trapline_abi::interrupt::{pack, MAX_PACKED};
use trapline_abi::{Job, Record};
use trapline_protocol::{GuestDecoder, Lateness, NoProbe, Window};

const BOOT: OpSet = Op::BootCreated.bit()
    | Op::BootEntry.bit()
    | Op::BootMain.bit()
    | Op::BootSample.bit()
    | Op::BootExit.bit();

fn frames(records: &[(Record<'_>, u64)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (record, at) in records {
        let mut buffer = [0; MAX_FRAME];
        let length = encode(record, *at, &mut buffer).unwrap();
        bytes.extend(&buffer[..length]);
    }
    bytes
}

fn stage(stage: Stage, at: u64) -> Record<'static> {
    Record::Stage { stage, at }
}

/// A guest whose clock is 1,000 ticks behind ours.
fn report(offset_told: bool) -> GuestReport {
    let job = Job {
        run: BOOT,
        ..Job::EMPTY
    };
    let mut decoder = GuestDecoder::new(&job);
    decoder.events(&frames(&[(stage(Stage::VmCreated, 5_200), 0)]));
    if offset_told {
        let counter = Counter::TscOffset;
        let value = -1_000i64 as u64;
        decoder.events(&frames(&[(Record::Count { counter, value }, 0)]));
    }
    let said = [
        (stage(Stage::GuestEntry, 4_300), 4_500),
        (stage(Stage::GuestMain, 4_400), 4_510),
        (stage(Stage::FirstSample, 4_450), 4_520),
        (Record::Done, 4_600),
    ];
    decoder.console(&frames(&said), Some(5_650), &mut NoProbe);
    decoder.finish("")
}

fn finished(offset_told: bool) -> Finished {
    Finished {
        outlived_guest: false,
        report: report(offset_told),
        exec: 5_000,
        reaped: Some(6_000),
        offset: Offset::Heard,
        own_memory: Some(4096),
    }
}

fn observe(environment: EnvironmentId, launches: Vec<Finished>) -> Observation {
    let setting = Setting {
        environment,
        replicate: 0,
        unit_per_tick: 0.5,
    };
    let mut ignore = |_| {};
    let mut recorder = Recorder::new(setting, BOOT, Facts::new(), &mut ignore);
    for launch in launches {
        recorder.finished(launch);
    }
    recorder.finish("never reached")
}

/// Ticks from exec to the end of the only sample of `op`.
fn took(observation: &Observation, op: Op) -> Option<u64> {
    let found = observation.operations.iter().find(|found| found.op == op)?;
    match &found.outcome {
        Outcome::Measured { samples, .. } => Some(samples[0].end - samples[0].start),
        _ => None,
    }
}

#[test]
fn stages_are_placed_on_our_clock_by_the_offset_that_was_told() {
    let observation = observe(EnvironmentId::KVM, vec![finished(true)]);
    let expected = [
        (Op::BootCreated, 200),
        (Op::BootEntry, 300),
        (Op::BootMain, 400),
        (Op::BootSample, 450),
        (Op::BootExit, 1000),
    ];
    for (op, ticks) in expected {
        assert_eq!(took(&observation, op), Some(ticks), "{op:?}");
    }
    let timeline = &observation.launches[0].timeline;
    assert_eq!(timeline[&Stage::Exec], 0);
    assert_eq!(timeline[&Stage::GuestMain], 200, "half a nanosecond a tick");
    assert_eq!(observation.launches[0].counters[&Counter::OwnMemory], 4096);
    assert!(observation.problems.is_empty() && observation.facts.is_empty());
}

#[test]
fn without_an_offset_the_quickest_word_bounds_it_and_the_facts_say_so() {
    let observation = observe(EnvironmentId::QEMU_KVM, vec![finished(false)]);
    // Done was said at 4,600 and heard at 5,650: 50 ticks too late.
    assert_eq!(took(&observation, Op::BootMain), Some(450));
    assert!(observation.facts["guest-clock"].contains("late by the delay"));
    let skipped = &observation.operations[0];
    assert!(matches!(&skipped.outcome, Outcome::Skipped(why) if why.contains("QEMU")));
}

#[test]
fn stages_that_cannot_be_are_dropped_and_told() {
    let mut early = finished(true);
    early.report.stages.insert(Stage::GuestEntry, 12);
    let observation = observe(EnvironmentId::KVM, vec![early]);
    assert_eq!(took(&observation, Op::BootEntry), None);
    assert_eq!(took(&observation, Op::BootMain), Some(400));
    assert!(observation.problems[0].contains("stage guest-entry"));
}

#[test]
fn what_no_launch_reached_has_failed_and_what_has_no_meaning_is_skipped() {
    let mut cut = finished(true);
    cut.report.end = EndState::Incomplete;
    let observation = observe(EnvironmentId::KVM, vec![cut]);
    for operation in &observation.operations {
        assert_eq!(
            operation.outcome,
            Outcome::Failed("never reached".to_owned())
        );
    }
    let bare = observe(EnvironmentId::SIM, vec![finished(true)]);
    for operation in &bare.operations {
        assert!(matches!(operation.outcome, Outcome::Skipped(_)));
    }
    assert_eq!(bare.operations.len(), 5);
}

#[test]
fn the_end_of_a_vmm_that_stayed_is_skipped_and_nothing_else() {
    let stayed = Finished {
        outlived_guest: true,
        reaped: None,
        ..finished(true)
    };
    let observation = observe(EnvironmentId::SIM_CUSTOM, vec![stayed]);
    assert!(took(&observation, Op::BootSample).is_some());
    let end = observation.operations.iter().find(|o| o.op == Op::BootExit);
    let outcome = &end.unwrap().outcome;
    assert!(matches!(outcome, Outcome::Skipped(reason) if reason == OUTLIVED_GUEST));
    assert_eq!(observation.facts["custom-vmm-end"], OUTLIVED_GUEST);
    let left = observe(EnvironmentId::SIM_CUSTOM, vec![finished(true)]);
    assert!(took(&left, Op::BootExit).is_some());
    assert!(!left.facts.contains_key("custom-vmm-end"));
}

/// A guest of a host whose timer was due at 5,000 by the host's clock, 120 ticks before
/// its handler was entered, where the guest's clock is 1,000 ticks behind.
fn interrupted(offset: Offset, told: bool) -> Outcome {
    let op = Op::HostTimer;
    let interrupt = Interrupt {
        sequence: 3,
        due: 5_000,
        uncertainty: 2,
        woke: Some(5_040),
        marked: Some(5_070),
        entered: 4_120,
        done: 4_130,
        resumed: 4_150,
        ..Interrupt::default()
    };
    let mut buffer = [0; MAX_PACKED];
    let (_, used) = pack(&[interrupt], &mut buffer);
    let begin = Record::Begin {
        op,
        clock_cost: 9,
        loop_cost: 0,
        exits: None,
    };
    let end = Record::End {
        op,
        samples: 1,
        check: 1,
        exits: None,
    };
    let packed = &buffer[..used];
    let job = Job {
        run: op.bit(),
        ..Job::EMPTY
    };
    let mut decoder = GuestDecoder::new(&job);
    if told {
        let counter = Counter::TscOffset;
        let value = -1_000i64 as u64;
        decoder.events(&frames(&[(Record::Count { counter, value }, 0)]));
    }
    let said = [
        (begin, 1),
        (Record::Interrupts { op, packed }, 4_200),
        (end, 4_300),
        (Record::Done, 4_400),
    ];
    decoder.console(&frames(&said), Some(5_500), &mut NoProbe);
    let launch = Finished {
        report: decoder.finish(""),
        offset,
        ..finished(false)
    };
    let mut observation = observe(EnvironmentId::KVM, vec![launch]);
    observation.operations.remove(0).outcome
}

#[test]
fn interrupts_of_the_hosts_timer_are_put_on_the_guests_clock() {
    for (offset, told) in [(Offset::Known(-1_000), false), (Offset::Heard, true)] {
        let outcome = interrupted(offset, told);
        let Outcome::Measured { interrupts, .. } = &outcome else {
            panic!("{outcome:?}");
        };
        let only = interrupts[0];
        assert_eq!(
            (only.due, only.woke, only.marked),
            (4_000, Some(4_040), Some(4_070))
        );
        assert_eq!(
            (only.entered, only.uncertainty, only.sequence),
            (4_120, 2, 3)
        );
        assert_eq!(outcome.batches()[0].end - outcome.batches()[0].start, 120);
    }
    let same = interrupted(Offset::Same, false);
    assert!(matches!(same, Outcome::Measured { interrupts, .. } if interrupts[0].due == 5_000));
}

#[test]
fn where_nobody_knows_the_offset_the_hosts_timer_has_no_figures() {
    let outcome = interrupted(Offset::Heard, false);
    assert_eq!(outcome, Outcome::Failed(NO_OFFSET.to_owned()));
}

#[test]
fn a_window_is_told_in_units_of_the_clock() {
    let mut told = Vec::new();
    let mut tell = |progress| told.push(progress);
    let setting = Setting {
        environment: EnvironmentId::KVM,
        replicate: 0,
        unit_per_tick: 0.5,
    };
    let window = |mean, p99, max| Window {
        op: Op::OwnTimer,
        number: 1,
        of: 4,
        lateness: Some(Lateness { mean, p99, max }),
    };
    let mut recorder = Recorder::new(setting, 0, Facts::new(), &mut tell);
    recorder.progress(Progress::Window(window(100, 200, 400)));
    assert_eq!(told, [Progress::Window(window(50, 100, 200))]);
}
