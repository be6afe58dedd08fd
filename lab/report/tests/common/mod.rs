//! A report whose figures are made up, with one of everything.

use std::collections::BTreeMap;
use trapline_abi::{Op, Stage};
use trapline_model::{Config, EnvironmentId};
use trapline_report::Report;
use trapline_stats::order::Interval;
use trapline_stats::value::{unit, Work};
use trapline_stats::{
    BootTimeline, Cell, Failure, FailureKind, Figure, Flag, Ratio, StageTime, Summary, Value,
};

fn cell(environment: EnvironmentId, op: Op, value: Value) -> Cell {
    let clock = environment.clock();
    Cell {
        config: environment.into(),
        op: op.into(),
        clock,
        unit: unit(op, clock),
        value,
    }
}

/// A figure with an interval of so many percent to either side and a ratio.
fn figure(estimate: f64, percent: f64, ratio: f64) -> Figure {
    // Exits and CPU time are counted for some, as where a kernel does not tell.
    let is_counted = ratio != 1.0;
    let off = estimate * percent / 100.0;
    Figure {
        estimate,
        raw: None,
        layouts: None,
        interval: Some(Interval {
            level: 0.9375,
            low: estimate - off,
            high: estimate + off,
        }),
        min: estimate,
        max: estimate + off,
        p50: estimate,
        p90: Some(estimate + off),
        p99: None,
        samples: 150,
        boots: 5,
        hosts: 1,
        medians: (0..)
            .zip([-1.0, -0.5, 0.0, 0.5, 1.0].map(|step| estimate + step * off))
            .collect(),
        ratio: Some(Ratio {
            estimate: ratio,
            interval: Some(Interval {
                level: 0.9375,
                low: ratio * 0.98,
                high: ratio * 1.02,
            }),
        }),
        exits: is_counted.then_some(1.004),
        host_cpu_ns: is_counted.then_some(estimate * 1.1),
        idle: None,
        components: None,
        flags: vec![],
    }
}

/// A figure of an exact clock with its smallest and its largest batch and a ratio.
fn exact(estimate: f64, (min, max): (f64, f64), ratio: f64) -> Figure {
    Figure {
        interval: None,
        min,
        max,
        p50: min,
        p90: Some(max),
        p99: None,
        samples: 24,
        boots: 2,
        hosts: 1,
        medians: Vec::new(),
        ratio: Some(Ratio {
            estimate: ratio,
            interval: None,
        }),
        ..figure(estimate, 0.0, ratio)
    }
}

fn flagged(mut figure: Figure, flag: Flag) -> Value {
    figure.flags.push(flag);
    Value::Measured(Box::new(figure))
}

fn plain(figure: Figure) -> Value {
    Value::Measured(Box::new(figure))
}

fn skip(reason: &str) -> Value {
    Value::Skip(reason.into())
}

fn failed(kind: FailureKind, reason: &str) -> Value {
    Value::Failed(Failure {
        kind,
        reason: reason.into(),
    })
}

const NO_PORTS: &str = "a process has no ports: the kernel would end it";

