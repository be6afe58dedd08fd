//! CPU time and energy of the host during boots, from facts that begin with a number.

use crate::order::{median_interval, Interval};
use crate::Sorted;
use std::collections::BTreeMap;
use trapline_model::{Config, Observation, COMPETITOR, ENERGY};

/// A fact in numbers of the boots of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct HostUse {
    /// The configuration.
    pub config: Config,
    /// The name of the fact.
    pub fact: &'static str,
    /// The unit behind the number.
    pub unit: String,
    /// The median over boots.
    pub estimate: f64,
    /// Its interval; `None` for a single boot.
    pub interval: Option<Interval>,
    /// Number of boots with the fact.
    pub boots: usize,
}

/// Returns the facts of each configuration.
pub fn host_use(observations: &[Observation]) -> Vec<HostUse> {
    let mut all: BTreeMap<(Config, &'static str, String), Vec<f64>> = BTreeMap::new();
    for boot in observations {
        for fact in [COMPETITOR, ENERGY] {
            if let Some((number, unit)) = boot.facts.get(fact).and_then(|text| parsed(text)) {
                let key = (boot.config.clone(), fact, unit);
                all.entry(key).or_default().push(number);
            }
        }
    }
    let facts = all
        .into_iter()
        .filter_map(|((config, fact, unit), numbers)| {
            Some(HostUse {
                config,
                fact,
                unit,
                boots: numbers.len(),
                interval: median_interval(&numbers),
                estimate: Sorted::new(numbers)?.median(),
            })
        });
    facts.collect()
}

/// Returns number and unit of `25.0% of one CPU, 250.0 ms` or `12.345 J`.
fn parsed(text: &str) -> Option<(f64, String)> {
    let first = text.split(',').next()?;
    let end = first.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
    let (number, unit) = first.split_at(end);
    Some((number.parse().ok()?, unit.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_model::testing::boot;
    use trapline_model::EnvironmentId;

    #[test]
    fn numbers_of_all_boots_have_a_median_and_an_interval() {
        let of = |replicate, text: &str| {
            let mut boot = boot(EnvironmentId::KVM, replicate, []);
            boot.facts.insert(COMPETITOR.to_owned(), text.to_owned());
            boot
        };
        let boots = [
            of(0, "25.0% of one CPU, 250.0 ms"),
            of(1, "27.0% of one CPU, 290.0 ms"),
            of(2, "12.0% of one CPU, 99.0 ms"),
        ];
        let [one] = host_use(&boots).try_into().unwrap();
        assert_eq!((one.estimate, one.unit.as_str()), (25.0, "% of one CPU"));
        let interval = one.interval.unwrap();
        assert_eq!((interval.low, interval.high, one.boots), (12.0, 27.0, 3));
        assert_eq!(parsed("12.345 J"), Some((12.345, " J".to_owned())));
        assert_eq!(parsed("none"), None);
    }
}
