//! Summaries of synthetic observations with known figures.

use expect_test::expect;
use std::collections::BTreeMap;
use trapline_abi::{CpuState, Interrupt, Op};
use trapline_model::observed::IdleWork;
use trapline_model::testing::{boot, measured};
use trapline_model::{EnvironmentId, Observation, Outcome, Sample};
use trapline_stats::{
    summarise, value::Work, Cell, FailureKind, Figure, Flag, Idle, Summary, Value,
};

const HOST: EnvironmentId = EnvironmentId::HOST;
const KVM: EnvironmentId = EnvironmentId::KVM;
const QEMU_KVM: EnvironmentId = EnvironmentId::QEMU_KVM;
const QEMU_TCG: EnvironmentId = EnvironmentId::QEMU_TCG;
const SIM: EnvironmentId = EnvironmentId::SIM;
const SIM_KVM: EnvironmentId = EnvironmentId::SIM_KVM;
const SIM_LINUX: EnvironmentId = EnvironmentId::SIM_LINUX;

fn batches(ticks: &[u64], count: u64) -> Vec<Sample> {
    let mut batches = trapline_model::testing::batches(ticks, count);
    for batch in &mut batches {
        batch.start += 1 << 60;
        batch.end += 1 << 60;
    }
    batches
}

fn with_check(samples: Vec<Sample>, new: u64) -> Outcome {
    let mut outcome = measured(samples);
    if let Outcome::Measured { check, .. } = &mut outcome {
        *check = new;
    }
    outcome
}

/// Returns boots with batches of 10 operations of these ticks.
fn boots(environment: EnvironmentId, op: Op, ticks: &[&[u64]]) -> Vec<Observation> {
    let boots = ticks.iter().zip(0..);
    boots
        .map(|(ticks, replicate)| {
            let outcome = measured(batches(ticks, 10));
            boot(environment, replicate, vec![(op, outcome)])
        })
        .collect()
}

fn cell(summary: &Summary, environment: EnvironmentId, op: Op) -> &Cell {
    let found = |cell: &&Cell| cell.config == environment.into() && cell.op == op;
    summary.cells.iter().find(found).expect("no such cell")
}

fn figure(summary: &Summary, environment: EnvironmentId, op: Op) -> &Figure {
    let cell = cell(summary, environment, op);
    cell.value.figure().unwrap_or_else(|| panic!("{cell:?}"))
}

fn failure(summary: &Summary, environment: EnvironmentId, op: Op) -> &str {
    match &cell(summary, environment, op).value {
        Value::Failed(failure) => &failure.reason,
        other => panic!("{other:?}"),
    }
}

/// A recorded console is no measurement, whichever of the boots repeats another one.
#[test]
fn boots_that_repeat_samples_to_the_tick_are_a_failure_on_the_wall_clock() {
    let received = |mut seen: Vec<Observation>| {
        for (boot, delay) in seen.iter_mut().zip(0..) {
            for operation in &mut boot.operations {
                if let Outcome::Measured { samples, .. } = &mut operation.outcome {
                    samples.iter_mut().for_each(|it| it.host_ns = Some(delay));
                }
            }
        }
        seen
    };
    let different: [&[u64]; 4] = [&[100, 110], &[100, 111], &[110, 100], &[100, 110, 120]];
    for environment in [HOST, KVM, QEMU_KVM] {
        let good = received(boots(environment, Op::Cpuid, &different));
        assert!(figure(&summarise(&good), environment, Op::Cpuid).estimate > 0.0);
        for (one, other) in [(0, 1), (0, 3), (1, 2), (2, 3)] {
            let mut ticks = different;
            ticks[other] = ticks[one];
            let summary = summarise(&received(boots(environment, Op::Cpuid, &ticks)));
            let reason = failure(&summary, environment, Op::Cpuid);
            let expected = format!("boot {other} has the samples of boot {one}, to the tick");
            assert!(reason.starts_with(&expected), "{reason}");
        }
    }
    let equal = received(boots(SIM, Op::Cpuid, &[&[100, 110], &[100, 110]]));
    assert_eq!(figure(&summarise(&equal), SIM, Op::Cpuid).estimate, 10.5);
}

