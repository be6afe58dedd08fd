use super::*;
use expect_test::expect;
use trapline_abi::frame::{encode, MAX_FRAME};
use trapline_abi::interrupt::{pack, MAX_PACKED};
use trapline_abi::{Job, Record};
use trapline_model::EnvironmentId;
use trapline_protocol::{GuestDecoder, Hello, Lateness, NoProbe, Window};

const BOOT: OpSet = OpSet::of(&[
    Op::BootCreated,
    Op::BootEntry,
    Op::BootMain,
    Op::BootSample,
    Op::BootExit,
]);

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

/// Returns the report of a guest whose clock is 1,000 ticks behind the host's.
fn report(with_offset: bool) -> GuestReport {
    let job = Job {
        run: BOOT,
        ..Job::EMPTY
    };
    let mut decoder = GuestDecoder::new(&job);
    decoder.events(&frames(&[(stage(Stage::VmCreated, 5_200), 0)]));
    if with_offset {
        let counter = Counter::TscOffset;
        let value = -1_000i64 as u64;
        decoder.events(&frames(&[(Record::Count { counter, value }, 0)]));
    }
    let records = [
        (stage(Stage::GuestEntry, 4_300), 4_500),
        (stage(Stage::GuestMain, 4_400), 4_510),
        (stage(Stage::FirstSample, 4_450), 4_520),
        (Record::Done, 4_600),
    ];
    decoder.console(&frames(&records), Some(5_650), &mut NoProbe);
    decoder.finish("")
}

fn finished(with_offset: bool) -> FinishedLaunch {
    FinishedLaunch {
        outlived_guest: false,
        report: report(with_offset),
        exec: 5_000,
        reaped: Some(6_000),
        offset: ClockOffset::Unknown,
        own_memory: Some(4096),
    }
}

fn observe(environment: EnvironmentId, launches: Vec<FinishedLaunch>) -> Observation {
    let info = BootInfo {
        config: environment.into(),
        replicate: 0,
        unit_per_tick: 0.5,
        memory_mib: 128,
    };
    let mut ignore = |_| {};
    let mut recorder = Recorder::new(info, BOOT, Facts::new(), &mut ignore);
    for launch in launches {
        recorder.finished(launch);
    }
    recorder.finish("never reached")
}

/// Returns the ticks from exec to the end of the only sample of `op`.
fn duration(observation: &Observation, op: Op) -> Option<u64> {
    let found = observation.operations.iter().find(|found| found.op == op)?;
    match &found.outcome {
        Outcome::Measured { samples, .. } => Some(samples[0].end - samples[0].start),
        _ => None,
    }
}

#[test]
fn a_stage_that_a_start_did_not_report_fails() {
    let not_reaped = FinishedLaunch {
        reaped: None,
        ..finished(true)
    };
    let observation = observe(EnvironmentId::KVM, vec![finished(true), not_reaped]);
    let of_exit = |found: &&OperationResult| found.op == Op::BootExit;
    let exit = observation.operations.iter().find(of_exit).unwrap();
    let expected = Outcome::Failed("1 of 2 starts reported this stage".to_owned());
    assert_eq!(exit.outcome, expected);
    assert!(duration(&observation, Op::BootMain).is_some());
}

#[test]
fn stages_are_converted_to_the_host_clock_by_the_reported_offset() {
    let observation = observe(EnvironmentId::KVM, vec![finished(true)]);
    let expected = [
        (Op::BootCreated, 200),
        (Op::BootEntry, 300),
        (Op::BootMain, 400),
        (Op::BootSample, 450),
        (Op::BootExit, 1000),
    ];
    for (op, ticks) in expected {
        assert_eq!(duration(&observation, op), Some(ticks), "{op:?}");
    }
    let timeline = &observation.launches[0].timeline;
    assert_eq!(timeline[&Stage::Exec], 0);
    assert_eq!(timeline[&Stage::GuestMain], 200, "half a nanosecond a tick");
    assert_eq!(observation.launches[0].counters[&Counter::OwnMemory], 4096);
    assert!(observation.problems.is_empty() && observation.facts.is_empty());
}

#[test]
fn unknown_offset_is_bounded_by_the_quickest_record_and_noted() {
    let observation = observe(EnvironmentId::QEMU_KVM, vec![finished(false)]);
    // Done was sent at 4,600 and arrived at 5,650: 50 ticks too late.
    assert_eq!(duration(&observation, Op::BootMain), Some(450));
    expect!["the offset of the guest's clock is not reported; stages of the guest are placed by the arrival of records, and are late by the delay of the quickest"].assert_eq(&observation.facts["guest-clock"]);
    let skipped = &observation.operations[0];
    assert!(matches!(&skipped.outcome, Outcome::Skipped(why) if why.contains("QEMU")));
}

