//! Published figures of the same operations, each with its source and its limits (`assets/references.json`). None is of this project.

use serde::Deserialize;
use std::collections::BTreeSet;
use trapline_model::Operation;

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
    /// The processor, of cycles of KVM.
    #[serde(default)]
    pub processor: Option<String>,
    /// The environment that is most like it.
    #[serde(default)]
    pub here: Option<String>,
}

/// The cards; a test reads them, so they can be read.
pub fn cards() -> Vec<Card> {
    serde_json::from_str(CARDS).unwrap_or_default()
}

/// Returns the processors of which there are cycles of KVM.
pub fn processors() -> Vec<String> {
    let values = cards().into_iter().flat_map(|card| card.values);
    let processors: BTreeSet<String> = values.filter_map(|value| value.processor).collect();
    processors.into_iter().collect()
}

/// Returns published cycles of operations in KVM on a processor.
pub fn cycles(processor: &str) -> Vec<(Operation, f64)> {
    let figures = cards().into_iter().filter_map(|card| {
        let mut values = card.values.iter();
        let is_it = |value: &&Value| value.processor.as_deref() == Some(processor);
        let value = values.find(is_it)?.value;
        Some((Operation::from_path(&card.operation)?, value))
    });
    figures.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_abi::Op;
    use trapline_model::EnvironmentId;

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
    fn published_cycles_are_of_one_processor_each() {
        let processors = processors();
        assert_eq!(
            processors,
            ["Threadripper 1950X", "i5-3570", "i5-7300U", "i7-7920HQ"]
        );
        for processor in &processors {
            let cycles = cycles(processor);
            let operations: BTreeSet<_> = cycles.iter().map(|(op, _)| *op).collect();
            assert_eq!(operations.len(), cycles.len());
        }
        let exits: Vec<_> = cycles("i5-3570").into_iter().map(|(op, _)| op).collect();
        assert_eq!(
            exits,
            [Op::PortOut, Op::MmioRead, Op::Cpuid].map(Operation::from)
        );
        let cards = cards().into_iter().filter(|card| card.unit == "cycles");
        let mut values = cards.flat_map(|card| card.values);
        assert!(values.all(|value| value.processor.is_some() == value.who.starts_with("KVM")));
    }
}