#[test]
fn an_estimate_is_the_median_over_boots_of_their_medians() {
    let seen = boots(
        HOST,
        Op::Cpuid,
        &[&[100, 110, 9_000], &[200, 210, 220], &[300, 310, 320]],
    );
    let summary = summarise(&seen);
    let cpuid = figure(&summary, HOST, Op::Cpuid);
    assert_eq!(cpuid.estimate, 21.0, "the median of 11, 21 and 31");
    assert_eq!(
        (cpuid.min, cpuid.max),
        (10.0, 900.0),
        "no outlier is dropped"
    );
    assert_eq!((cpuid.p50, cpuid.p90, cpuid.p99), (22.0, None, None));
    assert_eq!((cpuid.samples, cpuid.boots), (9, 3));
    let interval = cpuid.interval.unwrap();
    assert_eq!((interval.low, interval.high), (11.0, 31.0));
    assert_eq!(cell(&summary, HOST, Op::Cpuid).unit, "ns");
    assert_eq!(cpuid.flags, []);
    assert_eq!(summarise(&seen), summary);
}

#[test]
fn a_percentile_is_one_of_the_batches() {
    let ticks: Vec<u64> = (1..=40).map(|n| n * 10).collect();
    let summary = summarise(&boots(HOST, Op::Cpuid, &[&ticks]));
    let cpuid = figure(&summary, HOST, Op::Cpuid);
    assert_eq!((cpuid.p50, cpuid.p90, cpuid.p99), (20.0, Some(36.0), None));
}

#[test]
fn one_boot_has_no_interval() {
    let summary = summarise(&boots(HOST, Op::Cpuid, &[&[100, 110]]));
    let cpuid = figure(&summary, HOST, Op::Cpuid);
    assert_eq!((cpuid.interval, cpuid.boots), (None, 1));
    assert_eq!(cpuid.ratio.unwrap().estimate, 1.0);
}

#[test]
fn ratios_are_to_the_bare_row_of_the_same_clock() {
    let mut seen = boots(HOST, Op::Cpuid, &[&[100], &[110], &[90]]);
    seen.extend(boots(KVM, Op::Cpuid, &[&[1_000], &[1_100], &[900]]));
    seen.extend(boots(SIM_KVM, Op::Cpuid, &[&[600], &[600]]));
    seen.extend(boots(QEMU_KVM, Op::PortIn, &[&[600], &[600]]));
    let summary = summarise(&seen);
    let kvm = figure(&summary, KVM, Op::Cpuid).ratio.unwrap();
    assert_eq!(kvm.estimate, 10.0);
    let interval = kvm.interval.unwrap();
    assert!((interval.low - 10.0).abs() < 1e-9 && (interval.high - 10.0).abs() < 1e-9);
    assert!((interval.level - 0.75).abs() < 1e-9, "three blocks");
    assert_eq!(
        figure(&summary, SIM_KVM, Op::Cpuid).ratio,
        None,
        "no row of sim"
    );
    assert_eq!(figure(&summary, QEMU_KVM, Op::PortIn).ratio, None);
}

/// The median of these batches is 3, and drops what one of three batches does in addition.
#[test]
fn an_exact_figure_is_the_mean_of_all_batches_and_has_no_interval() {
    let mut seen = boots(SIM, Op::PortOut, &[&[30, 30, 40], &[30, 30, 40]]);
    seen.extend(boots(SIM_KVM, Op::PortOut, &[&[31_230], &[31_230]]));
    let summary = summarise(&seen);
    let sim = figure(&summary, SIM, Op::PortOut);
    assert_eq!((sim.estimate, sim.interval), (10.0 / 3.0, None));
    assert_eq!((sim.min, sim.max), (3.0, 4.0));
    assert_eq!((sim.samples, sim.boots), (3, 2));
    let ratio = figure(&summary, SIM_KVM, Op::PortOut).ratio.unwrap();
    assert!((ratio.estimate - 936.9).abs() < 1e-9, "{ratio:?}");
    assert_eq!(ratio.interval, None);
    assert_eq!(cell(&summary, SIM, Op::PortOut).unit, "insn");
}

