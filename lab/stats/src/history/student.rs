//! Student's t-test of two samples of equal spread.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// How probable means that differ so much are, in either direction, if the samples are of one
/// distribution. Without any spread it is 0 or 1.
pub fn p_value(one: &[f64], other: &[f64]) -> f64 {
    let freedom = (one.len() + other.len()) as f64 - 2.0;
    let difference = mean(one) - mean(other);
    if one.is_empty() || other.is_empty() || freedom <= 0.0 {
        return 1.0;
    }
    let pooled = (squares(one) + squares(other)) / freedom;
    let error = (pooled * (1.0 / one.len() as f64 + 1.0 / other.len() as f64)).sqrt();
    match StudentsT::new(0.0, 1.0, freedom) {
        Ok(student) if error > 0.0 => 2.0 * student.sf((difference / error).abs()),
        _ if difference == 0.0 => 1.0,
        _ => 0.0,
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn squares(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Student's (1908) own hours of sleep, as two samples: t = -1.8608 with 18 degrees of
    /// freedom, p = 0.0792.
    #[test]
    fn the_hours_of_sleep() {
        let one = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let other = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let p = p_value(&one, &other);
        assert!((p - 0.07919).abs() < 5e-6, "{p}");
    }

    #[test]
    fn without_spread_it_is_certain() {
        assert_eq!(p_value(&[1.0, 1.0], &[1.0, 1.0]), 1.0);
        assert_eq!(p_value(&[1.0, 1.0], &[2.0, 2.0]), 0.0);
        assert_eq!(p_value(&[1.0], &[2.0]), 1.0);
        assert_eq!(p_value(&[], &[2.0, 3.0]), 1.0);
    }
}
