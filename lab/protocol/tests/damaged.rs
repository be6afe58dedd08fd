//! Ten million streams of records in any order, damaged: each requested operation has one outcome, whatever a guest sends.

use trapline_abi::frame::{encode, MAX_FRAME};
use trapline_abi::{Job, Op, OpSet, Record, Stage};
use trapline_protocol::{GuestDecoder, NoProbe};

const REQUESTED: [Op; 3] = [Op::Getpid, Op::PortOut, Op::OwnTimer];

/// Most records of a stream.
const MOST_RECORDS: usize = 16;

/// Returns a record of a kind that guests send, and of kinds that only others may.
fn record(random: &mut fastrand::Rng) -> Record<'static> {
    let op = Op::ALL[random.usize(..Op::ALL.len())];
    let op = *random
        .choice(&REQUESTED)
        .filter(|_| random.bool())
        .unwrap_or(&op);
    let [a, b, c] = [(); 3].map(|()| random.u64(..) >> random.u32(..64));
    match random.u8(..9) {
        0 => Record::Begin {
            op,
            clock_cost: a,
            loop_cost: b,
            exits: Some(c).filter(|_| random.bool()),
        },
        1..=3 => Record::Sample {
            op,
            start: a,
            end: b,
            count: c,
        },
        4 => Record::End {
            op,
            samples: random.u32(..4),
            check: b,
            exits: Some(c).filter(|_| random.bool()),
        },
        5 => Record::Skip { op, reason: "no" },
        6 => Record::Stage {
            stage: Stage::ALL[random.usize(..Stage::ALL.len())],
            at: a,
        },
        7 => Record::Idle {
            op,
            ticks: a,
            bytes: b,
        },
        _ => *random.choice(&[Record::Done, Record::Ready]).expect("two"),
    }
}

#[test]
#[ignore = "long: make fuzz"]
fn every_requested_operation_has_one_outcome() {
    let job = Job {
        run: OpSet::of(&REQUESTED),
        ..Job::EMPTY
    };
    let mut random = fastrand::Rng::with_seed(1);
    let mut buffer = [0; MAX_FRAME];
    for _ in 0..10_000_000 {
        let mut decoder = GuestDecoder::new(&job);
        for _ in 0..random.usize(..MOST_RECORDS) {
            let length = encode(&record(&mut random), random.u64(..), &mut buffer).expect("fits");
            if random.u8(..8) == 0 {
                buffer[random.usize(..length)] = random.u8(..);
            }
            decoder.console(&buffer[..length], Some(random.u64(..)), &mut NoProbe);
        }
        let report = decoder.finish("cut");
        let concluded = report.operations.iter().filter_map(|it| it.op.guest());
        let mut concluded: Vec<Op> = concluded.collect();
        concluded.sort();
        let mut requested = REQUESTED;
        requested.sort();
        assert_eq!(concluded, requested);
    }
}
