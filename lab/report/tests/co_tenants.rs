//! Reports of guests beside machines that are populated.

use crate::{formats, made_up};

use formats::{json, terminal};
use trapline_report::{CoTenant, Report, Style};

/// A report of nothing but neighbours.
fn report() -> Report {
    let of_interrupts = made_up::report("99.8%");
    let mut settings = of_interrupts.irq;
    settings.conditions.loads = "create-vm:2048:2m:steps".parse().unwrap();
    let neighbours = of_interrupts.interrupts.into_iter();
    Report {
        co_tenants: neighbours
            .map(|interrupts| CoTenant {
                interrupts,
                settings: settings.clone(),
            })
            .collect(),
        ..Report::default()
    }
}

#[test]
fn row_names_environment_and_load() {
    let text = terminal(&report(), &Style::default());
    assert!(text.contains("Co-tenant, wall clock"), "{text}");
    assert!(text.contains("Co-tenant, instruction clock"), "{text}");
    let row = text
        .lines()
        .find(|line| line.starts_with(" kvm create-vm:2048:2m:steps "));
    let row = row.unwrap_or_else(|| panic!("{text}"));
    // Of 3,000 the first two windows are left out.
    assert!(row.ends_with(" 952"), "{row}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn json_of_neighbours_is_that_of_interrupts() {
    let value: serde_json::Value = serde_json::from_str(&json(&report())).unwrap();
    let all = value["neighbours"].as_array().unwrap();
    assert!(!all.is_empty());
    for one in all {
        assert_eq!(one["load"], "create-vm:2048:2m:steps");
        assert!(one["summary"]["max"].is_number());
    }
    let nothing: serde_json::Value = serde_json::from_str(&json(&Report::default())).unwrap();
    assert!(nothing.get("neighbours").is_none() && nothing.get("populate").is_none());
}
