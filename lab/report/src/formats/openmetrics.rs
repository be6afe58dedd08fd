//! OpenMetrics text: a family of gauges for each name. It can be pushed to Prometheus, or read by its node exporter from a
//! file.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Start of the name of every family.
const PREFIX: &str = "trapline";

/// One sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Gauge {
    /// Name of its family, without the prefix.
    pub name: &'static str,
    /// Names and values of its labels.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: f64,
}

/// Formats gauges by family, in the order of the first of each. Values that are not finite are left out.
pub fn openmetrics(gauges: &[Gauge]) -> String {
    let mut order: Vec<&str> = Vec::new();
    let mut families: BTreeMap<&str, String> = BTreeMap::new();
    for gauge in gauges.iter().filter(|gauge| gauge.value.is_finite()) {
        let family = families.entry(gauge.name).or_insert_with(|| {
            order.push(gauge.name);
            format!("# TYPE {PREFIX}_{} gauge\n", gauge.name)
        });
        // Writing to a string cannot fail.
        let _ = writeln!(
            family,
            "{PREFIX}_{}{} {}",
            gauge.name,
            set(&gauge.labels),
            gauge.value
        );
    }
    let families = order.iter().map(|name| families[name].as_str());
    families.chain(["# EOF\n"]).collect()
}

fn set(labels: &[(&str, String)]) -> String {
    let pairs = labels
        .iter()
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    let pairs: Vec<String> = pairs.collect();
    if pairs.is_empty() {
        String::new()
    } else {
        format!("{{{}}}", pairs.join(","))
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauge(name: &'static str, labels: &[(&'static str, &str)], value: f64) -> Gauge {
        let labels = labels.iter();
        Gauge {
            name,
            labels: labels
                .map(|(name, value)| (*name, (*value).to_owned()))
                .collect(),
            value,
        }
    }

    #[test]
    fn gauges_of_a_family_stand_together_and_labels_are_escaped() {
        let settings = [("operation", "cpuid"), ("settings", "file=\"a\\b\"\n")];
        let gauges = [
            gauge("estimate", &[("operation", "port-out")], 3264.0),
            gauge("low", &settings, 0.4),
            gauge("estimate", &settings, 0.41),
            gauge("high", &[], f64::INFINITY),
            gauge("boots", &[], 5.0),
        ];
        let expected = r#"# TYPE trapline_estimate gauge
trapline_estimate{operation="port-out"} 3264
trapline_estimate{operation="cpuid",settings="file=\"a\\b\"\n"} 0.41
# TYPE trapline_low gauge
trapline_low{operation="cpuid",settings="file=\"a\\b\"\n"} 0.4
# TYPE trapline_boots gauge
trapline_boots 5
# EOF
"#;
        assert_eq!(openmetrics(&gauges), expected);
    }

    #[test]
    fn nothing_measured_is_an_empty_exposition() {
        assert_eq!(openmetrics(&[]), "# EOF\n");
    }
}