#[test]
fn an_exact_rate_is_all_bytes_by_all_time() {
    let outcome = || measured(batches(&[1_000, 3_000], 16_000));
    let seen = [0, 1].map(|replicate| boot(SIM, replicate, vec![(Op::Copy, outcome())]));
    let copy = summarise(&seen);
    let copy = figure(&copy, SIM, Op::Copy);
    assert_eq!(copy.estimate, 8_000.0, "32,000 bytes in 4,000 instructions");
    assert_eq!((copy.max, copy.interval), (16_000.0, None));
}

#[test]
fn one_digit_of_difference_is_a_failure_on_the_instruction_clock() {
    let seen = boots(SIM_KVM, Op::PortOut, &[&[30, 30, 40], &[30, 31, 40]]);
    let summary = summarise(&seen);
    assert_eq!(
        failure(&summary, SIM_KVM, Op::PortOut),
        "not deterministic: boots 0 and 1 differ in 1 of 3 batches, first in batch 1: \
         30 insn for 10 and 31 insn for 10"
    );
    assert!(summary.has_failure(FailureKind::NotDeterministic));
    assert!(!summary.has_failure(FailureKind::UnequalWork));
}

#[test]
fn exact_figures_do_not_depend_on_when_a_batch_began() {
    let mut seen = boots(SIM_KVM, Op::PortOut, &[&[30], &[30]]);
    if let Outcome::Measured { samples, .. } = &mut seen[1].operations[0].outcome {
        samples[0].start += 1;
        samples[0].end += 1;
    }
    let summary = summarise(&seen);
    assert_eq!(figure(&summary, SIM_KVM, Op::PortOut).estimate, 3.0);
}

#[test]
fn an_exact_figure_of_one_boot_is_flagged_and_of_a_lost_boot_fails() {
    let summary = summarise(&boots(SIM, Op::PortOut, &[&[30]]));
    assert_eq!(figure(&summary, SIM, Op::PortOut).flags, [Flag::Unproved]);
    let mut seen = boots(SIM, Op::PortOut, &[&[30]]);
    let lost = Outcome::Failed("the guest hung".into());
    seen.push(boot(SIM, 1, vec![(Op::PortOut, lost)]));
    let summary = summarise(&seen);
    let reason = failure(&summary, SIM, Op::PortOut);
    expect!["not deterministic: boots 0 and 1 differ in whether it succeeds (the guest hung)"]
        .assert_eq(reason);
}

#[test]
fn rates_are_in_megabytes_and_their_exits_by_the_megabyte() {
    let mut outcome = measured(batches(&[1_000, 500], 16_000_000));
    if let Outcome::Measured {
        exits, host_cpu_ns, ..
    } = &mut outcome
    {
        (*exits, *host_cpu_ns) = (Some(64), Some(1_600));
    }
    let summary = summarise(&[boot(HOST, 0, vec![(Op::Copy, outcome)])]);
    let copy = figure(&summary, HOST, Op::Copy);
    assert_eq!((copy.min, copy.max), (16_000_000.0, 32_000_000.0));
    assert_eq!((copy.exits, copy.host_cpu_ns), (Some(2.0), Some(50.0)));
    assert_eq!(cell(&summary, HOST, Op::Copy).unit, "MB/s");
}

#[test]
fn idle_work_is_by_the_operation_and_has_to_be_reproduced() {
    let calloc = |ticks| {
        let mut outcome = measured(batches(&[1_000, 1_000], 8));
        if let Outcome::Measured { idle, .. } = &mut outcome {
            *idle = Some(IdleWork {
                ticks,
                bytes: 16 << 20,
            });
        }
        vec![(Op::Calloc1m, outcome)]
    };
    let summary = summarise(&[boot(SIM, 0, calloc(32_000)), boot(SIM, 1, calloc(32_000))]);
    let expected = Idle {
        time: 2_000.0,
        bytes: f64::from(1 << 20),
    };
    assert_eq!(figure(&summary, SIM, Op::Calloc1m).idle, Some(expected));
    let summary = summarise(&[boot(SIM, 0, calloc(32_000)), boot(SIM, 1, calloc(32_001))]);
    expect!["not deterministic: boots 0 and 1 differ in the ticks of work between batches: 32000 and 32001"]
        .assert_eq(failure(&summary, SIM, Op::Calloc1m));
}

