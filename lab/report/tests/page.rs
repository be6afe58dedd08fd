//! The page of everything there could be: every operation in every environment.

use std::collections::BTreeMap;
use trapline_abi::sweep::Pattern;
use trapline_abi::{Op, OpSet, Stage};
use trapline_model::{EnvironmentId, Launch, Observation, OperationResult, Outcome, Sample};
use trapline_report::{page, plot, Report, Style};
use trapline_stats::aa_test::AaTest;
use trapline_stats::verdict::FalsePositives;

/// Size limit of a page, for each environment and operation.
const MAX_BYTES: usize = 1_400;

/// A number that follows from others, as noise does not.
fn noise(number: u64) -> u64 {
    let mixed = (number ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed >> 56
}

fn operation(op: Op, boot: u64) -> OperationResult {
    let sample = |number: u64| {
        let took = 50_000 + 100 * noise(number * 131 + boot * 17 + op as u64);
        Sample {
            start: number * 1_000_000,
            end: number * 1_000_000 + took,
            count: 100,
            host_ns: None,
            excluded: 0,
        }
    };
    OperationResult {
        op: op.into(),
        outcome: Outcome::Measured {
            clock_cost: 40,
            loop_cost: 2_048,
            samples: (0..60).map(sample).collect(),
            interrupts: vec![],
            trials: Vec::new(),
            check: 7,
            exits: Some(6_000),
            host_cpu_ns: Some(9_000_000),
            idle: None,
            elapsed: None,
        },
    }
}

fn is_possible(environment: EnvironmentId, op: Op) -> bool {
    match op {
        Op::XenHypercall | Op::EventChannel => environment.is_xen(),
        _ => true,
    }
}

fn boot(environment: EnvironmentId, replicate: u32) -> Observation {
    // Exact figures repeat.
    let noise = if environment.clock().is_exact() {
        0
    } else {
        replicate
    };
    Observation {
        config: environment.into(),
        clock: environment.clock(),
        replicate,
        unit_per_tick: 1.0,
        operations: Op::ALL
            .into_iter()
            .filter(|op| is_possible(environment, *op))
            .map(|op| operation(op, noise.into()))
            .collect(),
        launches: vec![Launch {
            timeline: BTreeMap::from([(Stage::GuestMain, 3_000), (Stage::FirstSample, 9_000)]),
            counters: BTreeMap::new(),
        }],
        facts: (0..20)
            .map(|n| (format!("fact-{n}"), "some words about it".repeat(2)))
            .collect(),
        log: String::new(),
        problems: vec![],
        host: String::new(),
    }
}

#[test]
fn a_page_of_everything_stays_small() {
    let environments = EnvironmentId::all();
    let boots = environments.flat_map(|id| (0..10).map(move |replicate| boot(id, replicate)));
    let observations: Vec<Observation> = boots.collect();
    let summary = trapline_stats::summarise(&observations);
    let report = Report {
        summary,
        operations: OpSet::ALL,
        aa_control: Some(AaTest {
            design: trapline_stats::verdict::Design::Blocked,
            config: EnvironmentId::KVM.into(),
            blocks: 10,
            false_positives: FalsePositives {
                tests: 200,
                significant: 3,
                ..FalsePositives::default()
            },
            level: 0.01,
            detectable: vec![(Op::PortOut.into(), 0.021), (Op::Getpid.into(), 0.004)],
        }),
        ..Report::default()
    };
    let run = page::Run::default();
    let text = page::page(&page::Source {
        report: &report,
        observations: &observations,
        profiles: &[],
        run: &run,
    });
    let limit = MAX_BYTES * EnvironmentId::BUILT_IN.len() * Op::ALL.len();
    assert!(text.len() < limit, "{} bytes", text.len());
    let pictures = text.matches("<svg viewBox").count();
    let wall = observations.iter().filter(|seen| !seen.clock.is_exact());
    let drawn: usize = wall
        .filter(|seen| seen.replicate == 0)
        .map(|seen| seen.operations.len())
        .sum();
    assert_eq!(pictures, drawn + Pattern::ALL.len());
    assert!(!text.contains("NaN"));
    for id in [
        "distributions",
        "boot",
        "stream",
        "memory",
        "against",
        "memory-and-disks",
        "aa-control",
    ] {
        let begin = format!("<section id=\"{id}\"");
        assert_eq!(text.matches(&begin).count(), 1, "{id}");
    }
    assert!(
        text.contains("Of 200 comparisons with itself 3 have p"),
        "no chance"
    );
}

#[test]
fn the_same_is_drawn_in_characters_for_any_terminal() {
    let ids = [EnvironmentId::HOST, EnvironmentId::KVM, EnvironmentId::SIM];
    let boots = ids
        .into_iter()
        .flat_map(|id| (0..2).map(move |replicate| boot(id, replicate)));
    let observations: Vec<Observation> = boots.collect();
    let summary = trapline_stats::summarise(&observations);
    let report = Report {
        summary,
        operations: OpSet::ALL,
        ..Report::default()
    };
    for (width, unicode) in [(80, true), (100, false), (44, true)] {
        let style = Style {
            width,
            colour: false,
            unicode,
        };
        let text = plot(&report, &observations, &style);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(
            widest.is_some_and(|widest| widest <= width),
            "{width}:\n{text}"
        );
        assert_eq!(text.is_ascii(), !unicode, "{text}");
        assert!(text.contains("exits/port-out\n"), "{text}");
        assert!(
            text.contains("stream/triad  MB/s, more is better\n"),
            "{text}"
        );
        assert_eq!(
            text.matches("clock").count(),
            2,
            "a part for each clock: {text}"
        );
    }
}

#[test]
fn simulated_machine_is_named_before_the_headline() {
    let mut observed = boot(EnvironmentId::SIM_KVM, 0);
    let facts = [("qemu", "7.2.22"), ("l1-kernel", "package linux_6.1")];
    let facts = facts.map(|(name, value)| (name.to_owned(), value.to_owned()));
    observed.facts.extend(facts);
    let observations = vec![observed];
    let report = Report {
        summary: trapline_stats::summarise(&observations),
        operations: OpSet::ALL,
        ..Report::default()
    };
    let text = page::page(&page::Source {
        report: &report,
        observations: &observations,
        profiles: &[],
        run: &page::Run::default(),
    });
    let machine = text.find("Simulated machine: QEMU 7.2.22 · linux_6.1</p>");
    assert!(machine.is_some() && machine < text.find("<h1>"), "{text}");
}
