use super::*;
use crate::document::{render, Format};
use crate::Style;
use expect_test::expect;
use std::collections::BTreeMap;
use trapline_abi::Op;
use trapline_model::{EnvironmentId, Observation, OperationResult, Outcome, Sample};
use trapline_stats::history::{screen, RunTime, SeriesBuilder, SeriesSettings, Settings};

fn boot(environment: EnvironmentId, replicate: u32, ticks: u64) -> Observation {
    let sample = Sample {
        start: 0,
        end: ticks,
        count: 1,
        host_ns: None,
        excluded: 0,
    };
    Observation {
        config: environment.into(),
        clock: environment.clock(),
        replicate,
        unit_per_tick: 1.0,
        operations: vec![OperationResult {
            op: Op::PortOut.into(),
            outcome: Outcome::Measured {
                clock_cost: 0,
                loop_cost: 0,
                samples: vec![sample],
                interrupts: Vec::new(),
                trials: Vec::new(),
                check: 1,
                exits: None,
                host_cpu_ns: None,
                idle: None,
                elapsed: None,
            },
        }],
        launches: Vec::new(),
        facts: BTreeMap::new(),
        log: String::new(),
        problems: Vec::new(),
        host: String::new(),
    }
}

/// Twelve runs: `kvm` shifts at run 7 with the kernel, `sim/kvm` by a digit at run 3, and its
/// boots disagree in run 5.
fn screening() -> Screening {
    let mut past = SeriesBuilder::default();
    for run in 1..=12_u32 {
        let later = run >= 7;
        let kernel = if later { "6.2" } else { "6.1" };
        let noise = u64::from(run * 7 % 5);
        let exact = if run >= 3 { 101 } else { 100 };
        let seen = [
            boot(
                EnvironmentId::KVM,
                0,
                if later { 1_100 } else { 1_000 } + noise,
            ),
            boot(EnvironmentId::SIM_KVM, 0, exact),
            boot(EnvironmentId::SIM_KVM, 1, exact + u64::from(run == 5)),
        ];
        let moment = RunTime {
            run: run.into(),
            at: 0,
        };
        let facts = [("kernel".to_owned(), kernel.to_owned())].into();
        let settings = SeriesSettings {
            general: "preset quick".to_owned(),
            ..SeriesSettings::default()
        };
        past.add(&moment, &facts, &settings, &seen);
    }
    screen(past.series(), &Settings::default())
}

fn terminal(screening: &Screening) -> String {
    let document = document(screening, &|_| "today".to_owned());
    render(&document, Format::Text(plain())).unwrap()
}

fn plain() -> Style {
    Style {
        colour: false,
        unicode: false,
        ..Style::default()
    }
}

#[test]
fn shifts_have_a_corrected_p_and_boots_that_disagree_no_figure() {
    expect![[r#"
        exits/port-out in kvm, preset quick, 12 runs
         run 7, today: 1.00 us -> 1.10 us (+10.0%, corrected p 1.0e-5)
           kernel: 6.1 -> 6.2

        exits/port-out in sim/kvm, preset quick, 12 runs
         run 3, today: 100 -> 101 (+1.0%)
         run 5, today: no figure: not deterministic: boots 0 and 1 differ in 1 of 1
           batches, first in batch 0: 101 insn for 1 and 102 insn for 1

        Wall clock: 1 of 1 series shifted. False discovery rate 5% over the 1 series of
        the store that were tested; p is corrected for these. Exact clocks: 1 of 1
        series changed; every changed digit is reported. For a verdict use 'trapline
        compare' or 'trapline check'.
    "#]]
    .assert_eq(&terminal(&screening()));
}

#[test]
fn boots_that_disagree_are_reported_in_place_of_a_figure() {
    let document = document(&screening(), &|_| String::new());
    let json = render(&document, Format::Json).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let series = json["series"].as_array().unwrap();
    let exact = series.iter().find(|one| one["clock"] == "insn").unwrap();
    let entry = &exact["figures"][4];
    assert!(
        entry["figure"].is_null() && entry["problem"].is_string(),
        "{entry}"
    );
    assert_eq!(exact["shifts"].as_array().map(Vec::len), Some(1), "{exact}");
    assert_eq!((&json["level"], &json["tested"]), (&0.05.into(), &1.into()));
}

#[test]
fn store_without_series_is_reported() {
    expect![[r#"
        No series. For a verdict use 'trapline compare' or 'trapline check'.
    "#]]
    .assert_eq(&terminal(&Screening::default()));
}

#[test]
fn page_plots_every_series_with_its_shifts() {
    let screening = screening();
    let document = document(&screening, &|at| at.to_string());
    let page = crate::page::trend(&screening, &document);
    assert_eq!(
        page.matches("<svg viewBox").count(),
        2,
        "one for each clock"
    );
    // `sim/kvm` has no figure in run 5.
    assert_eq!(page.matches("<circle ").count(), 12 + 11);
    for shift in ["+1.0%</text>", "+10."] {
        assert!(page.contains(shift), "{shift} is not in\n{page}");
    }
}