#[test]
fn impossible_stages_are_dropped_and_reported() {
    let mut early = finished(true);
    early.report.stages.insert(Stage::GuestEntry, 12);
    let observation = observe(EnvironmentId::KVM, vec![early]);
    assert_eq!(duration(&observation, Op::BootEntry), None);
    assert_eq!(duration(&observation, Op::BootMain), Some(400));
    expect!["stage guest-entry was reported before the start or after the end"]
        .assert_eq(&observation.problems.join("\n"));
}

#[test]
fn unreached_operations_fail_and_inapplicable_ones_are_skipped() {
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
fn only_the_exit_of_a_vmm_that_outlived_its_guest_is_skipped() {
    let outlived = FinishedLaunch {
        outlived_guest: true,
        reaped: None,
        ..finished(true)
    };
    let observation = observe(EnvironmentId::SIM_CUSTOM, vec![outlived]);
    assert!(duration(&observation, Op::BootSample).is_some());
    let end = observation.operations.iter().find(|o| o.op == Op::BootExit);
    let outcome = &end.unwrap().outcome;
    assert!(matches!(outcome, Outcome::Skipped(reason) if reason == OUTLIVED_GUEST));
    assert_eq!(observation.facts["custom-vmm-end"], OUTLIVED_GUEST);
    let left = observe(EnvironmentId::SIM_CUSTOM, vec![finished(true)]);
    assert!(duration(&left, Op::BootExit).is_some());
    assert!(!left.facts.contains_key("custom-vmm-end"));
}

/// Returns the outcome of a host timer that was due at 5,000 on the host clock, 120 ticks before the guest
/// entered its handler. The guest's clock is 1,000 ticks behind.
fn interrupted(offset: ClockOffset, with_offset: bool) -> Outcome {
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
        run: op.into(),
        ..Job::EMPTY
    };
    let mut decoder = GuestDecoder::new(&job);
    if with_offset {
        let counter = Counter::TscOffset;
        let value = -1_000i64 as u64;
        decoder.events(&frames(&[(Record::Count { counter, value }, 0)]));
    }
    let records = [
        (begin, 1),
        (Record::Interrupts { op, packed }, 4_200),
        (end, 4_300),
        (Record::Done, 4_400),
    ];
    decoder.console(&frames(&records), Some(5_500), &mut NoProbe);
    let launch = FinishedLaunch {
        report: decoder.finish(""),
        offset,
        ..finished(false)
    };
    let mut observation = observe(EnvironmentId::KVM, vec![launch]);
    observation.operations.remove(0).outcome
}

#[test]
fn host_timer_interrupts_are_converted_to_the_guest_clock() {
    for (offset, with_offset) in [
        (ClockOffset::Known(-1_000), false),
        (ClockOffset::Unknown, true),
    ] {
        let outcome = interrupted(offset, with_offset);
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
    let same = interrupted(ClockOffset::Same, false);
    assert!(matches!(same, Outcome::Measured { interrupts, .. } if interrupts[0].due == 5_000));
}

#[test]
fn host_timer_fails_without_the_offset() {
    let outcome = interrupted(ClockOffset::Unknown, false);
    assert_eq!(outcome, Outcome::Failed(NO_OFFSET.to_owned()));
}

#[test]
fn windows_are_reported_in_units_of_the_clock() {
    let mut reported = Vec::new();
    let mut report = |progress| reported.push(progress);
    let info = BootInfo {
        config: EnvironmentId::KVM.into(),
        replicate: 0,
        unit_per_tick: 0.5,
        memory_mib: 128,
    };
    let window = |mean, p99, max| Window {
        op: Op::OwnTimer,
        number: 1,
        of: 4,
        lateness: Some(Lateness { mean, p99, max }),
    };
    let mut recorder = Recorder::new(info, OpSet::EMPTY, Facts::new(), &mut report);
    recorder.progress(Progress::Window(window(100, 200, 400)));
    assert_eq!(reported, [Progress::Window(window(50, 100, 200))]);
}

/// Returns the observation of a guest that is to have 128 MiB and reports `mib`.
fn with_memory(environment: EnvironmentId, mib: u64) -> Observation {
    let mut launch = finished(true);
    launch.report.hello = Some(Hello {
        version: trapline_abi::VERSION,
        sender: Sender::Image,
        ring: 0,
        memory: mib << 20,
    });
    observe(environment, vec![launch])
}

#[test]
fn figures_of_a_guest_with_other_memory_are_failures() {
    for mib in [64, 65, 100, 128] {
        let observation = with_memory(EnvironmentId::KVM, mib);
        assert!(duration(&observation, Op::BootMain).is_some(), "{mib} MiB");
    }
    for mib in [0, 63, 129, 1 << 40] {
        let observation = with_memory(EnvironmentId::KVM, mib);
        let reason = format!("the guest has {mib} MiB of memory, and was to have 128 MiB");
        assert_eq!(observation.operations.len(), 5);
        for operation in observation.operations {
            assert_eq!(operation.outcome, Outcome::Failed(reason.clone()));
        }
    }
    let host = with_memory(EnvironmentId::from_name("host").unwrap(), 1 << 20);
    assert!(
        duration(&host, Op::BootSample).is_some(),
        "a host has what it has"
    );
}
