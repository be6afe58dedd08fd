//! Interrupts made up so that all that is said of them is known beforehand.

use trapline_abi::{Found, Interrupt, Op};
use trapline_plan::irq::{Asked, Settings, Time};
use trapline_plan::{EnvironmentId, Observation, Operation, Outcome};
use trapline_stats::irq::{summarise, Interrupts, Point};

/// Of a host's timer: 10 ticks until it woke, 20 until it was marked, then so many until
/// the handler, 5 in it, 15 to the thread.
fn raised(sequence: u64, late: u64) -> Interrupt {
    let due = 1_000 * sequence;
    let entered = due + late;
    Interrupt {
        sequence,
        due,
        doubt: sequence % 4,
        woke: Some(due + 10),
        marked: Some(due + 30),
        entered,
        done: entered + 5,
        resumed: entered + 20,
        found: Found::ALL[sequence as usize % 2],
    }
}

/// Of the guest's own timer: nobody but the guest stamps anything.
fn own(sequence: u64, late: u64) -> Interrupt {
    Interrupt {
        woke: None,
        marked: None,
        ..raised(sequence, late)
    }
}

fn boot(environment: EnvironmentId, replicate: u32, told: Vec<Interrupt>) -> Observation {
    let op = match told[0].woke {
        Some(_) => Op::HostTimer,
        None => Op::OwnTimer,
    };
    let outcome = Outcome::Measured {
        clock_cost: 20,
        loop_cost: 0,
        samples: vec![],
        interrupts: told,
        check: 1,
        exits: None,
        host_cpu_ns: None,
        elapsed: None,
    };
    let asked = Asked {
        expiries: 3_000,
        period: 1_000,
    };
    let facts = asked.facts().map(|(name, value)| (name.to_owned(), value));
    Observation {
        environment,
        variant: Default::default(),
        clock: environment.clock(),
        replicate,
        unit_per_tick: 0.5,
        operations: vec![Operation { op, outcome }],
        launches: vec![],
        facts: facts.into(),
        log: String::new(),
        problems: vec![],
    }
}

/// Judged by a threshold of 30 units, which is 60 ticks.
fn told(observations: &[Observation]) -> Vec<Interrupts> {
    let summary = trapline_stats::summarise(observations);
    let settings = Settings {
        threshold: Time(30),
        ..Settings::default()
    };
    summarise(observations, &summary, &settings)
}

/// All 3,000 but 7 and 2,999, 40 ticks late; 100 late is the first, 62 the 2,500th.
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
        EnvironmentId::Kvm,
        0,
        expiries().map(|(n, late)| own(n, late)).collect(),
    );
    let told = &told(&[boot])[0];
    let all = &told.all;
    assert_eq!(
        (all.expiries, all.count, all.missed(), all.above),
        (3_000, 2_998, 2, 2)
    );
    assert_eq!((all.in_time(), all.too_late()), (2_996, 4));
    let late = all.lateness.unwrap();
    // 2,996 of 20 ns, one of 50 and one of 31.
    assert!((late.mean - (2_996.0 * 20.0 + 81.0) / 2_998.0).abs() < 1e-9);
    assert_eq!(
        (late.min, late.p50, late.p999, late.max),
        (20.0, 20.0, 20.0, 50.0)
    );
    assert_eq!(late.p9999, 50.0);
    assert_eq!(
        (told.period, told.doubt.p50, told.doubt.max, told.early),
        (Some(500.0), 0.5, 1.5, 0)
    );
    let shares = [("99.86%", true), ("99.87%", false)];
    for (share, met) in shares {
        assert_eq!(told.meets(share.parse().unwrap()), met, "{share}");
    }
}

#[test]
fn windows_stand_for_themselves_and_the_first_two_apart() {
    let boot = boot(
        EnvironmentId::Kvm,
        0,
        expiries().map(|(n, late)| own(n, late)).collect(),
    );
    let told = &told(&[boot])[0];
    let windows: Vec<_> = told
        .windows
        .iter()
        .map(|w| (w.number, w.spread.expiries, w.spread.count, w.spread.above))
        .collect();
    assert_eq!(
        windows,
        [(0, 1_024, 1_023, 1), (1, 1_024, 1_024, 0), (2, 952, 951, 1)]
    );
    let max = |number: usize| told.windows[number].spread.lateness.unwrap().max;
    assert_eq!([max(0), max(1), max(2)], [50.0, 20.0, 31.0]);
    assert_eq!((told.first.expiries, told.first.above), (2_048, 1));
    let rest = told.rest.as_ref().unwrap();
    assert_eq!((rest.expiries, rest.above, rest.missed()), (952, 1, 1));
}