#[test]
fn an_operation_cheaper_than_its_loop_is_below_resolution() {
    let getpid = |ticks: u64| {
        let mut outcome = measured(batches(&[ticks], 1_000));
        if let Outcome::Measured {
            loop_cost,
            clock_cost,
            ..
        } = &mut outcome
        {
            (*loop_cost, *clock_cost) = (1_024, 30);
        }
        vec![(Op::Getpid, outcome)]
    };
    let seen = [boot(HOST, 0, getpid(9_030)), boot(KVM, 0, getpid(1_930))];
    let summary = summarise(&seen);
    assert_eq!(figure(&summary, HOST, Op::Getpid).estimate, 8.0);
    let kvm = figure(&summary, KVM, Op::Getpid);
    assert_eq!(kvm.flags, [Flag::BelowResolution(1.0)]);
    assert_eq!(kvm.ratio, None, "no ratio below resolution");
    let seen = [boot(SIM, 0, getpid(1_930)), boot(SIM_KVM, 0, getpid(1_030))];
    let summary = summarise(&seen);
    let sim = figure(&summary, SIM, Op::Getpid);
    assert!((sim.estimate - 0.9).abs() < 1e-9);
    assert_eq!(sim.flags, [Flag::Unproved], "instructions do not overlap");
    let less = &figure(&summary, SIM_KVM, Op::Getpid).flags;
    assert_eq!(less[0], Flag::BelowResolution(1.0));
}

#[test]
fn clocks_that_disagree_over_a_long_interval_flag_the_cell() {
    let with_elapsed = |guest, host| {
        let mut outcome = measured(batches(&[100], 10));
        if let Outcome::Measured { elapsed, .. } = &mut outcome {
            *elapsed = Some((guest, host));
        }
        vec![(Op::Cpuid, outcome)]
    };
    let flags = |elapsed: &[(u64, u64)]| {
        let boots = elapsed.iter().zip(0..);
        let seen: Vec<_> = boots
            .map(|((guest, host), replicate)| boot(KVM, replicate, with_elapsed(*guest, *host)))
            .collect();
        figure(&summarise(&seen), KVM, Op::Cpuid).flags.clone()
    };
    assert_eq!(flags(&[(9_950_000, 10_000_000)]), []);
    assert_eq!(flags(&[(100, 4_999_999)]), [], "too short to tell");
    assert_eq!(flags(&[(5_000_000, 6_000_000)]), [], "a late delivery");
    let found = flags(&[
        (90_000_000, 100_000_000),
        (102_100_000, 100_000_000),
        (10_000_000, 10_000_000),
    ]);
    let [Flag::ClocksDisagree { share, boots: 2 }] = found[..] else {
        panic!("{found:?}");
    };
    assert!((share + 0.1).abs() < 1e-9, "{share}");
}

#[test]
fn unequal_work_is_a_failure() {
    let with = |environment, check| {
        boot(
            environment,
            0,
            vec![(Op::Cpuid, with_check(batches(&[100], 10), check))],
        )
    };
    let summary = summarise(&[with(HOST, 7), with(KVM, 7), with(SIM_KVM, 8)]);
    assert_eq!(figure(&summary, HOST, Op::Cpuid).estimate, 10.0);
    assert_eq!(
        failure(&summary, SIM_KVM, Op::Cpuid),
        "unequal work: checksum 0x7 in host, kvm and 0x8 in sim/kvm"
    );
    let summary = summarise(&[with(HOST, 7), with(KVM, 8)]);
    failure(&summary, HOST, Op::Cpuid);
    failure(&summary, KVM, Op::Cpuid);
}

