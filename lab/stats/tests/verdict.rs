//! Verdicts of whole tables.

use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest, ProptestConfig};
use rand_chacha::ChaCha8Rng;
use trapline_model::Clock;
use trapline_stats::rng::{normal, rng};
use trapline_stats::verdict::{
    test_table, Assessment, BootValues, Design, InterimTests, Method, RequiredBoots, Settings,
    Side, TableTest, TestError, TestInput, Verdict,
};

const SETTINGS: Settings = Settings {
    alpha: 0.01,
    equivalence_alpha: 0.05,
    margin: 0.02,
    most_blocks: 200,
    seed: 7,
};

/// Returns one boot in each block.
fn boots(figures: &[f64]) -> Vec<BootValues> {
    let numbered = figures.iter().zip(0..);
    numbered
        .map(|(figure, block)| BootValues {
            block,
            batches: vec![*figure; 3],
            mean: Some(*figure),
        })
        .collect()
}

fn input(a: &[f64], b: &[f64], design: Design) -> TestInput {
    TestInput {
        clock: Clock::Wall,
        design,
        a: boots(a),
        b: boots(b),
    }
}

/// Returns boots of about 1,000 ns in blocks that vary by 10%; B costs `effect` times as much.
fn measured(blocks: usize, noise: f64, effect: f64, rng: &mut ChaCha8Rng) -> TestInput {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..blocks {
        let base = 1000.0 * (0.1 * normal(rng)).exp();
        a.push(base * (noise * normal(rng)).exp());
        b.push(base * effect * (noise * normal(rng)).exp());
    }
    input(&a, &b, Design::Blocked)
}

fn tested(table: &[TestInput]) -> Vec<Assessment> {
    tested_by(&TableTest::new(&SETTINGS), table)
}

fn tested_by(test: &TableTest, table: &[TestInput]) -> Vec<Assessment> {
    let all = test.test(table);
    all.into_iter()
        .map(|one| one.expect("it is judged"))
        .collect()
}

#[test]
fn one_change_is_found_among_many_unchanged_operations() {
    let mut rng = rng(3, 0);
    let table: Vec<_> = (0..30)
        .map(|index| {
            let effect = if index == 11 { 1.05 } else { 1.0 };
            measured(12, 0.006, effect, &mut rng)
        })
        .collect();
    for (index, comparison) in tested(&table).iter().enumerate() {
        let expected = match index {
            11 => Verdict::Changed,
            _ => Verdict::Equivalent,
        };
        assert_eq!(comparison.verdict, expected, "{index}: {comparison:?}");
        assert_eq!(comparison.method, Method::BlockBootstrap);
        assert_eq!((comparison.blocks, comparison.boots), (12, (12, 12)));
        assert_eq!(comparison.required, None);
    }
    let changed = &tested(&table)[11];
    let decisive = changed.decisive.unwrap();
    assert!(decisive.low > 1.0 && decisive.low < 1.05 && decisive.high > 1.05);
    assert!((decisive.level - (1.0 - 0.01 / 30.0)).abs() < 1e-12);
    let shown = changed.interval.unwrap();
    assert!(decisive.low < shown.low && shown.high < decisive.high && shown.level == 0.95);
}

#[test]
fn a_significant_difference_within_the_margin_is_equivalent() {
    let mut rng = rng(4, 0);
    let table = [measured(40, 0.002, 1.01, &mut rng)];
    let [comparison] = &tested(&table)[..] else {
        panic!("one");
    };
    assert_eq!(comparison.verdict, Verdict::Equivalent);
    assert!(comparison.p.unwrap() < 0.001, "{comparison:?}");
    assert_eq!(comparison.q, None, "never reported as changed");
    let decisive = comparison.decisive.unwrap();
    assert!(decisive.low > 1.0 && decisive.high < 1.02, "{decisive:?}");
    assert!((decisive.level - 0.9).abs() < 1e-12, "two one-sided tests");
}

/// Three of 20 boots are 65% slower, which the trimmed mean does not show.
#[test]
fn a_tail_prevents_equivalence() {
    let mut rng = rng(6, 0);
    let mut one = measured(20, 0.002, 1.0, &mut rng);
    let same = tested(std::slice::from_ref(&one)).remove(0);
    assert_eq!(same.verdict, Verdict::Equivalent);
    for boot in &mut one.b[4..7] {
        boot.batches.iter_mut().for_each(|batch| *batch *= 1.65);
    }
    let comparison = tested(&[one]).remove(0);
    assert_eq!(comparison.verdict, Verdict::Unsure, "{comparison:?}");
    let tail = comparison.tail.unwrap();
    assert_eq!(tail.blocks, 3);
    assert!((tail.farthest - 1.65).abs() < 0.02, "{tail:?}");
    assert!((comparison.effect - 1.0).abs() < 0.01);
}

