//! Many tests at once: which share of those called significant is so by chance.

/// The adjusted probabilities of Benjamini and Hochberg (1995), in the order of `p`: calling
/// all significant whose value is at most some `alpha` keeps the expected share of false ones
/// among them at `alpha`, where tests are independent or, as for operations of the same
/// boots, positively dependent (Benjamini and Yekutieli 2001).
pub fn q_values(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut adjusted = vec![1.0; p.len()];
    let mut least = 1.0_f64;
    for (rank, index) in order.into_iter().enumerate().rev() {
        let share = (rank + 1) as f64 / p.len() as f64;
        least = least.min(p[index] / share);
        adjusted[index] = least;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, proptest};

    /// The example of Benjamini and Hochberg (1995, section 3.2): of 15 tests four are
    /// significant at 5%, where Bonferroni finds three.
    #[test]
    fn the_example_of_the_paper() {
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
            0.5719, 0.6528, 0.7590, 1.0000,
        ];
        let q = q_values(&p);
        assert_eq!(q.iter().filter(|q| **q <= 0.05).count(), 4);
        assert!((q[0] - 0.0015).abs() < 1e-12);
        assert!((q[3] - 0.0095 * 15.0 / 4.0).abs() < 1e-12);
        assert_eq!(q[14], 1.0);
        assert_eq!(q_values(&[]), Vec::<f64>::new());
    }

    proptest! {
        #[test]
        fn they_keep_the_order_and_are_no_smaller(
            p in proptest::collection::vec(0.0f64..=1.0, 1..30),
        ) {
            let q = q_values(&p);
            for (one, p_one) in q.iter().zip(&p) {
                prop_assert!(one >= p_one && *one <= 1.0);
                for (two, p_two) in q.iter().zip(&p) {
                    prop_assert!(p_one > p_two || one <= two);
                }
            }
        }
    }
}
