use super::*;
use expect_test::expect;
use proptest::prelude::*;
use trapline_abi::frame::{encode, MAX_FRAME};
use trapline_abi::interrupt::{pack, MAX_PACKED};
use trapline_abi::job::WaitMode;
use trapline_abi::record::Sender;
use trapline_abi::{Counter, Job, Op, OpSet, Stage, VERSION};
use trapline_abi::{Interrupt, Record};
use trapline_model::observed::{IdleWork, Outcome};

const REQUESTED: OpSet = OpSet::of(&[Op::Getpid, Op::PortOut]);

fn job() -> Job {
    Job {
        run: REQUESTED,
        ..Job::EMPTY
    }
}

fn frame(record: &Record<'_>, at: u64) -> Vec<u8> {
    let mut buffer = [0; MAX_FRAME];
    let length = encode(record, at, &mut buffer).unwrap();
    buffer[..length].to_vec()
}

fn frames(records: &[Record<'_>]) -> Vec<u8> {
    frames_at(records, 100)
}

/// Returns frames of which the first is sent at `first`.
fn frames_at(records: &[Record<'_>], first: u64) -> Vec<u8> {
    let stamped = (first..).step_by(100).zip(records);
    stamped.flat_map(|(at, record)| frame(record, at)).collect()
}

fn begin(op: Op) -> Record<'static> {
    Record::Begin {
        op,
        clock_cost: 20,
        loop_cost: 1024,
        exits: Some(5),
    }
}

fn sample(op: Op, start: u64, count: u64) -> Record<'static> {
    Record::Sample {
        op,
        start,
        end: start + 50,
        count,
    }
}

fn end(op: Op, samples: u32) -> Record<'static> {
    Record::End {
        op,
        samples,
        check: 42,
        exits: Some(12),
    }
}

fn report_of(bytes: &[u8]) -> GuestReport {
    let mut decoder = GuestDecoder::new(&job());
    decoder.console(bytes, Some(1_000_000), &mut NoProbe);
    decoder.finish("the guest ended early")
}

fn outcome(report: &GuestReport, op: Op) -> &Outcome {
    let found = report.operations.iter().find(|found| found.op == op);
    &found.unwrap().outcome
}

