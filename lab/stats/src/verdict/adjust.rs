//! Adjustment of p-values to the number of tests in a table.

/// Returns the focused Benjamini-Hochberg q-values of `p`, in the order of `p`.
///
/// A procedure that rejects first and removes some of the rejections from the report afterwards
/// loosens the level for the rest. Here only tests with `reportable[i]` count as discoveries, while
/// all tests count as tests: the q-value of the reportable test with the `k`-th smallest `p` among
/// the reportable ones is the smallest of `m p / k` over it and all later ones, with `m = p.len()`.
/// Reporting every reportable test with `q <= alpha` keeps the false discovery rate of what is
/// *reported* at `alpha`. Tests that are not reportable have no q-value.
///
/// Sources: Katsevich, Sabatti and Bogomolov 2023, "Filtering the rejection set while preserving
/// false discovery rate control", section 3; with every test reportable it is Benjamini and
/// Hochberg 1995, valid under the positive dependence of operations of the same boots (Benjamini
/// and Yekutieli 2001).
pub fn focused_q_values(p: &[f64], reportable: &[bool]) -> Vec<Option<f64>> {
    let mut order: Vec<usize> = (0..p.len()).filter(|index| reportable[*index]).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut adjusted = vec![None; p.len()];
    let mut least = 1.0_f64;
    for (rank, index) in order.into_iter().enumerate().rev() {
        least = least.min(p[index] * (p.len() as f64 / (rank + 1) as f64));
        adjusted[index] = Some(least);
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    const EXAMPLE: [f64; 15] = [
        0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
        0.5719, 0.6528, 0.7590, 1.0000,
    ];

    /// Benjamini and Hochberg (1995, section 3.2): of 15 tests four are significant at 5%.
    #[test]
    fn with_all_tests_reportable_it_is_benjamini_hochberg() {
        let q = focused_q_values(&EXAMPLE, &[true; 15]);
        let q: Vec<f64> = q.into_iter().flatten().collect();
        assert_eq!(q.iter().filter(|q| **q <= 0.05).count(), 4);
        assert!((q[0] - 0.0015).abs() < 1e-12);
        assert!((q[3] - 0.0095 * 15.0 / 4.0).abs() < 1e-12);
        assert_eq!(q[14], 1.0);
        assert_eq!(focused_q_values(&[], &[]), []);
    }

    /// Without the three smallest, the fourth is the first discovery and has to reach alpha / m.
    #[test]
    fn unreported_rejections_do_not_loosen_the_level() {
        let mut reportable = [true; 15];
        reportable[..3].fill(false);
        let q = focused_q_values(&EXAMPLE, &reportable);
        assert_eq!(q[..3], [None; 3]);
        assert!((q[3].unwrap() - 15.0 * 0.0344 / 5.0).abs() < 1e-12, "{q:?}");
    }

    proptest! {
        #[test]
        fn q_values_keep_the_order_of_p(
            tests in proptest::collection::vec((0.0f64..=1.0, any::<bool>()), 1..30),
        ) {
            let (p, reportable): (Vec<_>, Vec<_>) = tests.into_iter().unzip();
            let q = focused_q_values(&p, &reportable);
            for (one, p_one) in q.iter().zip(&p) {
                prop_assert!(one.is_none_or(|one| one >= *p_one && one <= 1.0));
                for (two, p_two) in q.iter().zip(&p) {
                    let ordered = one.zip(*two).is_none_or(|(one, two)| p_one > p_two || one <= two);
                    prop_assert!(ordered);
                }
            }
            let reported: Vec<bool> = q.iter().map(Option::is_some).collect();
            prop_assert_eq!(reported, reportable);
        }
    }
}
