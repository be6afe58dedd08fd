//! Summaries of synthetic interrupts with known figures.

use trapline_abi::{CpuState, Interrupt, Op};
use trapline_model::irq::{Settings, Time, Timers};
use trapline_model::testing::measured;
use trapline_model::{EnvironmentId, Observation, Outcome};
use trapline_stats::irq::{summarise, InTimeInterval, Interrupts, Point, Proof, WindowCount};

/// Returns an interrupt of a host timer: the thread wakes after 10 ticks, it is pending after 30, the handler
/// starts after `late` and takes 5, its thread wakes 15 later.
fn raised(sequence: u64, late: u64) -> Interrupt {
    let due = 1_000 * sequence;
    let entered = due + late;
    Interrupt {
        sequence,
        due,
        uncertainty: sequence % 4,
        woke: Some(due + 10),
        marked: Some(due + 30),
        entered,
        done: entered + 5,
        resumed: entered + 20,
        found: CpuState::ALL[sequence as usize % 2],
    }
}

/// Returns an interrupt of the guest's own timer, without timestamps of the host.
fn own(sequence: u64, late: u64) -> Interrupt {
    Interrupt {
        woke: None,
        marked: None,
        ..raised(sequence, late)
    }
}

fn boot(environment: EnvironmentId, replicate: u32, all: Vec<Interrupt>) -> Observation {
    let op = match all[0].woke {
        Some(_) => Op::HostTimer,
        None => Op::OwnTimer,
    };
    let mut outcome = measured(Vec::new());
    if let Outcome::Measured {
        clock_cost,
        interrupts,
        ..
    } = &mut outcome
    {
        (*clock_cost, *interrupts) = (20, all);
    }
    let asked = Timers {
        expiries: 3_000,
        period: 1_000,
    };
    let facts = asked.facts().map(|(name, value)| (name.to_owned(), value));
    Observation {
        unit_per_tick: 0.5,
        facts: facts.into(),
        ..trapline_model::testing::boot(environment, replicate, [(op, outcome)])
    }
}

/// Summarises with a threshold of 30 units, which is 60 ticks.
fn summaries(observations: &[Observation]) -> Vec<Interrupts> {
    let summary = trapline_stats::summarise(observations);
    let settings = Settings {
        threshold: Time(30),
        ..Settings::default()
    };
    summarise(observations, &summary, &settings)
}

/// Returns number and lateness of 3,000 expiries without 7 and 2,999: 40 ticks, but 100 for the first and 62
/// for number 2,500.
fn expiries() -> impl Iterator<Item = (u64, u64)> {
    let late = |number| match number {
        0 => 100,
        2_500 => 62,
        _ => 40,
    };
    let all = (0..3_000).filter(|number| ![7, 2_999].contains(number));
    all.map(move |number| (number, late(number)))
}

#[test]
fn lateness_is_counted_expiry_by_expiry() {
    let boot = boot(
        EnvironmentId::KVM,
        0,
        expiries().map(|(n, late)| own(n, late)).collect(),
    );
    let summary = &summaries(&[boot])[0];
    let all = &summary.all;
    assert_eq!(
        (all.expiries, all.count, all.missed(), all.above),
        (3_000, 2_998, 2, 2)
    );
    assert_eq!((all.in_time(), all.too_late()), (2_996, 4));
    let late = all.lateness.unwrap();
    // 2,996 of 20 ns, one of 50 and one of 31.
    assert!((late.mean - (2_996.0 * 20.0 + 81.0) / 2_998.0).abs() < 1e-9);
    assert_eq!(
        (late.min, late.p50, late.p99, late.max),
        (20.0, Some(20.0), Some(20.0), 50.0)
    );
    // 2,998 interrupts are too few for a percentile of which 3 are beyond.
    assert_eq!((late.p999, late.p9999), (None, None));
    assert_eq!(
        (
            summary.period,
            summary.due_uncertainty.p50,
            summary.due_uncertainty.max,
            summary.early
        ),
        (Some(500.0), 0.5, 1.5, 0)
    );
    let interval = summary.in_time_interval.as_ref().unwrap();
    assert!(
        interval.bursts.0 < 0.5 && interval.bursts.1 < 1.0,
        "{interval:?}"
    );
    for (share, proof) in [
        ("25%", Proof::Met),
        ("99%", Proof::NotProven),
        ("100%", Proof::NotMet),
    ] {
        assert_eq!(summary.proof(share.parse().unwrap()), proof, "{share}");
    }
}

#[test]
fn on_an_exact_clock_the_count_decides_a_requirement() {
    let boot = boot(
        EnvironmentId::SIM_KVM,
        0,
        expiries().map(|(n, late)| own(n, late)).collect(),
    );
    let summary = &summaries(&[boot])[0];
    assert_eq!(summary.in_time_interval, None);
    for (share, proof) in [("99.86%", Proof::Met), ("99.87%", Proof::NotMet)] {
        assert_eq!(summary.proof(share.parse().unwrap()), proof, "{share}");
    }
}

