//! Points that nobody told of, and why; and the one point that has no stage of its own:
//! when a guest was entered with its interrupt.

use super::tables::name;
use crate::Report;
use trapline_abi::Op;
use trapline_model::irq;
use trapline_stats::irq::Interrupts;

/// What a fact says of the environment of a guest's own timer.
fn fact<'a>(report: &'a Report, interrupts: &Interrupts, name: &str) -> Option<&'a str> {
    let facts = report.summary.facts.get(&interrupts.environment)?;
    let is_own = interrupts.op == Op::OwnTimer;
    is_own.then(|| facts.get(name).map(String::as_str))?
}

/// Who does not tell of which point, and if that is known why.
pub fn points(shown: &[&Interrupts], report: &Report) -> Vec<String> {
    let untold = shown.iter().filter(|i| !i.stages.untold.is_empty());
    let sentences = untold.map(|interrupts| {
        let points: Vec<_> = interrupts.stages.untold.iter().map(|p| p.name()).collect();
        let why = fact(report, interrupts, irq::STAGES).filter(|why| *why != irq::COUNTED);
        let why = why.map_or_else(String::new, |why| format!(" ({why})"));
        (points.join(" and "), name(interrupts) + &why)
    });
    let told = together(sentences);
    let sentence = |(points, who)| format!("{points} not told: {who}");
    told.into_iter().map(sentence).collect()
}

/// How long before its handler a guest was entered.
pub fn entries(shown: &[&Interrupts], report: &Report) -> Vec<String> {
    let known = shown.iter().filter_map(|interrupts| {
        let before = fact(report, interrupts, irq::GUEST_ENTERED)?;
        Some((before.to_owned(), name(interrupts)))
    });
    let told = together(known);
    let sentence = |(before, who)| {
        format!("the guest was entered {before} insn before its handler read the clock: {who}")
    };
    told.into_iter().map(sentence).collect()
}

/// What is said of several, once, with all of whom it is said.
fn together(said: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut told: Vec<(String, Vec<String>)> = Vec::new();
    for (what, who) in said {
        match told.iter_mut().find(|(known, _)| *known == what) {
            Some((_, all)) => all.push(who),
            None => told.push((what, vec![who])),
        }
    }
    let joined = |(what, who): (String, Vec<String>)| (what, who.join(", "));
    told.into_iter().map(joined).collect()
}