#[expect(clippy::too_many_lines, reason = "a table of cells")]
fn wall_cells() -> Vec<Cell> {
    let smaller = Flag::OtherSize {
        here: Work::Pages(4_096),
        bare: Work::Pages(65_536),
    };
    let fewer = Flag::OtherSize {
        here: Work::Doubles(200_000),
        bare: Work::Doubles(14_000_000),
    };
    let clocks = Flag::ClocksDisagree {
        share: 0.034,
        boots: 2,
    };
    let lost = Flag::BootsLost {
        boots: 1,
        of: 6,
        reason: "QEMU was killed by signal 9".into(),
    };
    vec![
        cell(
            EnvironmentId::HOST,
            Op::Getpid,
            plain(figure(118.6, 2.0, 1.0)),
        ),
        cell(
            EnvironmentId::KVM,
            Op::Getpid,
            flagged(figure(0.4, 9.0, 1.0), Flag::BelowResolution(0.41)),
        ),
        cell(
            EnvironmentId::QEMU_KVM,
            Op::Getpid,
            plain(figure(1.39, 0.4, 0.0117)),
        ),
        cell(
            EnvironmentId::QEMU_TCG,
            Op::Getpid,
            flagged(figure(12.2, 14.0, 0.103), clocks),
        ),
        cell(
            EnvironmentId::HOST,
            Op::Yield,
            plain(figure(2_503.0, 3.0, 1.0)),
        ),
        cell(
            EnvironmentId::KVM,
            Op::Yield,
            plain(figure(16.0, 1.0, 0.0064)),
        ),
        cell(
            EnvironmentId::QEMU_KVM,
            Op::Yield,
            flagged(figure(16.2, 1.0, 0.0065), lost),
        ),
        cell(
            EnvironmentId::QEMU_TCG,
            Op::Yield,
            failed(FailureKind::Broken, "a yield did not switch"),
        ),
        cell(
            EnvironmentId::HOST,
            Op::FirstTouch4k,
            plain(figure(250.0, 5.0, 1.0)),
        ),
        cell(
            EnvironmentId::KVM,
            Op::FirstTouch4k,
            plain(figure(1_204.0, 12.0, 4.82)),
        ),
        cell(
            EnvironmentId::QEMU_TCG,
            Op::FirstTouch4k,
            flagged(figure(3_368.0, 25.0, 13.5), smaller),
        ),
        cell(
            EnvironmentId::HOST,
            Op::Triad,
            plain(figure(12_345.0, 4.0, 1.0)),
        ),
        cell(
            EnvironmentId::KVM,
            Op::Triad,
            plain(figure(12_201.0, 4.0, 0.988)),
        ),
        cell(
            EnvironmentId::QEMU_TCG,
            Op::Triad,
            flagged(figure(897.0, 1.0, 0.0727), fewer),
        ),
        cell(EnvironmentId::HOST, Op::PortOut, skip(NO_PORTS)),
        cell(
            EnvironmentId::KVM,
            Op::PortOut,
            plain(figure(24_061.0, 3.0, 1.0)),
        ),
        cell(
            EnvironmentId::QEMU_KVM,
            Op::PortOut,
            plain(figure(27_900.0, 6.0, 1.0)),
        ),
        cell(EnvironmentId::HOST, Op::PortIn, skip(NO_PORTS)),
        cell(
            EnvironmentId::HOST,
            Op::BootMain,
            plain(figure(912_000.0, 7.0, 1.0)),
        ),
        cell(
            EnvironmentId::KVM,
            Op::BootMain,
            plain(figure(1_310_000.0, 8.0, 1.44)),
        ),
        cell(
            EnvironmentId::QEMU_KVM,
            Op::BootMain,
            plain(figure(54_200_000.0, 11.0, 59.4)),
        ),
    ]
}

fn insn_cells() -> Vec<Cell> {
    vec![
        cell(
            EnvironmentId::SIM,
            Op::Getpid,
            plain(exact(6.0, (6.0, 6.0), 1.0)),
        ),
        cell(
            EnvironmentId::SIM_KVM,
            Op::Getpid,
            plain(exact(6.0, (6.0, 6.0), 1.0)),
        ),
        cell(
            EnvironmentId::SIM_QEMU_KVM,
            Op::Getpid,
            plain(exact(6.0, (6.0, 6.0), 1.0)),
        ),
        cell(
            EnvironmentId::SIM,
            Op::PortOut,
            plain(exact(3.0, (3.0, 3.0), 1.0)),
        ),
        cell(
            EnvironmentId::SIM_KVM,
            Op::PortOut,
            plain(exact(3_123.2, (3_123.2, 3_123.2), 1_041.1)),
        ),
        cell(
            EnvironmentId::SIM_QEMU_KVM,
            Op::PortOut,
            plain(exact(5_587.4, (5_204.0, 8_117.5), 1_862.5)),
        ),
        cell(
            EnvironmentId::SIM_QEMU_KVM,
            Op::TimerWake,
            failed(
                FailureKind::NotDeterministic,
                "not deterministic: boots 0 and 1 differ in 1 of 12 batches, first in batch 3: \
                 30 insn for 1 and 31 insn for 1",
            ),
        ),
        cell(
            EnvironmentId::SIM_KVM,
            Op::BootMain,
            plain(exact(1_702_311.0, (1_702_311.0, 1_702_311.0), 1.0)),
        ),
        cell(
            EnvironmentId::SIM_QEMU_KVM,
            Op::BootMain,
            plain(exact(134_123_456.0, (134_123_456.0, 134_123_456.0), 1.0)),
        ),
    ]
}

fn vmx_cells() -> Vec<Cell> {
    vec![
        cell(
            EnvironmentId::SIM_VMX,
            Op::PortOut,
            plain(exact(3.0, (3.0, 3.0), 1.0)),
        ),
        cell(
            EnvironmentId::SIM_VMX_KVM,
            Op::PortOut,
            plain(exact(7_573.0, (7_573.0, 7_573.0), 2_524.3)),
        ),
        cell(
            EnvironmentId::SIM_VMX,
            Op::Getpid,
            plain(exact(6.0, (6.0, 6.0), 1.0)),
        ),
    ]
}