/// Returns the interval for full windows of one boot with these late expiries.
fn interval(late: &[u64]) -> InTimeInterval {
    let windows = late.iter().map(|late| WindowCount {
        boot: 0,
        expiries: 1_024,
        late: *late,
    });
    InTimeInterval::of(&windows.collect::<Vec<_>>()).unwrap()
}

#[test]
fn zero_late_expiries_get_a_bound_for_bursts() {
    let none = interval(&[0; 10]);
    let (low, high) = none.bursts;
    // Clopper and Pearson: 0.025 to the power of 1/10.
    assert!((0.689..0.6916).contains(&low) && high == 1.0, "{none:?}");
    assert_eq!((none.windows, none.windows_per_block), (10, 1.0));
    assert_eq!(InTimeInterval::of(&[]), None);
}

#[test]
fn the_computed_number_of_windows_proves_a_requirement() {
    let require = |text: &str| text.parse().unwrap();
    let none = interval(&[0; 10]);
    let enough = none.windows_to_prove(require("99%")).unwrap();
    // Clopper and Pearson: 367.
    assert!((360..=372).contains(&enough), "{enough}");
    let proof = |count| interval(&vec![0; count]).proof(require("99%"));
    let enough = usize::try_from(enough).unwrap();
    assert_eq!(
        (proof(enough), proof(enough - 2)),
        (Proof::Met, Proof::NotProven)
    );
    assert_eq!(none.windows_to_prove(require("100%")), None);
    let late = interval(&[20; 10]);
    assert_eq!(late.windows_to_prove(require("99%")), None);
    assert!(late.windows_to_prove(require("97%")).is_some());
}

#[test]
fn windows_of_a_bad_phase_count_for_less_and_widen_the_interval() {
    let phase: Vec<u64> = (0..40)
        .map(|number| u64::from(number / 5 % 4 == 0) * 200)
        .collect();
    let apart: Vec<u64> = (0..40)
        .map(|number| u64::from(number % 4 == 0) * 200)
        .collect();
    let (phase, apart) = (interval(&phase), interval(&apart));
    assert_eq!(apart.windows_per_block, 1.0);
    assert!(phase.windows_per_block > 4.0, "{phase:?}");
    assert!(phase.bursts.0 < apart.bursts.0 && phase.bursts.1 > apart.bursts.1);
}

#[test]
fn windows_of_different_boots_are_not_neighbours() {
    let window = |boot, late| WindowCount {
        boot,
        expiries: 1_024,
        late,
    };
    let all: Vec<_> = (0..20)
        .map(|number| window(number, 100 * u64::from(number < 8)))
        .collect();
    let together: Vec<_> = all
        .iter()
        .map(|one| WindowCount { boot: 0, ..*one })
        .collect();
    let per_block =
        |windows: &[WindowCount]| InTimeInterval::of(windows).unwrap().windows_per_block;
    assert!(per_block(&together) > 4.0);
    assert!(per_block(&all) < 1.5);
}

#[test]
fn windows_are_counted_separately_and_the_first_two_summarised() {
    let boot = boot(
        EnvironmentId::KVM,
        0,
        expiries().map(|(n, late)| own(n, late)).collect(),
    );
    let summary = &summaries(&[boot])[0];
    let windows: Vec<_> = summary
        .windows
        .iter()
        .map(|w| (w.number, w.spread.expiries, w.spread.count, w.spread.above))
        .collect();
    assert_eq!(
        windows,
        [(0, 1_024, 1_023, 1), (1, 1_024, 1_024, 0), (2, 952, 951, 1)]
    );
    let max = |number: usize| summary.windows[number].spread.lateness.unwrap().max;
    assert_eq!([max(0), max(1), max(2)], [50.0, 20.0, 31.0]);
    assert_eq!((summary.first.expiries, summary.first.above), (2_048, 1));
    let rest = summary.rest.as_ref().unwrap();
    assert_eq!((rest.expiries, rest.above, rest.missed()), (952, 1, 1));
}

