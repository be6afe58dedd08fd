//! OpenMetrics text: a family of gauges for each numeric column of a table, with its other columns as
//! labels. It can be pushed to Prometheus, or read by its node exporter from a file.

use std::fmt::Write;

/// Start of the name of every family.
const PREFIX: &str = "trapline";

/// Formats `records`, whose fields are named by `header`. A column whose fields are all numbers is a
/// family; one whose fields are all names without spaces is a label; others, such as sentences, are left
/// out. Empty fields have no sample and no label.
pub fn openmetrics(header: &[&str], records: &[Vec<String>]) -> String {
    let fields = |column: usize| {
        let fields = records.iter().filter_map(move |record| record.get(column));
        fields.filter(|field| !field.is_empty())
    };
    let is_used = |column: &usize| fields(*column).next().is_some();
    let columns: Vec<usize> = (0..header.len()).filter(is_used).collect();
    let (numbers, texts): (Vec<usize>, Vec<usize>) = columns
        .into_iter()
        .partition(|column| fields(*column).all(|field| is_number(field)));
    let is_label = |column: &usize| fields(*column).all(|field| !field.contains(' '));
    let labels: Vec<usize> = texts.into_iter().filter(is_label).collect();
    let mut text = String::new();
    for number in numbers {
        let name = format!("{PREFIX}_{}", header[number]);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# TYPE {name} gauge");
        for record in records.iter().filter(|record| !record[number].is_empty()) {
            let set = set_of_labels(header, record, &labels);
            let _ = writeln!(text, "{name}{set} {}", record[number]);
        }
    }
    text.push_str("# EOF\n");
    text
}

fn is_number(field: &str) -> bool {
    field.parse::<f64>().is_ok_and(f64::is_finite)
}

fn set_of_labels(header: &[&str], record: &[String], labels: &[usize]) -> String {
    let present = labels.iter().filter(|label| !record[**label].is_empty());
    let pairs = present.map(|label| format!("{}=\"{}\"", header[*label], escaped(&record[*label])));
    let pairs: Vec<String> = pairs.collect();
    match pairs.is_empty() {
        true => String::new(),
        false => format!("{{{}}}", pairs.join(",")),
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_gauges_and_names_are_labels() {
        let header = ["operation", "settings", "estimate", "low", "skip"];
        let record = |fields: [&str; 5]| fields.map(str::to_owned).to_vec();
        let records = [
            record(["port-out", "", "3264", "", ""]),
            record(["cpuid", "file=\"a\\b\"", "0.41", "0.4", ""]),
            record(["hypercall", "", "", "", "no hypervisor"]),
        ];
        let expected = "\
# TYPE trapline_estimate gauge
trapline_estimate{operation=\"port-out\"} 3264
trapline_estimate{operation=\"cpuid\",settings=\"file=\\\"a\\\\b\\\"\"} 0.41
# TYPE trapline_low gauge
trapline_low{operation=\"cpuid\",settings=\"file=\\\"a\\\\b\\\"\"} 0.4
# EOF
";
        assert_eq!(openmetrics(&header, &records), expected);
    }

    #[test]
    fn nothing_measured_is_an_empty_exposition() {
        assert_eq!(openmetrics(&["estimate"], &[]), "# EOF\n");
    }
}