fn timeline(environment: EnvironmentId, stages: &[(Stage, f64)], gaps: f64) -> BootTimeline {
    BootTimeline {
        config: environment.into(),
        clock: environment.clock(),
        launches: 10,
        stages: stages
            .iter()
            .scan(0.0, |before, (stage, at)| {
                let step = *at - *before;
                *before = *at;
                Some(StageTime {
                    stage: *stage,
                    reached: *at,
                    min: *at,
                    step,
                    step_interval: (!environment.clock().is_exact()).then_some(Interval {
                        level: 0.9785,
                        low: step * 0.9,
                        high: step * 1.2,
                    }),
                })
            })
            .collect(),
        total: stages.last().map_or(0.0, |(_, at)| *at),
        unexplained: gaps,
        disordered: 0,
        own_memory: (environment == EnvironmentId::KVM).then_some(1_474_560),
    }
}

fn timelines() -> Vec<BootTimeline> {
    use Stage::{GuestEntry, GuestMain, Reaped, VmCreated, VmmEntry, VmmMain};
    let kvm = [
        (VmmMain, 412_000.0),
        (VmCreated, 1_100_000.0),
        (VmmEntry, 1_190_000.0),
        (GuestEntry, 1_250_000.0),
        (GuestMain, 1_310_000.0),
        (Reaped, 1_800_000.0),
    ];
    let qemu = [
        (GuestEntry, 53_900_000.0),
        (GuestMain, 54_200_000.0),
        (Reaped, 61e6),
    ];
    let exact = [(GuestEntry, 134_100_000.0), (GuestMain, 134_123_456.0)];
    let mut disordered = timeline(EnvironmentId::SIM_QEMU_KVM, &exact, 134_100_000.0);
    disordered.disordered = 1;
    vec![
        timeline(EnvironmentId::KVM, &kvm, 490_000.0),
        timeline(EnvironmentId::QEMU_KVM, &qemu, 60_700_000.0),
        disordered,
    ]
}

fn problems() -> BTreeMap<(Config, String), usize> {
    let value = "a damaged frame of 12 bytes\u{1b}[31m was skipped";
    let disagreements = (0..6).map(|number| {
        (
            (
                EnvironmentId::QEMU_TCG.into(),
                format!("clocks disagree, {number}"),
            ),
            1,
        )
    });
    let mut problems: BTreeMap<_, _> = disagreements.collect();
    problems.insert((EnvironmentId::KVM.into(), value.to_owned()), 3);
    problems
}

/// The report.
pub fn report() -> Report {
    let mut cells = wall_cells();
    cells.extend(insn_cells());
    cells.extend(vmx_cells());
    let fact = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    Report {
        hosts: Vec::new(),
        allowed_losses: 0,
        unfinished: None,
        settings: Default::default(),
        aa_control: None,
        tables: Vec::new(),
        interrupts: vec![],
        co_tenants: vec![],
        irq: Default::default(),
        requests: Vec::new(),
        builds: Default::default(),
        packets: Default::default(),
        long: Vec::new(),
        seed: Some(7),
        version: "0.1.0".into(),
        facts: BTreeMap::from([
            fact("cpu", "AMD EPYC 9R14"),
            fact("kernel", "Linux 6.18.0"),
            fact("kvm", "ring 0 emulated"),
            fact("governor", "performance"),
        ]),
        summary: Summary {
            cells,
            timelines: timelines(),
            host_use: Vec::new(),
            facts: BTreeMap::from([
                (
                    EnvironmentId::KVM.into(),
                    BTreeMap::from([fact("ring", "3"), fact("qemu", "9.9")]),
                ),
                (
                    EnvironmentId::SIM.into(),
                    BTreeMap::from([fact("qemu", "7.2.22")]),
                ),
                (
                    EnvironmentId::SIM_KVM.into(),
                    BTreeMap::from([
                        fact("qemu", "7.2.22"),
                        fact(
                            "l1-kernel",
                            "package linux-image-6.1.0-56-cloud-amd64_6.1.192-2",
                        ),
                    ]),
                ),
            ]),
            problems: problems(),
        },
        skips: vec![(
            EnvironmentId::SIM_LINUX.into(),
            "no Linux kernel for the simulated machine: `apt-get download linux-image-amd64` \
             fetches one, or name yours with --kernel FILE --modules DIR"
                .into(),
        )],
        operations: Op::Getpid | Op::PortOut | Op::BootMain,
    }
}
