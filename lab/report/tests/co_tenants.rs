//! Reports of guests beside machines that are populated.

use crate::{formats, made_up};

use expect_test::expect;
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
    // Of 3,000 windows the first two are left out.
    expect![[r#"
        Trapline

        Co-tenant, wall clock: how late its timer was, every 10ms
         beside                            p50      p99  latest  missed   of
         host create-vm:2048:2m:steps  23.4 µs  26.4 µs  132 µs       1  952
         host create-vm:2048:2m:steps  23.4 µs  26.4 µs  151 µs       0  952
         kvm create-vm:2048:2m:steps   23.4 µs  26.4 µs  132 µs       1  952
         kvm create-vm:2048:2m:steps   23.4 µs  26.4 µs  151 µs       0  952
           the latest is the longest stretch during which the guest's timer could not be
           served, the first two windows left out; the machine is started, populated and
           ended again and again, on the same CPU

        Co-tenant, instruction clock: how late its timer was, every 10ms
         beside                              p50     p99   latest  missed   of
         sim/kvm create-vm:2048:2m:steps  23,393  26,422  132,463       1  952
         sim/kvm create-vm:2048:2m:steps  23,393  26,435  150,963       0  952
           the latest is the longest stretch during which the guest's timer could not be
           served, the first two windows left out; the machine is started, populated and
           ended again and again, on the same CPU
    "#]]
    .assert_eq(&terminal(&report(), &Style::default()));
}

#[test]
fn json_of_neighbours_is_that_of_interrupts() {
    let value: serde_json::Value = serde_json::from_str(&json(&report())).unwrap();
    let all = value["co_tenants"].as_array().unwrap();
    assert!(!all.is_empty());
    for one in all {
        assert_eq!(one["load"], "create-vm:2048:2m:steps");
        assert!(one["summary"]["max"].is_number());
    }
    let nothing: serde_json::Value = serde_json::from_str(&json(&Report::default())).unwrap();
    assert!(nothing.get("co_tenants").is_none() && nothing.get("populate").is_none());
}
