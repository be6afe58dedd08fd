//! Published figures of the same operations, each with its source and its limits (`assets/references.json`). None is of this project.

use serde::Deserialize;
use trapline_model::{EnvironmentId, Operation};

const CARDS: &str = include_str!("../assets/references.json");

/// Figures of one operation from one source.
#[derive(Clone, Debug, Deserialize)]
pub struct Card {
    /// Name of the operation in `trapline list`.
    pub operation: String,
    /// Unit of the values.
    pub unit: String,
    /// Publication, machine and settings.
    pub source: String,
    /// Limits of the comparison with a run.
    pub caveat: String,
    /// Index of the value of which the others are multiples.
    pub base: usize,
    /// The figures.
    pub values: Vec<Value>,
}

/// One published figure.
#[derive(Clone, Debug, Deserialize)]
pub struct Value {
    /// Hypervisor or machine.
    pub who: String,
    /// The figure.
    pub value: f64,
    /// The environment that is most like it.
    #[serde(default)]
    pub here: Option<String>,
}

/// The cards; a test reads them, so they can be read.
pub fn cards() -> Vec<Card> {
    serde_json::from_str(CARDS).unwrap_or_default()
}

/// Returns published cycles of operations in `environment` on hardware, one for each
/// operation. All sources are of processors of one generation (Kaby Lake), so that their ranks
/// may be compared.
pub fn cycles(environment: EnvironmentId) -> Vec<(Operation, f64)> {
    let cards = cards().into_iter().filter(|card| card.unit == "cycles");
    let figures = cards.filter_map(|card| {
        let mut values = card.values.iter();
        let is_it = |value: &&Value| value.here.as_deref() == Some(environment.name());
        Some((
            Operation::from_path(&card.operation)?,
            values.find(is_it)?.value,
        ))
    });
    figures.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use trapline_abi::Op;

    #[test]
    fn every_card_can_be_shown_and_names_its_source() {
        let cards: Vec<Card> = serde_json::from_str(CARDS).unwrap();
        assert!(cards.len() > 10);
        for card in &cards {
            assert!(Op::from_path(&card.operation).is_some(), "{card:?}");
            let texts = [&card.unit, &card.source, &card.caveat];
            assert!(texts.iter().all(|text| !text.is_empty()), "{card:?}");
            assert!(!card.source.contains("this project"), "{card:?}");
            assert!(card.base < card.values.len(), "{card:?}");
            for value in &card.values {
                let here = value.here.as_deref();
                assert!(here.is_none_or(|name| EnvironmentId::from_name(name).is_some()));
            }
        }
    }

    #[test]
    fn published_cycles_are_of_different_operations() {
        let cycles = cycles(EnvironmentId::KVM);
        let operations: BTreeSet<_> = cycles.iter().map(|(op, _)| *op).collect();
        assert_eq!(operations.len(), cycles.len());
        assert!(operations.contains(&Op::Cpuid.into()) && operations.contains(&Op::Getpid.into()));
    }
}
