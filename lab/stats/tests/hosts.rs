//! Figures and comparisons over several hosts.

use trapline_abi::Op;
use trapline_model::testing::{batches, boot, measured};
use trapline_model::{EnvironmentId, Observation, Outcome};
use trapline_stats::compare::{compare_all, Comparison, Row};
use trapline_stats::hosts::{design_of_run, ids};
use trapline_stats::verdict::{Design, RequiredBoots, Settings, Verdict};
use trapline_stats::{summarise, Cell, FailureKind, Value};

/// Returns a boot of a host with batches of about so many ticks an operation.
fn on(host: &str, environment: EnvironmentId, replicate: u32, ticks: u64) -> Observation {
    let ticks: Vec<u64> = (0..3).map(|number| 1_000 * ticks + number).collect();
    let outcome = measured(batches(&ticks, 1_000));
    Observation {
        host: host.to_owned(),
        ..boot(environment, replicate, [(Op::PortOut, outcome)])
    }
}

fn cell(observations: &[Observation], environment: EnvironmentId) -> Cell {
    let mut cells = summarise(observations).cells.into_iter();
    let found = cells.find(|cell| cell.config.environment == environment);
    found.expect("it was measured")
}

/// Boots of each host with these ticks in `host`, and three times as many in `kvm`.
fn hosts(ticks: &[(&str, &[u64])]) -> Vec<Observation> {
    let all = ticks.iter().flat_map(|(host, of_boots)| {
        (0..).zip(*of_boots).flat_map(move |(replicate, ticks)| {
            let bare = on(host, EnvironmentId::HOST, replicate, *ticks);
            [bare, on(host, EnvironmentId::KVM, replicate, 3 * ticks)]
        })
    });
    all.collect()
}

#[test]
fn a_figure_over_hosts_has_the_hosts_as_replicates() {
    let all = hosts(&[
        ("a", &[1_000; 20]),
        ("b", &[1_500, 1_500]),
        ("c", &[2_000, 4_000, 2_100]),
    ]);
    assert_eq!(ids(&all).len(), 3);
    let cell = cell(&all, EnvironmentId::KVM);
    let figure = cell.value.figure().unwrap();
    assert_eq!((figure.boots, figure.hosts), (25, 3));
    assert!((figure.estimate - 4_500.0).abs() < 1.0, "{figure:?}");
    let interval = figure.interval.unwrap();
    assert!((interval.level - 0.75).abs() < 1e-9, "{interval:?}");
    assert!((interval.low - 3_000.0).abs() < 1.0, "{interval:?}");
    assert!((interval.high - 6_300.0).abs() < 1.0, "{interval:?}");
    let ratio = figure.ratio.unwrap();
    assert!((ratio.estimate - 3.0).abs() < 1e-3, "{ratio:?}");
    assert!(
        (ratio.interval.unwrap().level - 0.75).abs() < 1e-9,
        "{ratio:?}"
    );
    // Boots of one host are the replicates there.
    let one = hosts(&[("a", &[1_000, 1_010, 1_020])]);
    let figure = self::cell(&one, EnvironmentId::KVM);
    let figure = figure.value.figure().unwrap();
    assert_eq!((figure.hosts, figure.medians.len()), (1, 3));
}

/// Only one of the hosts has KVM.
#[test]
fn a_figure_of_one_host_of_several_is_one_over_boots() {
    let mut all = hosts(&[("a", &[1_000, 1_010, 1_020])]);
    all.push(on("b", EnvironmentId::HOST, 0, 900));
    let figure = cell(&all, EnvironmentId::KVM);
    let figure = figure.value.figure().unwrap();
    assert_eq!((figure.hosts, figure.boots), (1, 3));
    // Its ratio is that to its own bare row, although the other host's is first.
    all.insert(0, on("0", EnvironmentId::HOST, 0, 10));
    let figure = cell(&all, EnvironmentId::KVM);
    let ratio = figure.value.figure().unwrap().ratio.unwrap();
    assert!((ratio.estimate - 3.0).abs() < 1e-3, "{ratio:?}");
    all.remove(0);
    let bare = cell(&all, EnvironmentId::HOST);
    assert_eq!(bare.value.figure().unwrap().hosts, 2);
}

