//! Reports of one run: one for each set of settings, most often the usual one alone. What
//! has one report looks as that report does.

pub use crate::bencher::bencher;
pub use crate::junit::junit;

use crate::json::json_of_all;
use crate::{Report, Style};

/// The reports as text for a terminal, one below the other.
pub fn terminal(reports: &[Report], style: &Style) -> String {
    joined(reports, |report| crate::terminal(report, style))
}

/// The reports as Markdown, one below the other.
pub fn markdown(reports: &[Report]) -> String {
    joined(reports, crate::markdown)
}

/// The cells of all reports as CSV, with one header.
pub fn csv(reports: &[Report]) -> String {
    let mut text = String::new();
    for report in reports {
        let one = crate::csv(report);
        let header = one.find('\n').map_or(0, |end| end + 1);
        text.push_str(if text.is_empty() {
            &one
        } else {
            &one[header..]
        });
    }
    text
}

/// The JSON object of the only report, or one that has all of them under `variants`.
pub fn json(reports: &[Report]) -> String {
    match reports {
        [report] => crate::json(report),
        several => json_of_all(several),
    }
}

fn joined(reports: &[Report], form: impl Fn(&Report) -> String) -> String {
    reports.iter().map(form).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variant: &str) -> Report {
        Report {
            version: "1".to_owned(),
            variant: variant.parse().unwrap(),
            skips: vec![(trapline_model::EnvironmentId::Kvm, "no KVM".to_owned())],
            operations: trapline_abi::Op::PortOut.bit(),
            ..Report::default()
        }
    }

    #[test]
    fn every_form_tells_the_settings_of_each_report() {
        let both = [with(""), with("memory=1G")];
        let style = Style::default();
        assert_eq!(
            terminal(&both[..1], &style),
            crate::terminal(&both[0], &style)
        );
        assert!(!terminal(&both[..1], &style).contains("With "));
        assert!(terminal(&both, &style).contains("With memory=1024M"));
        assert!(markdown(&both).contains("With memory=1024M:"));
        let csv = csv(&both);
        assert_eq!(csv.lines().count(), 3, "{csv}");
        assert!(csv
            .lines()
            .next()
            .unwrap()
            .ends_with(",failed,variant,level,ratio_level"));
        assert!(csv.lines().nth(2).unwrap().ends_with(",memory=1024M,,"));
        let told: serde_json::Value = serde_json::from_str(&json(&both)).unwrap();
        assert_eq!(told["variants"][1]["variant"], "memory=1024M");
        assert_eq!(told["variants"][0].get("variant"), None);
        assert_eq!(json(&both[..1]), crate::json(&both[0]));
        let junit = junit(&both).unwrap();
        assert!(junit.contains("classname=\"kvm:memory=1024M\""), "{junit}");
        assert!(junit.contains("classname=\"kvm\""), "{junit}");
    }
}