/// With five boots a side the rank sum test alone rejects 5% of such tables at 1%.
#[test]
fn unequal_spread_of_few_boots_apart_is_no_change() {
    let mut rng = rng(8, 0);
    let test = TableTest::new(&SETTINGS);
    let false_ones = (0..1000).filter(|_| {
        let mut side = |spread: f64| -> Vec<f64> {
            let figures = (0..5).map(|_| 1000.0 * (spread * normal(&mut rng)).exp());
            figures.collect()
        };
        let (a, b) = (side(0.001), side(0.05));
        let one = tested_by(&test, &[input(&a, &b, Design::Runs)]).remove(0);
        one.p.is_some_and(|p| p <= 0.01)
    });
    // 10 are expected at most; more than 20 have a probability below 0.2%.
    assert!(false_ones.count() <= 20);
}

#[test]
fn too_few_blocks_have_the_required_number() {
    let table = [input(
        &[100.0, 101.0, 99.0],
        &[150.0, 149.0, 152.0],
        Design::Blocked,
    )];
    let comparison = &tested(&table)[0];
    assert_eq!(comparison.verdict, Verdict::Unsure);
    assert_eq!(comparison.method, Method::SignedRanks);
    assert_eq!(comparison.p, Some(0.25), "two of eight patterns of signs");
    assert_eq!(
        comparison.required,
        Some(RequiredBoots::TooFewBoots { needed: 8 })
    );
    assert_eq!((comparison.interval, comparison.decisive), (None, None));
    assert!((comparison.effect - 1.5).abs() < 0.02);
}

#[test]
fn values_of_runs_are_compared_by_ranks_or_means() {
    let table = [
        input(
            &[100.0, 101.0, 99.0, 100.5, 99.5],
            &[110.0, 111.0, 109.0, 110.5, 109.5, 110.2],
            Design::Runs,
        ),
        input(
            &[100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 100.1, 99.8],
            &[
                110.0, 111.0, 109.0, 110.5, 109.5, 110.2, 110.1, 109.9, 110.3,
            ],
            Design::Runs,
        ),
    ];
    let [few, many] = &tested(&table)[..] else {
        panic!("two");
    };
    assert_eq!((few.method, few.boots), (Method::RankSums, (5, 6)));
    assert_eq!((many.method, many.boots), (Method::BootBootstrap, (8, 9)));
    assert_eq!((few.blocks, many.blocks), (5, 8));
    assert!((few.p.unwrap() - 2.0 / 462.0).abs() < 1e-12, "462 choices");
    for comparison in [few, many] {
        assert_eq!(comparison.verdict, Verdict::Changed, "{comparison:?}");
        assert!((comparison.effect - 1.1).abs() < 0.01);
    }
}

fn exact(a: &[f64], b: &[f64]) -> Result<Assessment, TestError> {
    let input = TestInput {
        clock: Clock::Insn,
        ..input(a, b, Design::Runs)
    };
    test_table(&[input], &SETTINGS).remove(0)
}

#[test]
fn an_exact_clock_compares_digits() {
    let same = exact(&[31_230.0; 2], &[31_230.0; 2]).unwrap();
    assert_eq!((same.verdict, same.effect), (Verdict::Equivalent, 1.0));
    let one_more = exact(&[31_230.0; 2], &[31_231.0; 2]).unwrap();
    assert_eq!(one_more.verdict, Verdict::Equivalent);
    assert_eq!(one_more.effect, 31_231.0 / 31_230.0);
    assert!(one_more.within_margin && one_more.interval.is_none() && one_more.p.is_none());
    let twice = exact(&[3.0; 2], &[6.0; 2]).unwrap();
    assert!(twice.verdict == Verdict::Changed && !twice.within_margin);
    assert_eq!(
        exact(&[3.0, 4.0], &[6.0; 2]),
        Err(TestError::NotDeterministic {
            side: Side::A,
            first: 3.0,
            other: 4.0
        })
    );
}

#[test]
fn untestable_operations_do_not_count() {
    let good = measured(10, 0.001, 1.0, &mut rng(5, 0));
    let none = input(&[], &[1.0], Design::Blocked);
    let table = [none, good.clone()];
    let all = test_table(&table, &SETTINGS);
    assert_eq!(all[0], Err(TestError::NoBoots(Side::A)));
    assert_eq!(all[1], test_table(&[good], &SETTINGS)[0]);
}

#[test]
fn identical_figures_are_equivalent() {
    let table = [input(&[250.0; 9], &[250.0; 9], Design::Blocked)];
    let comparison = &tested(&table)[0];
    assert_eq!(comparison.verdict, Verdict::Equivalent, "{comparison:?}");
    assert_eq!((comparison.effect, comparison.p), (1.0, Some(1.0)));
    assert_eq!(comparison.method, Method::SignedRanks, "there is no scale");
}