#[test]
fn boots_of_one_environment_must_do_equal_work_too() {
    let with = |replicate, check| {
        let outcome = with_check(batches(&[100], 10), check);
        boot(KVM, replicate, vec![(Op::Cpuid, outcome)])
    };
    let summary = summarise(&[with(0, 7), with(1, 9)]);
    assert_eq!(
        failure(&summary, KVM, Op::Cpuid),
        "unequal work: checksum 0x7 in boot 0, 0x9 in boot 1"
    );
}

#[test]
fn work_of_another_size_is_flagged_and_its_checksum_not_compared() {
    let touch = |environment, (batches_of, pages): (usize, u64), check| {
        let outcome = with_check(batches(&vec![100; batches_of], pages), check);
        boot(environment, 0, vec![(Op::FirstTouch4k, outcome)])
    };
    let seen = [
        touch(HOST, (4, 256), 10),
        touch(QEMU_TCG, (2, 512), 3),
        touch(SIM_LINUX, (2, 512), 3),
        touch(KVM, (2, 256), 10),
    ];
    let summary = summarise(&seen);
    let tcg = figure(&summary, QEMU_TCG, Op::FirstTouch4k);
    let sizes = Flag::OtherSize {
        here: Work::Pages(512),
        bare: Work::Pages(256),
    };
    assert_eq!(tcg.flags, [sizes]);
    assert_eq!(tcg.ratio, None, "of other work");
    // A budget ended it earlier.
    let fewer = figure(&summary, KVM, Op::FirstTouch4k);
    assert!(!fewer
        .flags
        .iter()
        .any(|flag| matches!(flag, Flag::OtherSize { .. })));
    assert_eq!(fewer.ratio.map(|ratio| ratio.estimate), Some(1.0));
}

#[test]
fn skips_and_failures_keep_their_reasons() {
    let skip = || Outcome::Skipped("a process has no ports".into());
    let fail = || Outcome::Failed("killed by signal 9".into());
    let seen = [
        boot(HOST, 0, vec![(Op::PortIn, skip()), (Op::Getpid, skip())]),
        boot(HOST, 1, vec![(Op::PortIn, skip()), (Op::Getpid, fail())]),
        boot(HOST, 2, vec![(Op::Cpuid, measured(batches(&[100], 10)))]),
        boot(HOST, 3, vec![(Op::Cpuid, fail())]),
    ];
    let summary = summarise(&seen);
    let port_in = &cell(&summary, HOST, Op::PortIn).value;
    assert_eq!(*port_in, Value::Skip("a process has no ports".into()));
    assert_eq!(failure(&summary, HOST, Op::Getpid), "killed by signal 9");
    let lost = Flag::BootsLost {
        boots: 1,
        of: 2,
        reason: "killed by signal 9".into(),
    };
    assert_eq!(figure(&summary, HOST, Op::Cpuid).flags, [lost]);
}