fn failure(report: &GuestReport, op: Op) -> &str {
    match outcome(report, op) {
        Outcome::Failed(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_a_guest_that_repeats_the_number_of_its_job_answers_it() {
    let answers = |asked, said: &[Record<'_>]| {
        let job = Job {
            nonce: asked,
            ..job()
        };
        let mut decoder = GuestDecoder::new(&job);
        decoder.console(&frames(said), None, &mut NoProbe);
        decoder.finish("").answers_job
    };
    assert!(answers(0, &[]) && answers(7, &[Record::Nonce { nonce: 7 }]));
    assert!(!answers(7, &[]) && !answers(7, &[Record::Nonce { nonce: 8 }]));
}

/// A VMM could change what its guest sends.
#[test]
fn impossible_batches_fail() {
    let sample = |start, end, count| Record::Sample {
        op: Op::Getpid,
        start,
        end,
        count,
    };
    let far = 3 << 20;
    for (second, reason) in [
        (sample(far + 9, far + 10, 16), None),
        (
            sample(0, 9, 1),
            Some("a batch begins before the end of the one before"),
        ),
        (
            sample(far + 9, far + 10, 17),
            Some("a batch has more operations than instructions or cycles"),
        ),
        (
            sample(far + 9, far + 9, 1),
            Some("a batch has more operations than instructions or cycles"),
        ),
    ] {
        let records = [
            begin(Op::Getpid),
            sample(far, far + 8, 1),
            second,
            end(Op::Getpid, 2),
        ];
        let mut decoder = GuestDecoder::new(&job());
        decoder.console(&frames_at(&records, 4 * far), None, &mut NoProbe);
        let report = decoder.finish("");
        match outcome(&report, Op::Getpid) {
            Outcome::Measured { .. } => assert_eq!(reason, None),
            _ => assert_eq!(Some(failure(&report, Op::Getpid)), reason),
        }
    }
}

#[test]
fn batches_that_end_after_their_record_fail() {
    for shift in 0..63 {
        let batch = Record::Sample {
            op: Op::Getpid,
            start: 0,
            end: 1 << shift,
            count: 1,
        };
        let records = [begin(Op::Getpid), batch, end(Op::Getpid, 1)];
        let report = report_of(&frames(&records));
        match outcome(&report, Op::Getpid) {
            Outcome::Measured { .. } => assert!(shift < 20, "2^{shift} ticks"),
            _ => {
                assert!(shift >= 20, "2^{shift} ticks");
                let reason = failure(&report, Op::Getpid);
                assert_eq!(reason, "a batch ends after the guest reported it");
            }
        }
    }
}

#[test]
fn valid_records_become_a_report() {
    let hello = Record::Hello {
        version: VERSION,
        sender: Sender::Image,
        ring: 3,
        memory: 64 << 20,
        planned: REQUESTED,
    };
    let skip = Record::Skip {
        op: Op::PortOut,
        reason: "no ports",
    };
    let stage = Record::Stage {
        stage: Stage::GuestMain,
        at: 77,
    };
    let records = [
        hello,
        stage,
        begin(Op::Getpid),
        sample(Op::Getpid, 1000, 9),
        sample(Op::Getpid, 2000, 9),
        end(Op::Getpid, 2),
        skip,
        Record::Done,
    ];
    let report = report_of(&frames(&records));
    assert_eq!(report.hello.unwrap().ring, 3);
    assert_eq!(report.stages[&Stage::GuestMain], 77);
    assert_eq!(report.end, EndState::Done);
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(report.min_lag, Some(1_000_000 - 800));
    let Outcome::Measured {
        samples,
        check,
        exits,
        loop_cost,
        ..
    } = outcome(&report, Op::Getpid)
    else {
        panic!("{report:?}");
    };
    assert_eq!(
        (samples.len(), *check, *exits, *loop_cost),
        (2, 42, Some(7), 1024)
    );
    assert_eq!(report.elapsed[0].guest, 100);
    let skipped = Outcome::Skipped("no ports".to_owned());
    assert_eq!(outcome(&report, Op::PortOut), &skipped);
}

#[test]
fn idle_work_belongs_to_the_current_operation_once() {
    let op = Op::Getpid;
    let idle = |ticks| Record::Idle {
        op,
        ticks,
        bytes: 4096,
    };
    let records = [
        idle(9),
        begin(op),
        idle(0),
        idle(7),
        idle(8),
        sample(op, 1, 1),
        end(op, 1),
    ];
    let report = report_of(&frames(&records));
    let work = IdleWork {
        ticks: 7,
        bytes: 4096,
    };
    assert!(
        matches!(outcome(&report, op), Outcome::Measured { idle, .. } if *idle == Some(work)),
        "{report:?}"
    );
    let problem = "idle work of basic/getpid is out of sequence or takes no time";
    assert_eq!(report.problems[0], problem);
}

#[test]
fn unreached_operations_fail_with_the_given_reason() {
    let report = report_of(&frames(&[begin(Op::Getpid), sample(Op::Getpid, 1, 1)]));
    assert_eq!(report.end, EndState::Incomplete);
    assert_eq!(failure(&report, Op::Getpid), "the guest ended early");
    assert_eq!(failure(&report, Op::PortOut), "the guest ended early");
}

#[test]
fn wrong_sample_counts_fail_the_operation() {
    let op = Op::Getpid;
    let two = [begin(op), sample(op, 1, 1), sample(op, 99, 1)];
    let more = [&two[..], &[end(op, 1)]].concat();
    let less = [&two[..], &[end(op, 3)]].concat();
    let none = [begin(op), end(op, 0)];
    let idle = [begin(op), sample(op, 1, 0), end(op, 1)];
    let failures = [&more[..], &less, &none, &idle]
        .map(|records| failure(&report_of(&frames(records)), op).to_owned());
    expect![[r#"
        guest sent 1 samples, but 2 arrived
        guest sent 3 samples, but 2 arrived
        no sample arrived
        a sample has zero repetitions"#]]
    .assert_eq(&failures.join("\n"));
}

#[test]
fn records_out_of_sequence_are_problems_and_are_ignored() {
    let op = Op::Getpid;
    let records = [
        sample(op, 1, 1),
        end(op, 1),
        begin(Op::Yield),
        begin(op),
        sample(op, 1, 1),
        sample(Op::PortOut, 1, 1),
        end(op, 1),
        begin(op),
        sample(op, 1, 1),
        end(op, 1),
        Record::Stage {
            stage: Stage::VmCreated,
            at: 1,
        },
        Record::Launch { child: 0 },
    ];
    let report = report_of(&frames(&records));
    let Outcome::Measured { samples, .. } = outcome(&report, op) else {
        panic!("{report:?}");
    };
    assert_eq!(samples.len(), 1);
    assert!(report.vmm_stages.is_empty() && report.stages.is_empty());
    for words in [
        "sample of basic/getpid is out of sequence",
        "end of basic/getpid is out of sequence",
        "basic/yield was not requested",
        "sample of exits/port-out is out of sequence",
        "basic/getpid was reported more than once",
        "a stage of its VMM",
        "reserved for VMM and init",
    ] {
        let found = report.problems.iter().any(|text| text.contains(words));
        assert!(found, "{words}: {:?}", report.problems);
    }
}

#[test]
fn first_sample_belongs_to_each_stage_of_a_start() {
    let job = Job {
        run: Op::BootMain.into(),
        ..job()
    };
    let mut decoder = GuestDecoder::new(&job);
    let records = [
        begin(Op::BootSample),
        sample(Op::BootSample, 1, 1),
        end(Op::BootSample, 1),
        Record::Done,
    ];
    decoder.console(&frames(&records), None, &mut NoProbe);
    let report = decoder.finish("not reached");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn damaged_sample_is_a_problem_and_others_are_kept() {
    let op = Op::Getpid;
    let mut bytes = frames(&[begin(op), sample(op, 1, 1)]);
    let mut damaged = frame(&sample(op, 99, 1), 5);
    damaged[8] ^= 1;
    bytes.extend(damaged);
    bytes.extend(frames(&[end(op, 2)]));
    let report = report_of(&bytes);
    assert!(matches!(
        outcome(&report, op),
        Outcome::Measured { samples, .. } if samples.len() == 1
    ));
    assert_eq!(report.problems, ["1 damaged records"]);
}

#[test]
fn flood_of_samples_fails_the_operation() {
    let op = Op::Getpid;
    let mut decoder = GuestDecoder::new(&job());
    decoder.console(&frame(&begin(op), 1), None, &mut NoProbe);
    let piece = frame(&sample(op, 1, 1), 1).repeat(1000);
    let rounds = MAX_BYTES / piece.len() as u64 + 1;
    for _ in 0..rounds {
        decoder.console(&piece, None, &mut NoProbe);
    }
    assert!(decoder.flooded());
    assert!(!GuestDecoder::new(&job()).flooded());
    decoder.console(
        &frame(&end(op, (rounds * 1000) as u32), 1),
        None,
        &mut NoProbe,
    );
    let report = decoder.finish("");
    expect!["more than 16384 samples arrived"].assert_eq(failure(&report, op));
}

#[test]
fn vmm_reports_stages_and_counters_but_no_samples() {
    let mut decoder = GuestDecoder::new(&job());
    let created = Record::Stage {
        stage: Stage::VmCreated,
        at: 10,
    };
    let count = Record::Count {
        counter: Counter::Ring,
        value: 3,
    };
    decoder.events(&frames(&[created, count, sample(Op::Getpid, 1, 1)]));
    decoder.errors(b"warning: slow\n");
    assert_eq!(decoder.last_output(), "warning: slow");
    let report = decoder.finish("");
    assert_eq!(report.vmm_stages[&Stage::VmCreated], 10);
    assert_eq!(report.counters[&Counter::Ring], 3);
    assert_eq!(report.problems.len(), 1);
}

#[test]
fn second_start_of_a_guest_is_ignored() {
    let hello = Record::Hello {
        version: VERSION,
        sender: Sender::Image,
        ring: 0,
        memory: 1 << 20,
        planned: Op::Yield.into(),
    };
    let start = |count| {
        let records = [hello, begin(Op::Getpid), sample(Op::Getpid, 100, count)];
        [frames(&records), frames(&[end(Op::Getpid, 1)])].concat()
    };
    let mut decoder = GuestDecoder::until_end_record(&job());
    decoder.console(&start(10), None, &mut NoProbe);
    assert!(!decoder.has_restarted());
    decoder.console(&start(20), None, &mut NoProbe);
    assert!(decoder.has_restarted());
    let report = decoder.finish("it ended early");
    assert_eq!(report.problems, Vec::<String>::new());
    let Outcome::Measured { samples, .. } = outcome(&report, Op::Getpid) else {
        panic!("{report:?}");
    };
    let counts: Vec<_> = samples.iter().map(|sample| sample.count).collect();
    assert_eq!(counts, [10]);
}

#[test]
fn version_mismatch_is_reported() {
    let mut decoder = GuestDecoder::new(&job());
    let hello = Record::Hello {
        version: VERSION + 1,
        sender: Sender::Image,
        ring: 0,
        memory: 0,
        planned: OpSet::EMPTY,
    };
    assert_eq!(decoder.version_mismatch(), None);
    decoder.console(&frame(&hello, 1), None, &mut NoProbe);
    assert_eq!(decoder.version_mismatch(), Some(VERSION + 1));
}

fn records() -> impl Strategy<Value = Vec<u8>> {
    let op = prop_oneof![Just(Op::Getpid), Just(Op::PortOut), Just(Op::Yield)];
    prop_oneof![
        op.clone().prop_map(|op| frame(&begin(op), 1)),
        (op.clone(), 0u64..4).prop_map(|(op, count)| frame(&sample(op, 1, count), 2)),
        (op, 0u32..4).prop_map(|(op, samples)| frame(&end(op, samples), 3)),
        Just(frame(&Record::Done, 4)),
        prop::collection::vec(any::<u8>(), 0..40),
    ]
}

proptest! {
    /// Each requested operation has exactly one outcome, no other has one, and measured ones have
    /// valid samples, for arbitrary input in arbitrary pieces.
    #[test]
    fn every_requested_operation_has_one_outcome(
        pieces in prop::collection::vec(records(), 0..60),
        cut in 1usize..50,
        flips in prop::collection::vec((any::<usize>(), 0u8..8), 0..6),
    ) {
        let mut bytes = pieces.concat();
        for (at, bit) in flips {
            let length = bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(at % length) {
                *byte ^= 1 << bit;
            }
        }
        let mut decoder = GuestDecoder::new(&job());
        for piece in bytes.chunks(cut) {
            decoder.console(piece, Some(7), &mut NoProbe);
        }
        let report = decoder.finish("cut");
        let concluded = report.operations.iter().filter_map(|it| it.op.guest());
        let mut concluded: Vec<Op> = concluded.collect();
        concluded.sort();
        prop_assert_eq!(concluded, vec![Op::Getpid, Op::PortOut]);
        for operation in &report.operations {
            if let Outcome::Measured { samples, .. } = &operation.outcome {
                prop_assert!(!samples.is_empty());
                prop_assert!(samples.iter().all(|sample| sample.count > 0));
            }
        }
    }
}

const TIMERS: OpSet = OpSet::of(&[Op::OwnTimer, Op::HostTimer]);

fn irq_job(expiries: u32) -> Job {
    Job {
        run: TIMERS,
        expiries,
        ..Job::EMPTY
    }
}

fn interrupt(sequence: u64, late: u64) -> Interrupt {
    let due = 1_000_000 + 10_000 * sequence;
    let entered = due + late;
    Interrupt {
        sequence,
        due,
        entered,
        done: entered + 7,
        resumed: entered + 20,
        ..Interrupt::default()
    }
}

/// Encodes interrupts as records.
fn encoded(op: Op, mut interrupts: &[Interrupt]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !interrupts.is_empty() {
        let mut buffer = [0; MAX_PACKED];
        let (count, used) = pack(interrupts, &mut buffer);
        let packed = &buffer[..used];
        bytes.extend(frame(&Record::Interrupts { op, packed }, 9));
        interrupts = &interrupts[count..];
    }
    bytes
}

fn irq_report(job: &Job, bytes: &[u8]) -> GuestReport {
    let mut decoder = GuestDecoder::new(job);
    decoder.console(bytes, Some(1_000_000), &mut NoProbe);
    decoder.finish("the guest ended early")
}

#[test]
fn interrupts_are_decoded_and_windows_returned_once() {
    let op = Op::OwnTimer;
    let sent: Vec<_> = (0..1_500).map(|number| interrupt(number, 300)).collect();
    let mut decoder = GuestDecoder::new(&irq_job(1_500));
    decoder.console(&frame(&begin(op), 1), None, &mut NoProbe);
    decoder.console(&encoded(op, &sent[..1_024]), None, &mut NoProbe);
    let windows = decoder.take_windows();
    assert_eq!((windows[0].number, windows[0].of, windows.len()), (0, 2, 1));
    assert_eq!(windows[0].lateness.unwrap().p99, 300);
    decoder.console(&encoded(op, &sent[1_024..]), None, &mut NoProbe);
    decoder.console(&frame(&end(op, 1_500), 2), None, &mut NoProbe);
    assert_eq!(decoder.take_windows().len(), 1);
    assert_eq!(decoder.take_windows().len(), 0);
    let report = decoder.finish("");
    let Outcome::Measured {
        interrupts,
        samples,
        check,
        ..
    } = outcome(&report, op)
    else {
        panic!("{report:?}");
    };
    assert!(*interrupts == sent);
    assert_eq!((samples.len(), *check), (0, 42));
    let batches = outcome(&report, op).batches();
    assert_eq!((batches.len(), batches[7].count), (1_500, 1));
    assert_eq!(batches[7].end - batches[7].start, 300);
}

#[test]
fn missed_expiries_leave_gaps_and_implausible_ones_fail() {
    let op = Op::OwnTimer;
    let of = |sent: &[Interrupt], count| {
        let bytes = [
            frame(&begin(op), 1),
            encoded(op, sent),
            frame(&end(op, count), 2),
        ];
        irq_report(&irq_job(10), &bytes.concat())
    };
    let gap = [interrupt(0, 1), interrupt(4, 1), interrupt(9, 1)];
    let report = of(&gap, 3);
    assert!(
        matches!(outcome(&report, op), Outcome::Measured { interrupts, .. } if interrupts.len() == 3)
    );
    let early = Interrupt {
        resumed: 0,
        ..interrupt(1, 5)
    };
    let cases = [
        (&[interrupt(3, 1), interrupt(3, 1)][..], 2),
        (&[interrupt(3, 1), interrupt(2, 1)], 2),
        (&[interrupt(10, 1)], 1),
        (&[early], 1),
        (&[interrupt(1, 1)], 2),
        (&[], 0),
    ];
    let failures = cases.map(|(sent, count)| failure(&of(sent, count), op).to_owned());
    expect![[r#"
        interrupts are out of order or duplicated
        interrupts are out of order or duplicated
        an interrupt has an expiry that was not requested
        an interrupt has a later stage before an earlier one
        guest sent 2 samples, but 1 arrived
        no sample arrived"#]]
    .assert_eq(&failures.join("\n"));
}

#[test]
fn interrupts_out_of_sequence_are_problems() {
    let some = [interrupt(0, 1)];
    let bytes = [
        encoded(Op::OwnTimer, &some),
        frame(&begin(Op::OwnTimer), 1),
        encoded(Op::HostTimer, &some),
        frame(&sample(Op::OwnTimer, 1, 1), 1),
        encoded(Op::OwnTimer, &some),
        frame(&end(Op::OwnTimer, 1), 2),
    ];
    let report = irq_report(&irq_job(10), &bytes.concat());
    assert!(
        matches!(outcome(&report, Op::OwnTimer), Outcome::Measured { interrupts, .. } if interrupts.len() == 1)
    );
    for words in [
        "interrupts of irq/own-timer are out of sequence",
        "interrupts of irq/host-timer are out of sequence",
        "sample of irq/own-timer is out of sequence",
    ] {
        assert!(report.problems.iter().any(|text| text == words), "{words}");
    }
}

#[test]
fn byte_limit_grows_with_expiries_and_is_infinite_for_flooding_jobs() {
    assert_eq!(byte_limit(&job()), MAX_BYTES);
    let long = irq_job(1_000_000);
    assert_eq!(byte_limit(&long), MAX_BYTES + 2 * 64_000_000);
    let flood = Job {
        wait_mode: WaitMode::Flood,
        ..long
    };
    assert_eq!(byte_limit(&flood), u64::MAX);
}

fn any_interrupts() -> impl Strategy<Value = Vec<Interrupt>> {
    let times = (any::<u64>(), any::<u64>(), any::<u64>());
    let odd = (0u64..40, times, proptest::option::of(any::<u32>())).prop_map(
        |(sequence, (due, entered, done), woke)| Interrupt {
            sequence,
            due,
            woke: woke.map(|after| due.wrapping_add(after.into())),
            entered,
            done,
            resumed: done,
            ..Interrupt::default()
        },
    );
    let good = (0u64..40, 0u64..9).prop_map(|(sequence, late)| interrupt(sequence, late));
    prop::collection::vec(prop_oneof![3 => good, 1 => odd], 0..20)
}

proptest! {
    /// Measured interrupts ascend, belong to requested expiries, and have ordered stages, for
    /// arbitrary input.
    #[test]
    fn kept_interrupts_are_plausible(
        sent_by_guest in prop::collection::vec(any_interrupts(), 0..4),
        samples in 0u32..40,
    ) {
        let op = Op::HostTimer;
        let mut bytes = frame(&begin(op), 1);
        for interrupts in &sent_by_guest {
            bytes.extend(encoded(op, interrupts));
        }
        bytes.extend(frame(&end(op, samples), 2));
        let report = irq_report(&irq_job(30), &bytes);
        prop_assert_eq!(report.operations.len(), 2);
        if let Outcome::Measured { interrupts, .. } = outcome(&report, op) {
            prop_assert_eq!(interrupts.len() as u32, samples);
            prop_assert!(interrupts.is_sorted_by(|a, b| a.sequence < b.sequence));
            for interrupt in interrupts {
                prop_assert!(interrupt.sequence < 30);
                prop_assert!(interrupt.entered <= interrupt.done);
                prop_assert!(interrupt.woke.is_none_or(|woke| woke >= interrupt.due));
            }
        }
    }
}

#[test]
fn disk_requests_are_decoded_up_to_the_requested_number() {
    use trapline_abi::block;
    let op = Op::Write4kSync;
    let job = Job {
        run: op | Op::Getpid,
        requests: 320,
        ..Job::EMPTY
    };
    let request = |number: u64| block::DiskRequest {
        start: 1000 * number,
        end: 1000 * number + 700,
    };
    let decode = |count: u64, also: &[Record<'_>]| {
        let requests: Vec<_> = (0..count).map(request).collect();
        let mut buffer = [0; block::MAX_PACKED];
        let (packed, used) = block::pack(&requests, &mut buffer);
        assert_eq!(packed, requests.len());
        let packed = &buffer[..used];
        let mut records = vec![begin(op), Record::Requests { op, packed }];
        records.extend_from_slice(also);
        records.push(end(op, count as u32));
        let mut decoder = GuestDecoder::new(&job);
        decoder.console(&frames(&records), Some(1_000_000), &mut NoProbe);
        decoder.finish("the guest ended early")
    };
    let report = decode(10, &[]);
    let Outcome::Measured { samples, .. } = outcome(&report, op) else {
        panic!("{report:?}");
    };
    assert_eq!(
        (samples.len(), samples[9].end, samples[9].count),
        (10, 9700, 1)
    );
    let Outcome::Failed(reason) = outcome(&decode(11, &[]), op).clone() else {
        panic!("one more than requested");
    };
    expect!["more disk requests arrived than were requested"].assert_eq(&reason);
    let out_of_sequence = [
        sample(op, 0, 1),
        Record::Requests {
            op: Op::Getpid,
            packed: &[],
        },
    ];
    let problems = decode(10, &out_of_sequence).problems;
    assert_eq!(problems.len(), 2, "{problems:?}");
}
