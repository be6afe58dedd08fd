//! Remarks below a comparison.

use crate::doctor;
use std::collections::{BTreeMap, BTreeSet};
use trapline_gate::facts;
use trapline_model::{Config, Observation, Operation};
use trapline_report::{aa_control, compare, figures};
use trapline_runner::series_settings::comparable;
use trapline_stats::aa_test::AaTest;
use trapline_stats::compare::Row;
use trapline_stats::verdict::{Assessment, Design, Settings, Tail, Verdict};
use trapline_stats::{Cell, Figure, Flag};
use trapline_store::RunInfo;

/// Returns the remarks on a comparison. `aa_control` is the config if both sides are the same.
pub fn remarks(
    matches: &[Row],
    aa_control: Option<&Config>,
    settings: &Settings,
    design: Design,
) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(config) = aa_control {
        remarks.push("Both are the same: every change is a false alarm.".to_owned());
        let chance = AaTest::from_rows(config.clone(), matches, settings);
        remarks.extend(chance.iter().flat_map(aa_control::sentences));
    }
    remarks.extend(lost_boots(matches));
    remarks.extend(host_noise(matches));
    remarks.extend(tails(matches));
    remarks.extend(unseen_tail(matches));
    if aa_control.is_none() && matches.iter().any(has_changed) {
        remarks.push(LAYOUT.to_owned());
    }
    let verdicts = matches.iter().filter_map(|one| one.outcome.as_ref().ok());
    let more = |compared: &Assessment| Some((compare::more_boots(compared)?, compared.blocks));
    if let Some((more, blocks)) = verdicts.filter_map(more).max() {
        let all = blocks + more;
        remarks.push(match design {
            Design::Runs => format!(
                "{all} runs of either side would probably settle what is unsure and has a number."
            ),
            Design::Hosts { .. } => {
                format!("{all} hosts would probably settle what is unsure and has a number.")
            }
            Design::Blocked | Design::Boots => {
                format!("--boots {all} would probably settle what is unsure and has a number.")
            }
        });
    }
    if design == Design::Boots && matches.iter().any(|one| !one.clock().is_exact()) {
        remarks.push(FEW_RUNS.to_owned());
        if !matches.iter().any(|one| one.noise.is_some()) {
            remarks.push(UNKNOWN_NOISE.to_owned());
        } else {
            remarks.push(NOISE.to_owned());
        }
    }
    remarks
}

/// Limit of a comparison of few runs.
const FEW_RUNS: &str = "Boots of one run share what differs from run to run, so two runs do not tell whether the \
     configurations differ: measure both now, or name at least three runs of each, as in 'trapline compare 1,2,3 4,5,6'.";

/// The noise between runs is a column.
const NOISE: &str =
    "Noise: the standard deviation of A's figure between the stored runs that repeat it.";

/// The noise between runs is unknown.
const UNKNOWN_NOISE: &str =
    "The noise between runs is unknown: fewer than three stored runs repeat A.";

/// Lost boots of both sides, and all boots.
type Lost = [(usize, usize); 2];

/// Returns how many boots of each side gave no figure of an operation, with the interval of their share.
fn lost_boots(matches: &[Row]) -> Vec<String> {
    let mut losses: Vec<(Lost, Vec<Operation>)> = Vec::new();
    for row in matches {
        let of = [&row.a, &row.b].map(|cell| cell.value.figure().map_or((0, 0), Figure::lost));
        if of.iter().all(|(lost, _)| *lost == 0) {
            continue;
        }
        match losses.iter_mut().find(|(known, _)| *known == of) {
            Some((_, operations)) => operations.push(row.op),
            None => losses.push((of, vec![row.op])),
        }
    }
    let sentence = |([a, b], operations): (Lost, Vec<Operation>)| {
        format!(
            "Lost boots: A {}, B {} ({}).",
            figures::lost(a),
            figures::lost(b),
            Operation::describe(operations).replace(',', ", ")
        )
    };
    losses.into_iter().map(sentence).collect()
}

/// Returns the sides of which boots had other load on the host.
fn host_noise(matches: &[Row]) -> Option<String> {
    let of_side = |cell: fn(&Row) -> &Cell| {
        let flags = matches.iter().filter_map(|row| cell(row).value.figure());
        let boots =
            flags.flat_map(|figure| figure.flags.iter().map(move |flag| (flag, figure.boots)));
        let boots = boots.filter_map(|(flag, all)| match flag {
            Flag::HostNoise { boots, .. } => Some((*boots, all)),
            _ => None,
        });
        boots.max()
    };
    let sides = [("A", of_side(|row| &row.a)), ("B", of_side(|row| &row.b))];
    let noisy = sides.iter().filter_map(|(name, boots)| {
        let (boots, all) = (*boots)?;
        Some(format!("in {boots} of {all} boots of {name}"))
    });
    let noisy: Vec<String> = noisy.collect();
    let is_noisy = !noisy.is_empty();
    is_noisy.then(|| format!("The host was not at rest {}.", noisy.join(" and ")))
}

/// Most characters of a fact in a remark.
const LONGEST_FACT: usize = 100;