#[test]
fn exact_figures_of_hosts_agree_or_the_odd_host_is_named() {
    let exact = |ticks: [u64; 3]| -> Vec<Observation> {
        let hosts = ["aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc"];
        let boots = hosts.iter().zip(0..).zip(ticks);
        boots
            .map(|((host, replicate), ticks)| on(host, EnvironmentId::SIM, replicate, ticks))
            .collect()
    };
    let reason = |boots: &[Observation]| match cell(boots, EnvironmentId::SIM).value {
        Value::Failed(failure) => {
            assert_eq!(failure.kind, FailureKind::NotDeterministic);
            failure.reason
        }
        other => panic!("{other:?}"),
    };
    let same = cell(&exact([5, 5, 5]), EnvironmentId::SIM);
    assert_eq!(same.value.figure().map(|figure| figure.boots), Some(3));
    let what = "3 of 3 batches, first in batch 0: 5000 insn for 1000 and 6000 insn for 1000";
    let start = "not deterministic: hosts";
    assert_eq!(
        reason(&exact([5, 6, 5])),
        format!("{start} aaaaaaaa, cccccccc agree, and bbbbbbbb differs in {what}")
    );
    assert_eq!(
        reason(&exact([5, 6, 5])[..2]),
        format!("{start} aaaaaaaa, bbbbbbbb differ, and a further host would decide, in {what}")
    );
    let mut of_one = exact([5, 6, 5]);
    of_one
        .iter_mut()
        .for_each(|boot| boot.host = "a".to_owned());
    assert_eq!(
        reason(&of_one),
        format!("not deterministic: boots 0 and 1 differ in {what}")
    );
}

/// Compares KVM with QEMU on hosts, by the ratio of each block there.
fn compared(ratios: &[(&str, &[f64])]) -> Row {
    let side = |environment, is_b: bool| -> Vec<Observation> {
        let all = ratios
            .iter()
            .zip(0_u64..)
            .flat_map(|((host, ratios), number)| {
                // Blocks of a host, and hosts, differ more than both sides.
                (0..).zip(*ratios).map(move |(block, ratio)| {
                    let a = (1_000 + 400 * number + 37 * u64::from(block % 5)) as f64;
                    let ticks = if is_b { a * ratio } else { a };
                    on(host, environment, block, ticks.round() as u64)
                })
            });
        all.collect()
    };
    let (a, b) = (
        side(EnvironmentId::KVM, false),
        side(EnvironmentId::QEMU_KVM, true),
    );
    let design = design_of_run(a.iter().chain(&b));
    let comparison = Comparison {
        a: &[a],
        b: &[b],
        design,
        repeated: &[],
    };
    compare_all(&[comparison], &Settings::default()).remove(0)
}

#[test]
fn hosts_are_the_blocks_of_a_comparison() {
    let outcome = |row: Row| row.outcome.unwrap();
    // Certain on each, and no two agree.
    let few = outcome(compared(&[
        ("a", &[1.05; 20]),
        ("b", &[0.97; 20]),
        ("c", &[1.01; 20]),
    ]));
    assert_eq!(few.design, Some(Design::Hosts { in_blocks: true }));
    assert_eq!((few.verdict, few.blocks), (Verdict::Unsure, 3));
    assert_eq!(few.required, Some(RequiredBoots::TooFewBoots { needed: 8 }));
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
    let many: Vec<(&str, &[f64])> = names.iter().map(|name| (*name, &[1.05; 4][..])).collect();
    let many = outcome(compared(&many));
    assert_eq!((many.verdict, many.blocks), (Verdict::Changed, 9));
    assert!((many.effect - 1.05).abs() < 1e-3, "{many:?}");
    // A host with one side only is none of the blocks.
    let mut boots = hosts(&[("a", &[1_000; 8]), ("b", &[1_100; 8])]);
    boots.push(on("c", EnvironmentId::HOST, 0, 900));
    let of = |id| {
        boots
            .iter()
            .filter(move |boot| boot.config.environment == id)
            .cloned()
    };
    let comparison = Comparison {
        a: &[of(EnvironmentId::HOST).collect()],
        b: &[of(EnvironmentId::KVM).collect()],
        design: design_of_run(&boots),
        repeated: &[],
    };
    let row = compare_all(&[comparison], &Settings::default()).remove(0);
    let found = outcome(row);
    assert_eq!((found.blocks, found.unmatched), (2, (1, 0)));
}

/// Both sides were measured at other times, so that blocks with equal numbers share nothing.
#[test]
fn separate_runs_are_compared_by_the_figures_of_hosts() {
    let boots = |environment, of: fn(u64) -> u64| -> Vec<Observation> {
        let hosts = (0..8_u64).flat_map(|host| (0..5_u64).map(move |block| (host, block)));
        let boots = hosts.map(|(host, block)| {
            let ticks = 1_000 + 100 * host + of(block);
            on(&host.to_string(), environment, block as u32, ticks)
        });
        boots.collect()
    };
    let comparison = Comparison {
        a: &[boots(EnvironmentId::KVM, |block| block)],
        b: &[boots(EnvironmentId::QEMU_KVM, |block| 4 - block)],
        design: Design::Hosts { in_blocks: false },
        repeated: &[],
    };
    let row = compare_all(&[comparison], &Settings::default()).remove(0);
    let found = row.outcome.unwrap();
    assert_eq!((found.verdict, found.effect), (Verdict::Equivalent, 1.0));
    let skipped = Outcome::Skipped("no port".to_owned());
    let alone = boot(EnvironmentId::KVM, 0, [(Op::PortOut, skipped)]);
    assert_eq!(ids([&alone]).len(), 1);
}
