//! Remarks below a comparison.

use std::collections::{BTreeMap, BTreeSet};
use trapline_gate::facts;
use trapline_model::{Config, Observation};
use trapline_report::{aa_control, compare};
use trapline_runner::PARTS;
use trapline_runner::RANDOM_FACTS;
use trapline_stats::aa_test::AaTest;
use trapline_stats::compare::Row;
use trapline_stats::verdict::{Assessment, Settings, Tail, Verdict};

/// Returns the remarks on a comparison. `aa_control` is the config if both sides are the same.
pub fn remarks(matches: &[Row], aa_control: Option<&Config>, settings: &Settings) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(config) = aa_control {
        remarks.push("Both are the same: every change is a false alarm.".to_owned());
        let chance = AaTest::from_rows(config.clone(), matches, settings);
        remarks.extend(chance.iter().flat_map(aa_control::sentences));
    }
    remarks.extend(tails(matches));
    remarks.extend(unseen_tail(matches));
    if aa_control.is_none() && matches.iter().any(has_changed) {
        remarks.push(LAYOUT.to_owned());
    }
    let verdicts = matches.iter().filter_map(|one| one.outcome.as_ref().ok());
    let more = |compared: &Assessment| Some((compare::more_boots(compared)?, compared.blocks));
    if let Some((more, blocks)) = verdicts.filter_map(more).max() {
        let boots = blocks + more;
        remarks.push(format!(
            "--boots {boots} would probably settle what is unsure and can be settled."
        ));
    }
    remarks
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

/// Returns what differs between the hosts of two runs, which figures on the wall clock depend on.
pub fn differing_hosts(a: &Facts, b: &Facts) -> Vec<String> {
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let value = |fact: Option<&String>| fact.map_or("unknown".to_owned(), |it| shortened(it));
    let mut remarks = Vec::new();
    for name in names {
        let (old, new) = (a.get(name), b.get(name));
        let is_of_host = name != PARTS && !RANDOM_FACTS.contains(&name.as_str());
        if is_of_host && old != new {
            let (old, new) = (value(old), value(new));
            remarks.push(format!("Differs: the host's {name}: {old} (A), {new} (B)."));
        }
    }
    if !remarks.is_empty() {
        let caution = "A change may be one of the host, not of what was compared.";
        remarks.push(caution.to_owned());
    }
    remarks
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
