use super::*;
use proptest::prelude::*;
use trapline_abi::frame::{encode, MAX_FRAME};
use trapline_abi::interrupt::{pack, MAX_PACKED};
use trapline_abi::{Interrupt, Record};
use trapline_model::observed::Outcome;

const ASKED: OpSet = Op::Getpid.bit() | Op::PortOut.bit();

fn job() -> Job {
    Job {
        run: ASKED,
        ..Job::EMPTY
    }
}

fn frame(record: &Record<'_>, at: u64) -> Vec<u8> {
    let mut buffer = [0; MAX_FRAME];
    let length = encode(record, at, &mut buffer).unwrap();
    buffer[..length].to_vec()
}

fn frames(records: &[Record<'_>]) -> Vec<u8> {
    let stamped = (100..).step_by(100).zip(records);
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

fn account_of(bytes: &[u8]) -> Account {
    let mut transcript = Transcript::new(&job());
    transcript.console(bytes, Some(1_000_000), &mut Blind);
    transcript.finish("the guest ended early")
}

fn outcome(account: &Account, op: Op) -> &Outcome {
    let found = account.operations.iter().find(|found| found.op == op);
    &found.unwrap().outcome
}

fn failure(account: &Account, op: Op) -> &str {
    match outcome(account, op) {
        Outcome::Failed(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_honest_guest_is_taken_at_its_word() {
    let hello = Record::Hello {
        version: VERSION,
        speaker: Speaker::Image,
        ring: 3,
        memory: 64 << 20,
        planned: ASKED,
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
    let account = account_of(&frames(&records));
    assert_eq!(account.hello.unwrap().ring, 3);
    assert_eq!(account.stages[&Stage::GuestMain], 77);
    assert_eq!(account.ending, Ending::Done);
    assert_eq!(account.problems, Vec::<String>::new());
    assert_eq!(account.lag, Some(1_000_000 - 800));
    let Outcome::Measured {
        samples,
        check,
        exits,
        loop_cost,
        ..
    } = outcome(&account, Op::Getpid)
    else {
        panic!("{account:?}");
    };
    assert_eq!(
        (samples.len(), *check, *exits, *loop_cost),
        (2, 42, Some(7), 1024)
    );
    assert_eq!(account.elapsed[0].guest, 100);
    let skipped = Outcome::Skipped("no ports".to_owned());
    assert_eq!(outcome(&account, Op::PortOut), &skipped);
}

#[test]
fn what_was_not_reached_has_failed_for_the_reason_given() {
    let account = account_of(&frames(&[begin(Op::Getpid), sample(Op::Getpid, 1, 1)]));
    assert_eq!(account.ending, Ending::Cut);
    assert_eq!(failure(&account, Op::Getpid), "the guest ended early");
    assert_eq!(failure(&account, Op::PortOut), "the guest ended early");
}

#[test]
fn samples_that_do_not_add_up_are_no_measurement() {
    let op = Op::Getpid;
    let two = [begin(op), sample(op, 1, 1), sample(op, 99, 1)];
    let more = [&two[..], &[end(op, 1)]].concat();
    let less = [&two[..], &[end(op, 3)]].concat();
    let none = [begin(op), end(op, 0)];
    let idle = [begin(op), sample(op, 1, 0), end(op, 1)];
    for (records, words) in [
        (&more[..], "sent 1 samples, but 2 arrived"),
        (&less[..], "sent 3 samples, but 2 arrived"),
        (&none[..], "no sample"),
        (&idle[..], "no operations"),
    ] {
        let account = account_of(&frames(records));
        assert!(failure(&account, op).contains(words), "{account:?}");
    }
}

#[test]
fn records_out_of_turn_are_problems_and_change_nothing() {
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
    let account = account_of(&frames(&records));
    let Outcome::Measured { samples, .. } = outcome(&account, op) else {
        panic!("{account:?}");
    };
    assert_eq!(samples.len(), 1);
    assert!(account.vmm_stages.is_empty() && account.stages.is_empty());
    for words in [
        "sample of basic/getpid came out of turn",
        "basic/getpid ended out of turn",
        "basic/yield was not asked for",
        "sample of exits/port-out came out of turn",
        "basic/getpid was told more than once",
        "a stage that is not its own",
        "only a VMM or init says",
    ] {
        let found = account.problems.iter().any(|text| text.contains(words));
        assert!(found, "{words}: {:?}", account.problems);
    }
}

#[test]
fn a_damaged_sample_is_lost_and_told_but_the_others_are_kept() {
    let op = Op::Getpid;
    let mut bytes = frames(&[begin(op), sample(op, 1, 1)]);
    let mut damaged = frame(&sample(op, 99, 1), 5);
    damaged[8] ^= 1;
    bytes.extend(damaged);
    bytes.extend(frames(&[end(op, 2)]));
    let account = account_of(&bytes);
    assert!(matches!(
        outcome(&account, op),
        Outcome::Measured { samples, .. } if samples.len() == 1
    ));
    assert_eq!(account.problems, ["1 damaged records"]);
}

#[test]
fn a_flood_of_samples_takes_bounded_memory_and_fails() {
    let op = Op::Getpid;
    let mut transcript = Transcript::new(&job());
    transcript.console(&frame(&begin(op), 1), None, &mut Blind);
    let piece = frame(&sample(op, 1, 1), 1).repeat(1000);
    let rounds = MOST_BYTES / piece.len() as u64 + 1;
    for _ in 0..rounds {
        transcript.console(&piece, None, &mut Blind);
    }
    assert!(transcript.flooded());
    assert!(!Transcript::new(&job()).flooded());
    transcript.console(
        &frame(&end(op, (rounds * 1000) as u32), 1),
        None,
        &mut Blind,
    );
    let account = transcript.finish("");
    assert!(failure(&account, op).contains("more than"), "{account:?}");
}

#[test]
fn a_vmm_tells_stages_and_counts_and_cannot_speak_for_its_guest() {
    let mut transcript = Transcript::new(&job());
    let created = Record::Stage {
        stage: Stage::VmCreated,
        at: 10,
    };
    let count = Record::Count {
        counter: Counter::Ring,
        value: 3,
    };
    transcript.events(&frames(&[created, count, sample(Op::Getpid, 1, 1)]));
    transcript.errors(b"warning: slow\n");
    assert_eq!(transcript.last_words(), "warning: slow");
    let account = transcript.finish("");
    assert_eq!(account.vmm_stages[&Stage::VmCreated], 10);
    assert_eq!(account.counters[&Counter::Ring], 3);
    assert_eq!(account.problems.len(), 1);
}

#[test]
fn another_version_is_noticed() {
    let mut transcript = Transcript::new(&job());
    let hello = Record::Hello {
        version: VERSION + 1,
        speaker: Speaker::Image,
        ring: 0,
        memory: 0,
        planned: 0,
    };
    assert_eq!(transcript.foreign_version(), None);
    transcript.console(&frame(&hello, 1), None, &mut Blind);
    assert_eq!(transcript.foreign_version(), Some(VERSION + 1));
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
    /// Every operation asked for has exactly one outcome, nothing else has one,
    /// and what is measured is whole - whatever a guest sends, in any pieces.
    #[test]
    fn every_operation_asked_for_has_one_outcome(
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
        let mut transcript = Transcript::new(&job());
        for piece in bytes.chunks(cut) {
            transcript.console(piece, Some(7), &mut Blind);
        }
        let account = transcript.finish("cut");
        let mut told: Vec<Op> = account.operations.iter().map(|operation| operation.op).collect();
        told.sort();
        prop_assert_eq!(told, vec![Op::Getpid, Op::PortOut]);
        for operation in &account.operations {
            if let Outcome::Measured { samples, .. } = &operation.outcome {
                prop_assert!(!samples.is_empty());
                prop_assert!(samples.iter().all(|sample| sample.count > 0));
            }
        }
    }
}

const TIMERS: OpSet = Op::OwnTimer.bit() | Op::HostTimer.bit();

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

/// As many records as the interrupts take.
fn told(op: Op, mut interrupts: &[Interrupt]) -> Vec<u8> {
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

fn irq_account(job: &Job, bytes: &[u8]) -> Account {
    let mut transcript = Transcript::new(job);
    transcript.console(bytes, Some(1_000_000), &mut Blind);
    transcript.finish("the guest ended early")
}

#[test]
fn interrupts_arrive_as_they_were_told_and_windows_are_noticed_once() {
    let op = Op::OwnTimer;
    let sent: Vec<_> = (0..1_500).map(|number| interrupt(number, 300)).collect();
    let mut transcript = Transcript::new(&irq_job(1_500));
    transcript.console(&frame(&begin(op), 1), None, &mut Blind);
    transcript.console(&told(op, &sent[..1_024]), None, &mut Blind);
    let windows = transcript.take_windows();
    assert_eq!((windows[0].number, windows[0].of, windows.len()), (0, 2, 1));
    assert_eq!(windows[0].lateness.unwrap().p99, 300);
    transcript.console(&told(op, &sent[1_024..]), None, &mut Blind);
    transcript.console(&frame(&end(op, 1_500), 2), None, &mut Blind);
    assert_eq!(transcript.take_windows().len(), 1);
    assert_eq!(transcript.take_windows().len(), 0);
    let account = transcript.finish("");
    let Outcome::Measured {
        interrupts,
        samples,
        check,
        ..
    } = outcome(&account, op)
    else {
        panic!("{account:?}");
    };
    assert!(*interrupts == sent);
    assert_eq!((samples.len(), *check), (0, 42));
    let batches = outcome(&account, op).batches();
    assert_eq!((batches.len(), batches[7].count), (1_500, 1));
    assert_eq!(batches[7].end - batches[7].start, 300);
}

#[test]
fn missed_expiries_leave_gaps_and_others_are_refused() {
    let op = Op::OwnTimer;
    let of = |sent: &[Interrupt], count| {
        let bytes = [
            frame(&begin(op), 1),
            told(op, sent),
            frame(&end(op, count), 2),
        ];
        irq_account(&irq_job(10), &bytes.concat())
    };
    let gap = [interrupt(0, 1), interrupt(4, 1), interrupt(9, 1)];
    let account = of(&gap, 3);
    assert!(
        matches!(outcome(&account, op), Outcome::Measured { interrupts, .. } if interrupts.len() == 3)
    );
    let early = Interrupt {
        resumed: 0,
        ..interrupt(1, 5)
    };
    for (sent, count, words) in [
        (&[interrupt(3, 1), interrupt(3, 1)][..], 2, "or twice"),
        (&[interrupt(3, 1), interrupt(2, 1)], 2, "out of order"),
        (&[interrupt(10, 1)], 1, "not asked for"),
        (&[early], 1, "later stage"),
        (&[interrupt(1, 1)], 2, "sent 2 samples, but 1 arrived"),
        (&[], 0, "no sample"),
    ] {
        let account = of(sent, count);
        assert!(failure(&account, op).contains(words), "{account:?}");
    }
}

#[test]
fn interrupts_out_of_turn_are_problems() {
    let some = [interrupt(0, 1)];
    let bytes = [
        told(Op::OwnTimer, &some),
        frame(&begin(Op::OwnTimer), 1),
        told(Op::HostTimer, &some),
        frame(&sample(Op::OwnTimer, 1, 1), 1),
        told(Op::OwnTimer, &some),
        frame(&end(Op::OwnTimer, 1), 2),
    ];
    let account = irq_account(&irq_job(10), &bytes.concat());
    assert!(
        matches!(outcome(&account, Op::OwnTimer), Outcome::Measured { interrupts, .. } if interrupts.len() == 1)
    );
    for words in [
        "interrupts of irq/own-timer came out of turn",
        "interrupts of irq/host-timer came out of turn",
        "a sample of irq/own-timer came out of turn",
    ] {
        assert!(account.problems.iter().any(|text| text == words), "{words}");
    }
}

#[test]
fn a_long_job_may_say_more_and_one_that_floods_whatever_it_likes() {
    assert_eq!(most_bytes(&job()), MOST_BYTES);
    let long = irq_job(1_000_000);
    assert_eq!(most_bytes(&long), MOST_BYTES + 2 * 64_000_000);
    let flood = Job {
        between: Wait::Flood,
        ..long
    };
    assert_eq!(most_bytes(&flood), u64::MAX);
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
    /// Whatever interrupts a guest tells, what is measured ascends, is of expiries that
    /// were asked for, and comes to every stage in order.
    #[test]
    fn interrupts_that_are_kept_can_be_believed(
        told_by_guest in prop::collection::vec(any_interrupts(), 0..4),
        samples in 0u32..40,
    ) {
        let op = Op::HostTimer;
        let mut bytes = frame(&begin(op), 1);
        for interrupts in &told_by_guest {
            bytes.extend(told(op, interrupts));
        }
        bytes.extend(frame(&end(op, samples), 2));
        let account = irq_account(&irq_job(30), &bytes);
        prop_assert_eq!(account.operations.len(), 2);
        if let Outcome::Measured { interrupts, .. } = outcome(&account, op) {
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
fn requests_to_a_disk_arrive_as_they_were_told_and_no_more_than_were_asked_for() {
    use trapline_abi::block;
    let op = Op::Write4kSync;
    let job = Job {
        run: op.bit() | Op::Getpid.bit(),
        requests: 320,
        ..Job::EMPTY
    };
    let request = |number: u64| block::Request {
        start: 1000 * number,
        end: 1000 * number + 700,
    };
    let told = |count: u64, also: &[Record<'_>]| {
        let requests: Vec<_> = (0..count).map(request).collect();
        let mut buffer = [0; block::MAX_PACKED];
        let (packed, used) = block::pack(&requests, &mut buffer);
        assert_eq!(packed, requests.len());
        let packed = &buffer[..used];
        let mut records = vec![begin(op), Record::Requests { op, packed }];
        records.extend_from_slice(also);
        records.push(end(op, count as u32));
        let mut transcript = Transcript::new(&job);
        transcript.console(&frames(&records), Some(1_000_000), &mut Blind);
        transcript.finish("the guest ended early")
    };
    let account = told(10, &[]);
    let Outcome::Measured { samples, .. } = outcome(&account, op) else {
        panic!("{account:?}");
    };
    assert_eq!(
        (samples.len(), samples[9].end, samples[9].count),
        (10, 9700, 1)
    );
    let Outcome::Failed(reason) = outcome(&told(11, &[]), op).clone() else {
        panic!("one more than were asked for");
    };
    assert!(reason.contains("more requests"), "{reason}");
    let out_of_turn = [
        sample(op, 0, 1),
        Record::Requests {
            op: Op::Getpid,
            packed: &[],
        },
    ];
    let problems = told(10, &out_of_turn).problems;
    assert_eq!(problems.len(), 2, "{problems:?}");
}
