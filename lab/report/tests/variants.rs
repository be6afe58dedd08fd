//! A run with several sets of settings in each format.

use expect_test::expect;
use trapline_abi::Op;
use trapline_model::EnvironmentId;
use trapline_report::{render, Format, Report, Style};

fn with(variant: &str) -> Report {
    Report {
        version: "1".to_owned(),
        overrides: variant.parse().unwrap(),
        skips: vec![(EnvironmentId::KVM, "no KVM".to_owned())],
        operations: Op::PortOut.into(),
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
    let formats = [text, Format::Markdown, Format::Csv, Format::Junit];
    let texts = formats.map(|format| rendered(&both, format)).concat();
    let settings = texts.lines().filter(|line| line.contains("memory="));
    expect![[r#"
        With memory=1024M
        With memory=1024M
        kvm,exits,port-out,wall,ns,,,,,,,,,,,,,,,,,no KVM,,,memory=1024M,,,,
            <testsuite name="kvm:memory=1024M" tests="1" disabled="1" errors="0" failures="0" time="0.000" skipped="1">
                <testcase name="exits/port-out" classname="kvm:memory=1024M" time="0.000">"#]].assert_eq(&settings.collect::<Vec<_>>().join("\n"));
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