/// Tests after every fourth block until the verdict is settled; returns it with the number of blocks.
fn settle(effect: f64, test: &TableTest, rng: &mut ChaCha8Rng) -> (Verdict, usize) {
    let most_blocks = test.settings().most_blocks;
    let all = measured(most_blocks, 0.03, effect, rng);
    let mut looks = InterimTests::new(test.clone());
    let mut blocks = 8;
    loop {
        let so_far = TestInput {
            a: all.a[..blocks].to_vec(),
            b: all.b[..blocks].to_vec(),
            ..all.clone()
        };
        let is_last = blocks == most_blocks;
        let verdict = match &looks.look(&[so_far], blocks, is_last)[0] {
            Ok(comparison) => comparison.verdict,
            Err(error) => panic!("{error}"),
        };
        if is_last || looks.is_settled() {
            return (verdict, blocks);
        }
        blocks += 4;
    }
}

/// Four looks at a level of 10% each would report a change in about a quarter of all cases.
#[test]
fn interim_looks_do_not_raise_the_error_rate() {
    let settings = Settings {
        alpha: 0.1,
        margin: 0.0,
        most_blocks: 20,
        ..SETTINGS
    };
    let test = TableTest::new(&settings);
    let mut rng = rng(9, 0);
    let false_ones = (0..400)
        .filter(|_| settle(1.0, &test, &mut rng).0 == Verdict::Changed)
        .count();
    // 40 are expected at most; 55 or more have a probability below 1%.
    assert!(false_ones <= 54, "{false_ones} of 400");
    let found: Vec<_> = (0..20).map(|_| settle(1.08, &test, &mut rng)).collect();
    let changed = found.iter().filter(|one| one.0 == Verdict::Changed).count();
    let early = found.iter().filter(|one| one.1 < 20).count();
    assert!(changed >= 19 && early >= 15, "{found:?}");
}

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(other.abs())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn sides_are_exchangeable_and_units_do_not_matter(
        blocks in 2..14_usize,
        effect in 0.9f64..1.1,
        seed in any::<u64>(),
        independent in any::<bool>(),
        unit in 1e-3f64..1e3,
    ) {
        let mut one = measured(blocks, 0.02, effect, &mut rng(seed, 0));
        if independent {
            one.design = Design::Runs;
        }
        let turned = TestInput { a: one.b.clone(), b: one.a.clone(), ..one.clone() };
        let mut scaled = one.clone();
        for boot in scaled.a.iter_mut().chain(&mut scaled.b) {
            boot.batches.iter_mut().for_each(|batch| *batch *= unit);
        }
        let test = TableTest::new(&SETTINGS);
        let table = |input: &TestInput| tested_by(&test, std::slice::from_ref(input)).remove(0);
        let (straight, turned, scaled) = (table(&one), table(&turned), table(&scaled));
        prop_assert_eq!(&straight, &table(&one), "the same seed, the same digits");
        prop_assert_eq!((straight.verdict, straight.p), (turned.verdict, turned.p));
        prop_assert!(close(straight.effect, 1.0 / turned.effect));
        prop_assert!(close(straight.effect, scaled.effect));
        prop_assert!((straight.p.unwrap() - scaled.p.unwrap()).abs() < 0.01);
        if let (Some(one), Some(other)) = (straight.interval, turned.interval) {
            prop_assert!(close(one.low, 1.0 / other.high) && close(one.high, 1.0 / other.low));
        }
    }

    #[test]
    fn verdict_and_decisive_interval_agree(
        blocks in 3..14_usize,
        noise in 0.001f64..0.05,
        seed in any::<u64>(),
    ) {
        let mut rng = rng(seed, 0);
        let table: Vec<_> = [1.0, 1.0, 1.005, 1.03, 1.1, 0.8]
            .iter()
            .map(|effect| measured(blocks, noise, *effect, &mut rng))
            .collect();
        for comparison in tested(&table) {
            let Some(decisive) = comparison.decisive else {
                prop_assert_eq!(comparison.verdict, Verdict::Unsure);
                continue;
            };
            let excludes = decisive.low > 1.0 || decisive.high < 1.0;
            let within = decisive.low > 1.0 / 1.02 && decisive.high < 1.02;
            match comparison.verdict {
                Verdict::Changed => prop_assert!(excludes, "{comparison:?}"),
                Verdict::Equivalent => prop_assert!(within, "{comparison:?}"),
                Verdict::Unsure => prop_assert!(!excludes, "{comparison:?}"),
                Verdict::RunsDiffer | Verdict::RunsAgree => panic!("they are of one run"),
            }
            prop_assert!(decisive.low <= comparison.effect && comparison.effect <= decisive.high);
            prop_assert_eq!(comparison.required.is_some(), comparison.verdict == Verdict::Unsure);
        }
    }
}