#[test]
fn stages_that_were_told_add_up_and_others_are_named() {
    let raised: Vec<_> = expiries().map(|(n, late)| raised(n, late)).collect();
    let own: Vec<_> = expiries().map(|(n, late)| own(n, late)).collect();
    let seen = [
        boot(EnvironmentId::Kvm, 0, raised),
        boot(EnvironmentId::Host, 0, own),
    ];
    let told = told(&seen);
    let of = |index: usize| {
        let stages = &told[index].stages;
        let spans = stages.spans.iter();
        spans
            .map(|span| (span.from, span.to, span.p50, span.max))
            .collect::<Vec<_>>()
    };
    use Point::{Done, Due, Entered, Marked, Resumed, Woke};
    assert_eq!(told[0].environment, EnvironmentId::Host);
    assert_eq!(
        of(0),
        [
            (Due, Entered, 20.0, 50.0),
            (Entered, Done, 2.5, 2.5),
            (Done, Resumed, 7.5, 7.5),
        ]
    );
    assert_eq!(told[0].stages.untold, [Woke, Marked]);
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
    for interrupts in &told {
        assert!(interrupts.stages.unexplained() < 1e-9);
        assert_eq!(interrupts.stages.disordered, 0);
        assert_eq!(interrupts.stages.total.max, 60.0);
    }
}

#[test]
fn the_latest_are_kept_with_what_they_met() {
    let boot = boot(
        EnvironmentId::Kvm,
        0,
        expiries().map(|(n, late)| raised(n, late)).collect(),
    );
    let told = &told(&[boot])[0];
    let latest: Vec<_> = told
        .latest
        .iter()
        .map(|late| (late.sequence, late.lateness))
        .collect();
    // Of the many that are equally late the first that came.
    assert_eq!(
        latest[..4],
        [(0, 50.0), (2_500, 31.0), (1, 20.0), (2, 20.0)]
    );
    assert_eq!(latest.len(), 10);
    let first = &told.latest[0];
    assert_eq!(first.points[0], (Point::Woke, 5.0));
    assert_eq!(first.points[4], (Point::Resumed, 60.0));
    assert_eq!(
        (first.found, told.latest[2].found),
        (Found::Halt, Found::Code)
    );
    let found: Vec<_> = told
        .found
        .iter()
        .map(|(found, spread)| (*found, spread.count))
        .collect();
    // Numbers 7 and 2,999 are odd.
    assert_eq!(found, [(Found::Halt, 1_500), (Found::Code, 1_498)]);
    let histogram: Vec<_> = told.histogram.iter().map(|b| (b.from, b.count)).collect();
    assert_eq!(histogram, [(20, 2_996), (31, 1), (50, 1)]);
}

#[test]
fn what_was_early_is_not_late_and_what_is_out_of_order_is_told() {
    let early = Interrupt {
        due: 5_003,
        ..own(5, 0)
    };
    let crossed = Interrupt {
        marked: Some(9_050),
        ..raised(9, 40)
    };
    let early = &told(&[boot(EnvironmentId::Kvm, 0, vec![own(1, 40), early])])[0];
    assert_eq!((early.early, early.all.lateness.unwrap().min), (1, 0.0));
    let crossed = &told(&[boot(EnvironmentId::Kvm, 0, vec![crossed])])[0];
    assert_eq!((crossed.stages.disordered, crossed.stages.ahead), (1, 0));
    let ahead = Interrupt {
        woke: Some(8_995),
        ..raised(9, 40)
    };
    let ahead = &told(&[boot(EnvironmentId::Kvm, 0, vec![ahead])])[0];
    assert_eq!((ahead.stages.disordered, ahead.stages.ahead), (0, 1));
    let lengths: Vec<_> = ahead.stages.spans.iter().map(|span| span.p50).collect();
    assert_eq!(lengths[0], -2.5);
    assert_eq!(lengths.iter().sum::<f64>(), ahead.stages.total.p50);
}

#[test]
fn boots_are_taken_together_on_the_wall_clock_and_once_on_an_exact_one() {
    let of = |environment| {
        let one = boot(environment, 0, (0..3_000).map(|n| own(n, 40)).collect());
        let two = boot(environment, 1, (0..3_000).map(|n| own(n, 40)).collect());
        told(&[two, one]).remove(0)
    };
    let wall = of(EnvironmentId::Kvm);
    assert_eq!(
        (wall.boots, wall.all.expiries, wall.first.expiries),
        (2, 6_000, 4_096)
    );
    assert_eq!((wall.windows[0].boot, wall.windows[3].boot), (0, 1));
    let exact = of(EnvironmentId::SimKvm);
    assert_eq!((exact.boots, exact.all.expiries), (2, 3_000));
}

#[test]
fn what_has_no_figure_has_no_interrupts_either() {
    let one = boot(EnvironmentId::SimKvm, 0, vec![own(0, 40)]);
    let other = boot(EnvironmentId::SimKvm, 1, vec![own(0, 41)]);
    assert_eq!(told(&[one.clone(), other]), []);
    assert_eq!(told(&[one]).len(), 1);
}
