//! A run with several sets of settings in each format.

use expect_test::expect;
use trapline_abi::Op;
use trapline_report::{render, Format, Report, Style};

fn report(configs: &[&str]) -> Report {
    let skip = |config: &&str| (config.parse().unwrap(), "no KVM".to_owned());
    Report {
        version: "1".to_owned(),
        skips: configs.iter().map(skip).collect(),
        operations: Op::PortOut.into(),
        ..Report::default()
    }
}

fn rendered(report: &Report, format: Format) -> String {
    render(&report.document(), format).unwrap()
}

#[test]
fn every_format_names_the_settings_of_each_configuration() {
    let report = report(&["kvm", "kvm:memory=1G", "qemu-kvm"]);
    let text = Format::Text(Style::default());
    let formats = [text, Format::Markdown, Format::Csv, Format::Junit];
    let texts = formats.map(|format| rendered(&report, format)).concat();
    let settings = texts.lines().filter(|line| line.contains("kvm"));
    expect![[r#"
         kvm, qemu-kvm: no KVM
        - kvm, qemu-kvm: no KVM
        kvm,exits,port-out,wall,ns,,,,,,,,,,,,,,,,,no KVM,,,,,,,,,,,,,,,
        kvm,exits,port-out,wall,ns,,,,,,,,,,,,,,,,,no KVM,,,memory=1024M,,,,,,,,,,,,
        qemu-kvm,exits,port-out,wall,ns,,,,,,,,,,,,,,,,,no KVM,,,,,,,,,,,,,,,
            <testsuite name="kvm" tests="1" disabled="1" errors="0" failures="0" time="0.000" skipped="1">
                <testcase name="exits/port-out" classname="kvm" time="0.000">
            <testsuite name="kvm:memory=1024M" tests="1" disabled="1" errors="0" failures="0" time="0.000" skipped="1">
                <testcase name="exits/port-out" classname="kvm:memory=1024M" time="0.000">
            <testsuite name="qemu-kvm" tests="1" disabled="1" errors="0" failures="0" time="0.000" skipped="1">
                <testcase name="exits/port-out" classname="qemu-kvm" time="0.000">"#]].assert_eq(&settings.collect::<Vec<_>>().join("\n"));
}

#[test]
fn settings_of_all_configurations_stand_above_the_tables() {
    let mut report = report(&["kvm:memory=1G"]);
    report.settings = "memory=1G".parse().unwrap();
    let formats = [Format::Text(Style::default()), Format::Markdown];
    let texts = formats.map(|format| rendered(&report, format)).concat();
    let settings = texts
        .lines()
        .filter(|line| line.contains("kvm") || line.contains("With "));
    expect![[r#"
        With memory=1024M
         kvm: no KVM
        With memory=1024M
        - kvm: no KVM"#]]
    .assert_eq(&settings.collect::<Vec<_>>().join("\n"));
}

#[test]
fn json_has_the_settings_of_each_cell() {
    let text = rendered(&report(&["kvm", "kvm:memory=1G"]), Format::Json);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["cells"][0].get("settings"), None);
    assert_eq!(json["cells"][1]["settings"], "memory=1024M");
    assert_eq!(json["environments"]["kvm:memory=1024M"]["skip"], "no KVM");
}
