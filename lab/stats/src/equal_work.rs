//! Checks that environments did equal work, and relates each to the bare row of its clock.

use crate::cell::ComparableCell;
use crate::paired::paired_ratio;
use crate::value::{self, Work};
use crate::{FailureKind, Figure, Flag, Ratio, Value};
use std::collections::{BTreeMap, BTreeSet};
use trapline_abi::{Op, Workload};
use trapline_model::{Config, Operation, Overrides};

/// Configurations by checksum of the same work.
type Checksums = BTreeMap<u64, Vec<Config>>;

/// Turns cells into failures whose checksum differs from that of most environments that did the same
/// amount of work with the same settings, on either clock. Without a majority all of them fail.
pub fn require_equal_work(cells: &mut [ComparableCell]) {
    let settings = cells.iter().map(|one| &one.cell.config.overrides);
    let settings: BTreeSet<Overrides> = settings.cloned().collect();
    for settings in &settings {
        let of_settings = |one: &&mut ComparableCell| {
            let Config {
                environment,
                overrides,
            } = &one.cell.config;
            let is_build = matches!(one.cell.op, Operation::Build(_));
            !is_build && settings.supported_by(*environment) == *overrides
        };
        require_equal_checksums(cells.iter_mut().filter(of_settings).collect());
    }
    // All builds of a kernel make the same files, whatever their settings.
    let is_build = |one: &&mut ComparableCell| matches!(one.cell.op, Operation::Build(_));
    require_equal_checksums(cells.iter_mut().filter(is_build).collect());
}

fn require_equal_checksums(cells: Vec<&mut ComparableCell>) {
    let mut groups: BTreeMap<(Operation, Work), Checksums> = BTreeMap::new();
    for one in cells.iter().filter(|one| value::is_checked(one.cell.op)) {
        if let Some((work, check)) = one.proof {
            let checksums = groups.entry((one.cell.op, work)).or_default();
            let configs = checksums.entry(check).or_default();
            configs.push(one.cell.config.clone());
        }
    }
    groups.retain(|_, checksums| checksums.len() > 1);
    for one in cells {
        let Some((work, check)) = one.proof else {
            continue;
        };
        if let Some(checksums) = groups.get(&(one.cell.op, work)) {
            if majority(checksums) != Some(check) {
                one.cell.value = Value::failed(FailureKind::UnequalWork, describe(checksums));
                one.proof = None;
            }
        }
    }
}

/// Returns the checksum that more configurations have than any other.
fn majority(checksums: &Checksums) -> Option<u64> {
    let most = checksums.values().map(Vec::len).max()?;
    let mut best = checksums
        .iter()
        .filter(|(_, configs)| configs.len() == most);
    let (check, _) = best.next()?;
    best.next().is_none().then_some(*check)
}

fn describe(checksums: &Checksums) -> String {
    let groups: Vec<String> = checksums
        .iter()
        .map(|(check, configs)| {
            let names: Vec<String> = configs.iter().map(Config::to_string).collect();
            format!("{check:#x} in {}", names.join(", "))
        })
        .collect();
    format!("unequal work: checksum {}", groups.join(" and "))
}

/// Returns the configuration without virtualization that an operation is compared with, if there is one.
fn bare(op: Operation, config: &Config) -> Option<Config> {
    match op {
        Operation::Guest(_) => Some(config.bare()),
        Operation::Build(_) => Some(config.in_environment(config.clock().bare_linux())),
        Operation::Packets(_) => None,
    }
}

/// Adds the ratio to the bare row, and the flags that concern it, to every figure.
pub fn add_bare_ratios(cells: &mut [ComparableCell]) {
    let is_bare = |one: &&ComparableCell| {
        let is_own = |bare: Config| bare.environment == one.cell.config.environment;
        let is_bare = bare(one.cell.op, &one.cell.config).is_some_and(is_own);
        is_bare && one.cell.value.figure().is_some()
    };
    let all: BTreeMap<(Operation, Config), ComparableCell> = cells
        .iter()
        .filter(is_bare)
        .map(|one| ((one.cell.op, one.cell.config.clone()), one.clone()))
        .collect();
    for one in cells {
        let bare = bare(one.cell.op, &one.cell.config);
        if let Some(bare) = bare.and_then(|bare| all.get(&(one.cell.op, bare))) {
            add_ratio(one, bare);
        }
    }
}

