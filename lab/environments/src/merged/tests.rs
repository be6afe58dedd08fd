use super::*;
use crate::launch::ClockOffset;
use trapline_abi::{Counter, Job, Op};
use trapline_protocol::GuestDecoder;

/// Returns a launch of a guest whose clock is ahead of the host's by `offset`, with batches of 100 ticks that begin at
/// these times of the guest.
fn launch(offset: i64, starts: &[u64], count: u64, check: u64) -> FinishedLaunch {
    let batch = |start: &u64| Sample {
        start: *start,
        end: start + 100,
        count,
        host_ns: None,
        excluded: 0,
    };
    let outcome = Outcome::Measured {
        clock_cost: 10 * count,
        loop_cost: 1024 * count,
        samples: starts.iter().map(batch).collect(),
        interrupts: Vec::new(),
        trials: Vec::new(),
        check,
        exits: Some(1),
        host_cpu_ns: Some(5),
        idle: Some(IdleWork {
            ticks: 3,
            bytes: 64,
        }),
        elapsed: None,
    };
    let mut report = GuestDecoder::new(&Job::EMPTY).finish("");
    report.counters.insert(Counter::TscOffset, offset as u64);
    report.problems.clear();
    let fork = OperationResult::new(Op::Fork, outcome);
    report.operations.push(fork);
    FinishedLaunch {
        report,
        exec: 0,
        reaped: None,
        offset: ClockOffset::Unknown,
        own_memory: None,
        outlived_guest: false,
    }
}

#[test]
fn batches_of_all_guests_are_on_the_clock_of_the_first() {
    let merged = merge(vec![
        launch(-1000, &[0, 200], 2, 7),
        launch(5000, &[6000, 6200], 2, 7),
    ]);
    let merged = merged.unwrap();
    let Outcome::Measured {
        samples,
        exits,
        host_cpu_ns,
        idle,
        ..
    } = &merged.launch.report.operations[0].outcome
    else {
        panic!("{:?}", merged.launch.report.operations);
    };
    let starts: Vec<_> = samples.iter().map(|sample| sample.start).collect();
    assert_eq!(starts, [0, 0, 200, 200]);
    assert_eq!((*exits, *host_cpu_ns), (Some(2), Some(10)));
    let work = IdleWork {
        ticks: 6,
        bytes: 128,
    };
    assert_eq!(*idle, Some(work));
    assert_eq!(merged.simultaneous, Some(1.0));
    assert_eq!(merged.launch.report.problems, [""; 0]);
}

#[test]
fn costs_are_weighted_by_batches_and_by_operations() {
    let merged = merge(vec![launch(0, &[0], 1, 7), launch(0, &[0], 3, 7)]).unwrap();
    let outcome = &merged.launch.report.operations[0].outcome;
    let Outcome::Measured {
        clock_cost,
        loop_cost,
        ..
    } = outcome
    else {
        panic!("{outcome:?}");
    };
    // (10 + 30) / 2, and (1024 * 1 + 3072 * 3) / 4.
    assert_eq!((*clock_cost, *loop_cost), (20, 2560));
}

#[test]
fn guests_that_do_not_measure_at_the_same_time_are_reported() {
    let merged = merge(vec![
        launch(0, &[0, 100], 1, 7),
        launch(0, &[150, 250], 1, 7),
    ])
    .unwrap();
    assert_eq!(merged.simultaneous, Some(0.25));
    assert_eq!(
        merged.launch.report.problems,
        ["system/fork: the guests measured at the same time for 25% of the batches of one only"]
    );
}

#[test]
fn unequal_work_of_two_guests_is_a_failure() {
    let merged = merge(vec![launch(0, &[0], 1, 7), launch(0, &[0], 1, 8)]).unwrap();
    let outcome = &merged.launch.report.operations[0].outcome;
    assert_eq!(*outcome, Outcome::Failed(UNEQUAL.to_owned()));
    let mut silent = launch(0, &[0], 1, 7);
    silent.report.operations.clear();
    let merged = merge(vec![launch(0, &[0], 1, 7), silent]).unwrap();
    let outcome = &merged.launch.report.operations[0].outcome;
    assert_eq!(*outcome, Outcome::Failed(NOT_REPORTED.to_owned()));
}

#[test]
fn one_guest_is_left_as_it_is() {
    let merged = merge(vec![launch(3, &[4], 1, 7)]).unwrap();
    assert_eq!(merged.simultaneous, None);
    assert_eq!(spans(&merged.launch.report.operations), [(4, 104)]);
}