#[test]
fn stages_with_timestamps_add_up_and_others_are_listed() {
    let raised: Vec<_> = expiries().map(|(n, late)| raised(n, late)).collect();
    let own: Vec<_> = expiries().map(|(n, late)| own(n, late)).collect();
    let seen = [
        boot(EnvironmentId::KVM, 0, raised),
        boot(EnvironmentId::HOST, 0, own),
    ];
    let summary = summaries(&seen);
    let of = |index: usize| {
        let stages = &summary[index].stages;
        let spans = stages.spans.iter();
        spans
            .map(|span| (span.from, span.to, span.p50, span.max))
            .collect::<Vec<_>>()
    };
    use Point::{Done, Due, Entered, Marked, Resumed, Woke};
    assert_eq!(summary[0].config, EnvironmentId::HOST.into());
    assert_eq!(
        of(0),
        [
            (Due, Entered, 20.0, 50.0),
            (Entered, Done, 2.5, 2.5),
            (Done, Resumed, 7.5, 7.5),
        ]
    );
    assert_eq!(summary[0].stages.unstamped, [Woke, Marked]);
    assert_eq!(
        of(1),
        [
            (Due, Woke, 5.0, 5.0),
            (Woke, Marked, 10.0, 10.0),
            (Marked, Entered, 5.0, 35.0),
            (Entered, Done, 2.5, 2.5),
            (Done, Resumed, 7.5, 7.5),
        ]
    );
    for interrupts in &summary {
        assert!(interrupts.stages.unexplained() < 1e-9);
        assert_eq!(interrupts.stages.out_of_order, 0);
        assert_eq!(interrupts.stages.total.max, 60.0);
    }
}

#[test]
fn the_latest_interrupts_are_kept_with_the_interrupted_code() {
    let boot = boot(
        EnvironmentId::KVM,
        0,
        expiries().map(|(n, late)| raised(n, late)).collect(),
    );
    let summary = &summaries(&[boot])[0];
    let latest: Vec<_> = summary
        .latest
        .iter()
        .map(|late| (late.sequence, late.lateness))
        .collect();
    // Of equally late ones the first.
    assert_eq!(
        latest[..4],
        [(0, 50.0), (2_500, 31.0), (1, 20.0), (2, 20.0)]
    );
    assert_eq!(latest.len(), 10);
    let first = &summary.latest[0];
    assert_eq!(first.points[0], (Point::Woke, 5.0));
    assert_eq!(first.points[4], (Point::Resumed, 60.0));
    assert_eq!(
        (first.found, summary.latest[2].found),
        (CpuState::Halt, CpuState::Code)
    );
    let found: Vec<_> = summary
        .found
        .iter()
        .map(|(found, spread)| (*found, spread.count))
        .collect();
    // Numbers 7 and 2,999 are odd.
    assert_eq!(found, [(CpuState::Halt, 1_500), (CpuState::Code, 1_498)]);
    let histogram: Vec<_> = summary
        .histogram
        .iter()
        .map(|b| (b.from, b.count))
        .collect();
    assert_eq!(histogram, [(20, 2_996), (31, 1), (50, 1)]);
}

#[test]
fn early_interrupts_are_not_late_and_unordered_ones_counted() {
    let early = Interrupt {
        due: 5_003,
        ..own(5, 0)
    };
    let crossed = Interrupt {
        marked: Some(9_050),
        ..raised(9, 40)
    };
    let early = &summaries(&[boot(EnvironmentId::KVM, 0, vec![own(1, 40), early])])[0];
    assert_eq!((early.early, early.all.lateness.unwrap().min), (1, 0.0));
    let crossed = &summaries(&[boot(EnvironmentId::KVM, 0, vec![crossed])])[0];
    assert_eq!(
        (crossed.stages.out_of_order, crossed.stages.early_wakeups),
        (1, 0)
    );
    let ahead = Interrupt {
        woke: Some(8_995),
        ..raised(9, 40)
    };
    let ahead = &summaries(&[boot(EnvironmentId::KVM, 0, vec![ahead])])[0];
    assert_eq!(
        (ahead.stages.out_of_order, ahead.stages.early_wakeups),
        (0, 1)
    );
    let lengths: Vec<_> = ahead.stages.spans.iter().map(|span| span.p50).collect();
    assert_eq!(lengths[0], -2.5);
    assert_eq!(lengths.iter().sum::<f64>(), ahead.stages.total.p50);
}

#[test]
fn boots_are_pooled_on_the_wall_clock_only() {
    let of = |environment| {
        let one = boot(environment, 0, (0..3_000).map(|n| own(n, 40)).collect());
        let two = boot(environment, 1, (0..3_000).map(|n| own(n, 40)).collect());
        summaries(&[two, one]).remove(0)
    };
    let wall = of(EnvironmentId::KVM);
    assert_eq!(
        (wall.boots, wall.all.expiries, wall.first.expiries),
        (2, 6_000, 4_096)
    );
    assert_eq!((wall.windows[0].boot, wall.windows[3].boot), (0, 1));
    let exact = of(EnvironmentId::SIM_KVM);
    assert_eq!((exact.boots, exact.all.expiries), (2, 3_000));
}

#[test]
fn operations_without_a_figure_have_no_summary() {
    let one = boot(EnvironmentId::SIM_KVM, 0, vec![own(0, 40)]);
    let other = boot(EnvironmentId::SIM_KVM, 1, vec![own(0, 41)]);
    assert_eq!(summaries(&[one.clone(), other]), []);
    assert_eq!(summaries(&[one]).len(), 1);
}
