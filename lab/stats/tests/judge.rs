//! Verdicts of whole tables, as a caller sees them.

use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest, ProptestConfig};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use trapline_model::Clock;
use trapline_stats::judge::{
    judge, BootValues, Comparison, Design, Judge, Method, Outlook, Question, Settings, Side,
    Unjudged, UntilSure, Verdict,
};
use trapline_stats::spread::chance;

const SETTINGS: Settings = Settings {
    alpha: 0.01,
    equivalence_alpha: 0.05,
    margin: 0.02,
    most_blocks: 200,
    seed: 7,
};

/// One boot in each block, with these figures.
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

fn question(a: &[f64], b: &[f64], design: Design) -> Question {
    Question {
        clock: Clock::Wall,
        design,
        a: boots(a),
        b: boots(b),
    }
}

/// About normal: twelve uniform numbers.
fn normal(nature: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| nature.random::<f64>()).sum::<f64>() - 6.0
}

/// Boots of 1,000 ns with noise, in blocks that drift by 10%; B costs `effect` times as much.
fn measured(blocks: usize, noise: f64, effect: f64, nature: &mut ChaCha8Rng) -> Question {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..blocks {
        let base = 1000.0 * (0.1 * normal(nature)).exp();
        a.push(base * (noise * normal(nature)).exp());
        b.push(base * effect * (noise * normal(nature)).exp());
    }
    question(&a, &b, Design::Blocks)
}

fn judged(table: &[Question]) -> Vec<Comparison> {
    judged_by(&Judge::new(&SETTINGS), table)
}

fn judged_by(judge: &Judge, table: &[Question]) -> Vec<Comparison> {
    let all = judge.judge(table);
    all.into_iter()
        .map(|one| one.expect("it is judged"))
        .collect()
}

#[test]
fn a_planted_change_is_found_among_many_that_did_not_change() {
    let mut nature = chance(3, 0);
    let table: Vec<_> = (0..30)
        .map(|index| {
            let effect = if index == 11 { 1.05 } else { 1.0 };
            measured(12, 0.006, effect, &mut nature)
        })
        .collect();
    for (index, comparison) in judged(&table).iter().enumerate() {
        let expected = match index {
            11 => Verdict::Changed,
            _ => Verdict::Equivalent,
        };
        assert_eq!(comparison.verdict, expected, "{index}: {comparison:?}");
        assert_eq!(comparison.method, Method::BlockBootstrap);
        assert_eq!((comparison.blocks, comparison.boots), (12, (12, 12)));
        assert_eq!(comparison.outlook, None);
    }
    let changed = &judged(&table)[11];
    let decisive = changed.decisive.unwrap();
    assert!(decisive.low > 1.0 && decisive.low < 1.05 && decisive.high > 1.05);
    assert!((decisive.level - (1.0 - 0.01 / 30.0)).abs() < 1e-12);
    let shown = changed.interval.unwrap();
    assert!(decisive.low < shown.low && shown.high < decisive.high && shown.level == 0.95);
}

#[test]
fn a_certain_difference_within_the_margin_does_not_matter() {
    let mut nature = chance(4, 0);
    let table = [measured(40, 0.002, 1.01, &mut nature)];
    let [comparison] = &judged(&table)[..] else {
        panic!("one");
    };
    assert_eq!(comparison.verdict, Verdict::Equivalent);
    assert!(comparison.p.unwrap() < 0.001, "{comparison:?}");
    assert_eq!(comparison.q, None, "never reported as changed");
    let decisive = comparison.decisive.unwrap();
    assert!(decisive.low > 1.0 && decisive.high < 1.02, "{decisive:?}");
    assert!((decisive.level - 0.9).abs() < 1e-12, "two one-sided tests");
}

/// Three of 20 boots are 65% slower: the trimmed mean does not notice.
#[test]
fn a_tail_prevents_equivalence() {
    let mut nature = chance(6, 0);
    let mut one = measured(20, 0.002, 1.0, &mut nature);
    let same = judged(std::slice::from_ref(&one)).remove(0);
    assert_eq!(same.verdict, Verdict::Equivalent);
    for boot in &mut one.b[4..7] {
        boot.batches.iter_mut().for_each(|batch| *batch *= 1.65);
    }
    let comparison = judged(&[one]).remove(0);
    assert_eq!(comparison.verdict, Verdict::Unsure, "{comparison:?}");
    let tail = comparison.tail.unwrap();
    assert_eq!(tail.blocks, 3);
    assert!((tail.farthest - 1.65).abs() < 0.02, "{tail:?}");
    assert!((comparison.effect - 1.0).abs() < 0.01);
}

/// Of five boots a side the rank sum test alone calls 5% of such tables changed at 1%.
#[test]
fn unequal_spread_of_few_boots_apart_is_no_change() {
    let mut nature = chance(8, 0);
    let judge = Judge::new(&SETTINGS);
    let false_ones = (0..1000).filter(|_| {
        let mut side = |spread: f64| -> Vec<f64> {
            let figures = (0..5).map(|_| 1000.0 * (spread * normal(&mut nature)).exp());
            figures.collect()
        };
        let (a, b) = (side(0.001), side(0.05));
        let one = judged_by(&judge, &[question(&a, &b, Design::Apart)]).remove(0);
        one.p.is_some_and(|p| p <= 0.01)
    });
    // 10 are expected at most; more than 20 have a probability below 0.2%.
    assert!(false_ones.count() <= 20);
}