/// Returns the facts that differ between the boots of two configurations and explain other figures: other kernels,
/// other builds of QEMU, and where both are one environment, other programs.
pub fn differing_facts(a: &[Observation], b: &[Observation]) -> Vec<String> {
    let (Some(first), Some(second)) = (a.first(), b.first()) else {
        return Vec::new();
    };
    let is_same = first.config.environment == second.config.environment;
    let of =
        |seen: &Observation| BTreeMap::from([(first.config.clone(), facts::relevant(&seen.facts))]);
    let (old, new) = (of(first), of(second));
    let causes = facts::causes(|config| old.get(config), &new);
    let known = causes.iter().filter_map(|cause| {
        let both = cause.old.as_ref().zip(cause.new.as_ref());
        let (old, new) = both.filter(|_| is_same || cause.fact.around)?;
        if !is_same && has_further_parts(cause.fact.name, old, new) {
            return None;
        }
        let title = cause.fact.title;
        Some(format!(
            "Differs: {title}: {} (A), {} (B).",
            shortened(old),
            shortened(new)
        ))
    });
    known.collect()
}

/// Returns whether the compilers of one environment are those of the other and further ones, of parts that the other does
/// not have.
fn has_further_parts(fact: &str, a: &str, b: &str) -> bool {
    let compilers = |text: &'_ str| text.split("; ").map(str::to_owned).collect::<BTreeSet<_>>();
    let (a, b) = (compilers(a), compilers(b));
    fact == "toolchain" && (a.is_subset(&b) || b.is_subset(&a))
}

/// Facts of a run, by name.
type Facts = BTreeMap<String, String>;

/// Returns what differs between the conditions of two runs, which figures on the wall clock depend on: facts of their
/// hosts, the preset, and settings of workloads that both measured.
pub fn differing_conditions(a: &RunInfo, b: &RunInfo) -> Vec<String> {
    let (of_a, of_b) = (conditions(a), conditions(b));
    let names: BTreeSet<&String> = of_a.keys().chain(of_b.keys()).collect();
    let value = |fact: Option<&String>| fact.map_or("unknown".to_owned(), |it| shortened(it));
    let differing = names.into_iter().filter_map(|name| {
        let (old, new) = (of_a.get(name), of_b.get(name));
        let is_of_both = old.is_some() && new.is_some() || !name.starts_with(WORKLOAD);
        (old != new && is_of_both).then(|| {
            let (old, new) = (value(old), value(new));
            format!(
                "Differs: {name}: {old} (run {}), {new} (run {}).",
                a.id, b.id
            )
        })
    });
    differing.collect()
}

/// Beginning of the names of conditions that only one workload depends on.
const WORKLOAD: &str = "workload";

fn conditions(run: &RunInfo) -> Facts {
    let is_condition = |name: &str| doctor::CONDITIONS.contains(&name);
    let host = run.facts.iter().filter(|(name, _)| is_condition(name));
    let host = host.map(|(name, value)| (format!("the host's {name}"), value.clone()));
    let preset = run
        .request
        .preset
        .as_ref()
        .map(|it| ("preset".to_owned(), it.to_string()));
    let settings = comparable(&run.request);
    let workloads = [
        ("irq", settings.irq),
        ("block", settings.block),
        ("net", settings.packets),
    ];
    let workloads = workloads.into_iter().filter(|(_, text)| !text.is_empty());
    let workloads = workloads.map(|(name, text)| (format!("{WORKLOAD} {name}"), text));
    host.chain(preset).chain(workloads).collect()
}

fn shortened(fact: &str) -> String {
    match fact.char_indices().nth(LONGEST_FACT) {
        Some((end, _)) => format!("{}…", &fact[..end]),
        None => fact.to_owned(),
    }
}

/// Limit that no number of boots removes (Mytkowicz and others 2009, "Producing Wrong Data Without
/// Doing Anything Obviously Wrong!"; Curtsinger and Berger 2013, "STABILIZER").
const LAYOUT: &str =
    "Memory layout is not randomised: between two builds, a change of a few percent \
     may come from where code and data lie.";

fn has_changed(one: &Row) -> bool {
    let is_changed = |compared: &Assessment| compared.verdict == Verdict::Changed;
    !one.clock().is_exact() && one.outcome.as_ref().is_ok_and(is_changed)
}

/// Explains "n of m outside", with the block farthest from the margin.
fn tails(matches: &[Row]) -> Option<String> {
    let with_tail = matches
        .iter()
        .filter_map(|one| Some((one.op, one.outcome.as_ref().ok()?.tail?)));
    let distance = |tail: &Tail| tail.farthest.ln().abs();
    let (op, tail) = with_tail.max_by(|a, b| distance(&a.1).total_cmp(&distance(&b.1)))?;
    Some(format!(
        "Outside: the typical block is within the margin, these blocks are not; the farthest is {:.2} \
         times ({}).",
        tail.farthest,
        op.path()
    ))
}

/// Returns the largest share of deviating boots that stays unseen: with a probability of 5% none of `n`
/// blocks shows a tail of `1 - 0.05^(1/n)`.
fn unseen_tail(matches: &[Row]) -> Option<String> {
    let noisy = matches.iter().filter(|one| !one.clock().is_exact());
    let compared = noisy.filter_map(|one| one.outcome.as_ref().ok());
    let equivalent = compared.filter(|it| it.verdict == Verdict::Equivalent);
    let blocks = equivalent.map(|it| it.blocks).min()?;
    let share = 1.0 - 0.05_f64.powf(1.0 / blocks as f64);
    Some(format!(
        "Equivalent in {blocks} blocks: a tail in up to {:.0}% of boots can stay unseen (95%).",
        share * 100.0
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilers_of_a_part_that_one_side_lacks_are_no_difference() {
        let differs = |a, b| !has_further_parts("toolchain", a, b);
        assert!(!differs("GCC 12; LLD 20; rustc 1.95", "LLD 20; rustc 1.95"));
        assert!(differs("LLD 20; rustc 1.95", "LLD 20; rustc 1.96"));
        assert!(!has_further_parts("qemu", "10.0", "10.0; 7.2"));
    }
}
