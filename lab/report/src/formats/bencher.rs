//! Bencher Metric Format: benchmark -> measure -> value with the ends of its interval. Bencher has its own
//! history, so only new figures are in it.

use serde_json::{json, Map, Value};

/// Quantity of a figure, with Bencher's own names where they exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Nanoseconds.
    Latency,
    /// Megabytes, millions of bytes, a second.
    Throughput,
    /// Instructions.
    Instructions,
    /// Megabytes in a thousand million instructions.
    MegabytesPerGinsn,
}

impl Measure {
    /// Returns the measure of figures in `unit`.
    pub fn of(unit: &str) -> Option<Self> {
        match unit {
            "ns" => Some(Self::Latency),
            "MB/s" => Some(Self::Throughput),
            "insn" => Some(Self::Instructions),
            "MB/Ginsn" => Some(Self::MegabytesPerGinsn),
            _ => None,
        }
    }

    /// Returns Bencher's slug.
    pub const fn slug(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
            Self::Instructions => "instructions",
            Self::MegabytesPerGinsn => "megabytes-per-ginsn",
        }
    }
}

/// A figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// Quantity.
    pub measure: Measure,
    /// Value of the figure.
    pub value: f64,
    /// Ends of the interval, if there is one.
    pub interval: Option<(f64, f64)>,
}

/// Formats figures, by name of their benchmark, as one JSON object. Of equal names the last is kept.
pub fn bencher(figures: impl IntoIterator<Item = (String, Metric)>) -> String {
    let named = figures.into_iter().map(|(name, metric)| {
        let slug = metric.measure.slug();
        (name, json!({ slug: value(&metric) }))
    });
    let object: Map<String, Value> = named.collect();
    format!("{:#}\n", Value::Object(object))
}

fn value(metric: &Metric) -> Value {
    let mut value = json!({ "value": metric.value });
    if let Some((low, high)) = metric.interval {
        value["lower_value"] = json!(low);
        value["upper_value"] = json!(high);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_its_measure_and_the_ends_of_its_interval() {
        let exact = Metric {
            measure: Measure::Instructions,
            value: 3182.25,
            interval: None,
        };
        let rough = Metric {
            measure: Measure::Latency,
            value: 117.5,
            interval: Some((116.0, 119.25)),
        };
        let value = bencher([
            ("sim/exits".to_owned(), exact),
            ("kvm/\"exits".to_owned(), rough),
        ]);
        let value: Value = serde_json::from_str(&value).unwrap();
        let expected = json!({
            "sim/exits": { "instructions": { "value": 3182.25 } },
            "kvm/\"exits": {
                "latency": { "value": 117.5, "lower_value": 116.0, "upper_value": 119.25 }
            },
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn every_unit_has_its_own_measure() {
        let slugs =
            ["ns", "MB/s", "insn", "MB/Ginsn"].map(|unit| Measure::of(unit).unwrap().slug());
        let expected = [
            "latency",
            "throughput",
            "instructions",
            "megabytes-per-ginsn",
        ];
        assert_eq!(slugs, expected);
        assert_eq!(Measure::of("parsec"), None);
    }
}
