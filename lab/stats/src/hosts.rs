//! Figures over several hosts, on the wall clock: the host is the replicate.
//!
//! Boots of one host share its hardware, settings and load, so that an interval over the boots of several hosts is too narrow
//! for hosts like these, and a difference on each host looks like one of the configurations: with three hosts whose ratios
//! vary by 2%, boots taken together are called *changed* in half of the cases without a difference (`make power`, `over-hosts`). A host
//! gives one value, from its own boots. Figures are medians of these values, with intervals between order statistics of hosts;
//! tests have hosts as blocks.

use crate::order::median_interval;
use crate::sorted::Sorted;
use crate::verdict::{boot_values, BootValues, Design};
use crate::{Cell, Figure, Flag, Ratio};
use std::collections::{BTreeMap, BTreeSet};
use trapline_model::{Clock, Observation, Operation};

/// Returns the ids of the hosts of boots.
pub fn ids<'a>(boots: impl IntoIterator<Item = &'a Observation>) -> BTreeSet<&'a str> {
    boots.into_iter().map(|boot| boot.host.as_str()).collect()
}

/// Returns the pairing of boots of one run: of several hosts these are the blocks.
pub fn design_of_run<'a>(boots: impl IntoIterator<Item = &'a Observation>) -> Design {
    match ids(boots).len() {
        0 | 1 => Design::Blocked,
        _ => Design::Hosts { in_blocks: true },
    }
}

/// Returns the boots of each host, in the order of their ids.
pub(crate) fn by_host<'a>(
    boots: impl IntoIterator<Item = &'a Observation>,
) -> BTreeMap<&'a str, Vec<&'a Observation>> {
    let mut hosts = BTreeMap::<_, Vec<_>>::new();
    for boot in boots {
        hosts.entry(boot.host.as_str()).or_default().push(boot);
    }
    hosts
}

/// Returns the figure over hosts of one that all boots give, from the cells of the hosts; that of the host if only one has a
/// figure, and `None` if none has.
pub(crate) fn figure(of_boots: &Figure, of_hosts: &[&Cell]) -> Option<Figure> {
    let figures: Vec<&Figure> = of_hosts
        .iter()
        .filter_map(|cell| cell.value.figure())
        .collect();
    if let [only] = figures[..] {
        return Some(only.clone());
    }
    let over = |value: fn(&Figure) -> Option<f64>| {
        let values: Vec<f64> = figures.iter().filter_map(|figure| value(figure)).collect();
        Some((Sorted::new(values.clone())?.median(), values))
    };
    let (estimate, estimates) = over(|figure| Some(figure.estimate))?;
    let ratio = over(|figure| Some(figure.ratio?.estimate)).map(|(estimate, ratios)| Ratio {
        estimate,
        interval: median_interval(&ratios),
    });
    let of_hosts = figures.iter().flat_map(|figure| &figure.flags);
    let of_ratio = of_hosts.filter(|flag| flag.is_of_ratio());
    let flags = of_boots
        .flags
        .iter()
        .filter(|flag| **flag != Flag::Autocorrelated);
    let mut flags: Vec<Flag> = flags.cloned().collect();
    for flag in of_ratio {
        if !flags.contains(flag) {
            flags.push(flag.clone());
        }
    }
    Some(Figure {
        estimate,
        interval: median_interval(&estimates),
        hosts: figures.len(),
        medians: (0..).zip(estimates).collect(),
        ratio,
        exits: over(|figure| figure.exits).map(|(exits, _)| exits),
        host_cpu_ns: over(|figure| figure.host_cpu_ns).map(|(ns, _)| ns),
        components: None,
        flags,
        ..of_boots.clone()
    })
}

/// Returns the values of two sides on each host, both with the number of the host among those of both sides. The ratio of a
/// host is the median of its blocks if both sides are of one run, and else that of its medians.
pub fn values(
    a: &[&Observation],
    b: &[&Observation],
    op: Operation,
    are_in_blocks: bool,
) -> [Vec<BootValues>; 2] {
    let (of_a, of_b) = (by_host(a.iter().copied()), by_host(b.iter().copied()));
    let hosts: BTreeSet<&str> = of_a.keys().chain(of_b.keys()).copied().collect();
    let boots = |side: &BTreeMap<&str, Vec<&Observation>>, host: &str| {
        let boots = side.get(host).into_iter().flatten().copied();
        boot_values(boots, op)
    };
    let mut sides = [Vec::new(), Vec::new()];
    for (number, host) in (0..).zip(hosts) {
        let (a, b) = (boots(&of_a, host), boots(&of_b, host));
        let [a_values, b_values] = &mut sides;
        let value_of_a = BootValues::of_run(number, &a);
        let ratio = ratio_of_blocks(&a, &b).filter(|_| are_in_blocks);
        let value_of_b = match (&value_of_a, ratio) {
            (Some(a), Some(ratio)) => a.median().map(|a| BootValues::of_one(number, a * ratio)),
            _ => BootValues::of_run(number, &b),
        };
        a_values.extend(value_of_a);
        b_values.extend(value_of_b);
    }
    sides
}

/// Returns the median ratio of B to A over the blocks of one host that have both.
fn ratio_of_blocks(a: &[BootValues], b: &[BootValues]) -> Option<f64> {
    let figures = |side: &[BootValues]| -> Vec<(u32, f64)> {
        let figures = side.iter();
        let figures = figures.filter_map(|it| Some((it.block, it.figure(Clock::Wall)?)));
        figures.collect()
    };
    crate::paired::paired_ratio(&figures(b), &figures(a)).map(|paired| paired.estimate)
}
