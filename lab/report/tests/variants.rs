//! A run with several sets of settings in each format.

use trapline_abi::Op;
use trapline_model::EnvironmentId;
use trapline_report::{render, Format, Report, Style};

fn with(variant: &str) -> Report {
    Report {
        version: "1".to_owned(),
        overrides: variant.parse().unwrap(),
        skips: vec![(EnvironmentId::KVM, "no KVM".to_owned())],
        operations: Op::PortOut.bit(),
        ..Report::default()
    }
}

fn rendered(variants: &[&str], format: Format) -> String {
    let documents: Vec<_> = variants.iter().map(|it| with(it).document()).collect();
    render(&documents, format).unwrap()
}

#[test]
fn every_format_names_the_settings_of_each_report() {
    let both = ["", "memory=1G"];
    let text = Format::Text(Style::default());
    assert!(!rendered(&both[..1], text).contains("With "));
    assert!(rendered(&both, text).contains("With memory=1024M"));
    assert!(rendered(&both, Format::Markdown).contains("With memory=1024M"));
    let csv = rendered(&both, Format::Csv);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 3, "{csv}");
    assert!(lines[0].ends_with(",failed,variant,level,ratio_level"));
    assert!(lines[2].ends_with(",memory=1024M,,"));
    let junit = rendered(&both, Format::Junit);
    assert!(junit.contains("classname=\"kvm:memory=1024M\""), "{junit}");
    assert!(junit.contains("classname=\"kvm\""), "{junit}");
}

#[test]
fn json_of_several_reports_has_them_under_variants() {
    let json = |variants: &[&str]| -> serde_json::Value {
        serde_json::from_str(&rendered(variants, Format::Json)).unwrap()
    };
    let both = json(&["", "memory=1G"]);
    assert_eq!(both["variants"][1]["variant"], "memory=1024M");
    assert_eq!(both["variants"][0], json(&[""]));
    assert_eq!(json(&[""]).get("variant"), None);
}