#[test]
fn few_blocks_are_told_how_many_are_needed() {
    let table = [question(
        &[100.0, 101.0, 99.0],
        &[150.0, 149.0, 152.0],
        Design::Blocks,
    )];
    let comparison = &judged(&table)[0];
    assert_eq!(comparison.verdict, Verdict::Unsure);
    assert_eq!(comparison.method, Method::SignedRanks);
    assert_eq!(comparison.p, Some(0.25), "two of eight patterns of signs");
    assert_eq!(comparison.outlook, Some(Outlook::TooFewBoots { needed: 8 }));
    assert_eq!((comparison.interval, comparison.decisive), (None, None));
    assert!((comparison.effect - 1.5).abs() < 0.02);
}

#[test]
fn runs_apart_are_compared_by_boots() {
    let table = [
        question(
            &[100.0, 101.0, 99.0, 100.5, 99.5],
            &[110.0, 111.0, 109.0, 110.5, 109.5, 110.2],
            Design::Apart,
        ),
        question(
            &[100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 100.1, 99.8],
            &[
                110.0, 111.0, 109.0, 110.5, 109.5, 110.2, 110.1, 109.9, 110.3,
            ],
            Design::Apart,
        ),
    ];
    let [few, many] = &judged(&table)[..] else {
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

fn exact(a: &[f64], b: &[f64]) -> Result<Comparison, Unjudged> {
    let question = Question {
        clock: Clock::Insn,
        ..question(a, b, Design::Apart)
    };
    judge(&[question], &SETTINGS).remove(0)
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
        Err(Unjudged::NotDeterministic {
            side: Side::A,
            first: 3.0,
            other: 4.0
        })
    );
}

#[test]
fn what_cannot_be_judged_takes_no_part() {
    let good = measured(10, 0.001, 1.0, &mut chance(5, 0));
    let none = question(&[], &[1.0], Design::Blocks);
    let table = [none, good.clone()];
    let all = judge(&table, &SETTINGS);
    assert_eq!(all[0], Err(Unjudged::NoBoots(Side::A)));
    assert_eq!(all[1], judge(&[good], &SETTINGS)[0]);
}

#[test]
fn identical_figures_are_equivalent() {
    let table = [question(&[250.0; 9], &[250.0; 9], Design::Blocks)];
    let comparison = &judged(&table)[0];
    assert_eq!(comparison.verdict, Verdict::Equivalent, "{comparison:?}");
    assert_eq!((comparison.effect, comparison.p), (1.0, Some(1.0)));
    assert_eq!(comparison.method, Method::SignedRanks, "there is no scale");
}

/// Boots of nothing but noise, and of a change of 5%, judged after every fourth block.
fn until_sure(effect: f64, judge: &Judge, nature: &mut ChaCha8Rng) -> (Verdict, usize) {
    let most_blocks = judge.settings().most_blocks;
    let all = measured(most_blocks, 0.03, effect, nature);
    let mut looks = UntilSure::new(judge.clone());
    let mut blocks = 8;
    loop {
        let so_far = Question {
            a: all.a[..blocks].to_vec(),
            b: all.b[..blocks].to_vec(),
            ..all.clone()
        };
        let is_last = blocks == most_blocks;
        let verdict = match &looks.look(&[so_far], blocks, is_last)[0] {
            Ok(comparison) => comparison.verdict,
            Err(error) => panic!("{error}"),
        };
        if is_last || looks.is_sure() {
            return (verdict, blocks);
        }
        blocks += 4;
    }
}

/// Looked at four times, each time at 10%, about a quarter of all would be called changed.
#[test]
fn looking_often_does_not_raise_the_error_rate() {
    let settings = Settings {
        alpha: 0.1,
        margin: 0.0,
        most_blocks: 20,
        ..SETTINGS
    };
    let judge = Judge::new(&settings);
    let mut nature = chance(9, 0);
    let false_ones = (0..400)
        .filter(|_| until_sure(1.0, &judge, &mut nature).0 == Verdict::Changed)
        .count();
    // 40 are expected at most; 55 or more have a probability below 1%.
    assert!(false_ones <= 54, "{false_ones} of 400");
    let found: Vec<_> = (0..20)
        .map(|_| until_sure(1.08, &judge, &mut nature))
        .collect();
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
    fn neither_side_is_special_and_units_do_not_matter(
        blocks in 2..14_usize,
        effect in 0.9f64..1.1,
        seed in any::<u64>(),
        apart in any::<bool>(),
        unit in 1e-3f64..1e3,
    ) {
        let mut one = measured(blocks, 0.02, effect, &mut chance(seed, 0));
        if apart {
            one.design = Design::Apart;
        }
        let turned = Question { a: one.b.clone(), b: one.a.clone(), ..one.clone() };
        let mut scaled = one.clone();
        for boot in scaled.a.iter_mut().chain(&mut scaled.b) {
            boot.batches.iter_mut().for_each(|batch| *batch *= unit);
        }
        let judge = Judge::new(&SETTINGS);
        let table = |question: &Question| judged_by(&judge, std::slice::from_ref(question)).remove(0);
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
    fn verdict_and_interval_never_contradict_each_other(
        blocks in 3..14_usize,
        noise in 0.001f64..0.05,
        seed in any::<u64>(),
    ) {
        let mut nature = chance(seed, 0);
        let table: Vec<_> = [1.0, 1.0, 1.005, 1.03, 1.1, 0.8]
            .iter()
            .map(|effect| measured(blocks, noise, *effect, &mut nature))
            .collect();
        for comparison in judged(&table) {
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
            }
            prop_assert!(decisive.low <= comparison.effect && comparison.effect <= decisive.high);
            prop_assert_eq!(comparison.outlook.is_some(), comparison.verdict == Verdict::Unsure);
        }
    }
}