fn add_ratio(one: &mut ComparableCell, bare: &ComparableCell) {
    let size = other_size(one, bare);
    let ratio = ratio(one, bare).filter(|_| size.is_none());
    let mechanism = other_mechanism(one, bare).filter(|_| ratio.is_some());
    if let Value::Measured(figure) = &mut one.cell.value {
        figure.ratio = ratio;
        figure.flags.extend(mechanism);
        figure.flags.extend(size);
    }
}

fn ratio(one: &ComparableCell, bare: &ComparableCell) -> Option<Ratio> {
    let resolved = |one: &ComparableCell| {
        let figure = one.cell.value.figure();
        figure
            .filter(|figure| is_resolved(figure))
            .map(|figure| figure.estimate)
    };
    let quotient = resolved(one)? / resolved(bare)?;
    if one.cell.clock.is_exact() || one.cell.config.environment == bare.cell.config.environment {
        return Some(Ratio {
            estimate: quotient,
            interval: None,
        });
    }
    let (figure, of_bare) = (one.cell.value.figure()?, bare.cell.value.figure()?);
    let paired = paired_ratio(&figure.medians, &of_bare.medians)?;
    Some(Ratio {
        estimate: paired.estimate,
        interval: paired.interval,
    })
}

fn is_resolved(figure: &Figure) -> bool {
    figure.estimate > 0.0 && figure.resolution().is_none()
}

fn other_size(one: &ComparableCell, bare: &ComparableCell) -> Option<Flag> {
    let ((here, _), (bare, _)) = (one.proof?, bare.proof?);
    (here != bare).then_some(Flag::OtherSize { here, bare })
}

/// Returns the difference in mechanism between the image, which runs its application in the kernel, and
/// the agent, a process of Linux.
fn other_mechanism(one: &ComparableCell, bare: &ComparableCell) -> Option<Flag> {
    let (here, bare) = (one.cell.config.environment, bare.cell.config.environment);
    let text = match one.cell.op.guest()? {
        _ if here.has_processes() == bare.has_processes() => return None,
        Op::Getpid => "getpid is a function call in the image, a system call in Linux",
        Op::NullIo => "null-io is two function calls in the image, two system calls in Linux",
        Op::Yield => "yield is a function call in the image, sched_yield between threads in Linux",
        Op::Malloc1m => "malloc-1m is the image's allocator, mmap in Linux",
        Op::Calloc64k | Op::Calloc1m => {
            "calloc is the image's allocator, mmap with MAP_POPULATE in Linux"
        }
        Op::FirstTouch4k | Op::FirstTouch2m => {
            "a first touch is a page fault in Linux, none in the image itself"
        }
        Op::TimerWake => {
            "timer-wake is hlt and an interrupt in the image, a sleeping thread in Linux"
        }
        op if op.workload() == Workload::System => {
            "processes of the image's own kernel, which has less to do than Linux"
        }
        op if op.workload() == Workload::Ipc
            || matches!(op, Op::SmpPairs | Op::SmpThreads | Op::SmpShared) =>
        {
            "CPUs wait by hlt and an interrupt in the image, threads by a futex in Linux"
        }
        Op::SmpShootdown => {
            "shootdown is invlpg and interrupts to the other CPUs in the image, mmap over a mapped page in Linux"
        }
        op if op.workload() == Workload::Files => {
            "files is an archive behind a page cache in the image, a function call; a file system and system calls in Linux"
        }
        op if op.workload() == Workload::Net => {
            "net is smoltcp over a tap in the image, Linux over the loopback device in a process"
        }
        op if op.workload() == Workload::Boot => {
            "boot starts a machine with the image, a process in Linux"
        }
        _ => return None,
    };
    Some(Flag::OtherMechanism(text))
}