#[test]
fn a_measurement_without_valid_batches_is_a_failure() {
    let reasons = [vec![], batches(&[100], 0)].map(|samples| {
        let seen = [boot(HOST, 0, vec![(Op::Cpuid, measured(samples))])];
        failure(&summarise(&seen), HOST, Op::Cpuid).to_owned()
    });
    expect![[r#"
        boot 0 gave no sample
        boot 0 gave a batch that counts nothing or takes no time"#]]
    .assert_eq(&reasons.join("\n"));
}

#[test]
fn problems_are_counted_by_boots() {
    let mut seen = boots(KVM, Op::Cpuid, &[&[100], &[100]]);
    for observation in &mut seen {
        observation.problems = vec!["a damaged frame".into(), "a damaged frame".into()];
    }
    let summary = summarise(&seen);
    let key = (KVM.into(), "a damaged frame".to_owned());
    assert_eq!(summary.problems, BTreeMap::from([(key, 2)]));
}

fn interrupted(late: &[u64]) -> Outcome {
    let mut outcome = measured(vec![]);
    if let Outcome::Measured {
        interrupts,
        clock_cost,
        ..
    } = &mut outcome
    {
        *clock_cost = 30;
        let numbered = (0..).zip(late);
        *interrupts = numbered
            .map(|(number, late)| interrupt(number, *late))
            .collect();
    }
    outcome
}

fn interrupt(sequence: u64, late: u64) -> Interrupt {
    let due = 5_000 + 1_000 * sequence;
    Interrupt {
        sequence,
        due,
        entered: due + late,
        done: due + late + 5,
        resumed: due + late + 9,
        ..Interrupt::default()
    }
}

#[test]
fn an_interrupt_is_a_batch_from_expiry_to_handler() {
    let outcomes = vec![(Op::OwnTimer, interrupted(&[40, 10, 20]))];
    let summary = summarise(&[boot(KVM, 0, outcomes)]);
    let late = figure(&summary, KVM, Op::OwnTimer);
    assert_eq!((late.min, late.p50, late.max), (10.0, 20.0, 40.0));
    assert_eq!((late.samples, late.boots), (3, 1));
}

/// Summarises two boots on an exact clock, the second with changed interrupts.
fn two_boots(changed: impl Fn(&mut Interrupt)) -> Summary {
    let mut seen: Vec<_> = (0..2)
        .map(|replicate| {
            boot(
                SIM_KVM,
                replicate,
                vec![(Op::OwnTimer, interrupted(&[40, 10]))],
            )
        })
        .collect();
    if let Outcome::Measured { interrupts, .. } = &mut seen[1].operations[0].outcome {
        interrupts.iter_mut().for_each(changed);
    }
    summarise(&seen)
}

#[test]
fn all_timestamps_of_interrupts_are_compared_on_an_exact_clock() {
    let same = two_boots(|interrupt| {
        interrupt.due += 7;
        interrupt.entered += 7;
        interrupt.done += 7;
        interrupt.resumed += 7;
    });
    assert_eq!(figure(&same, SIM_KVM, Op::OwnTimer).flags, []);
    let reason = |changed: fn(&mut Interrupt)| -> String {
        let summary = two_boots(changed);
        failure(&summary, SIM_KVM, Op::OwnTimer).to_owned()
    };
    let reasons = [
        reason(|interrupt| interrupt.resumed += interrupt.sequence),
        reason(|interrupt| interrupt.uncertainty = 3),
        reason(|interrupt| interrupt.sequence += 1),
        reason(|interrupt| interrupt.found = CpuState::Exit),
    ];
    expect![[r#"
        not deterministic: boots 0 and 1 differ in 1 of 2 interrupts, first in that of expiry 1: 10 insn late and 10
        not deterministic: boots 0 and 1 differ in 2 of 2 interrupts, first in that of expiry 0: 40 insn late and 40
        not deterministic: boots 0 and 1 differ in 2 of 2 interrupts, first in that of expiry 0: 40 insn late and 40
        not deterministic: boots 0 and 1 differ in 2 of 2 interrupts, first in that of expiry 0: 40 insn late and 40"#]].assert_eq(&reasons.join("\n"));
}

#[test]
fn host_noise_flags_every_figure_of_the_boot() {
    let mut seen = boots(HOST, Op::Getpid, &[&[1_000], &[1_100], &[1_050]]);
    let quiet = summarise(&seen);
    assert_eq!(figure(&quiet, HOST, Op::Getpid).flags, []);
    for (boot, share) in [(1, "40% of a CPU"), (2, "90% of a CPU")] {
        let name = "host-noise-others".to_owned();
        seen[boot].facts.insert(name, share.to_owned());
    }
    let busy = summarise(&seen);
    let found = figure(&busy, HOST, Op::Getpid);
    let what = [("others".to_owned(), "40% of a CPU".to_owned())].into();
    assert_eq!(found.flags, [Flag::HostNoise { what, boots: 2 }]);
    let before = figure(&quiet, HOST, Op::Getpid);
    assert_eq!(found.estimate, before.estimate, "nothing is dropped");
}
