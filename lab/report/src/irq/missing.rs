//! Points without a timestamp, with the reason, and the point that has no stage of its own: guest
//! entry with the interrupt.

use crate::Report;
use trapline_abi::Op;
use trapline_model::irq;
use trapline_stats::irq::Interrupts;

/// Returns a fact about the environment, if the timer is the guest's own.
fn fact<'a>(report: &'a Report, interrupts: &Interrupts, name: &str) -> Option<&'a str> {
    let facts = report.summary.facts.get(&interrupts.config)?;
    let is_own = interrupts.op != Op::HostTimer;
    is_own.then(|| facts.get(name).map(String::as_str))?
}

/// Returns the points without a timestamp and the timers concerned, with the reason if it is known.
pub fn points(shown: &[&Interrupts], report: &Report) -> Vec<String> {
    let untold = shown.iter().filter(|i| !i.stages.unstamped.is_empty());
    let sentences = untold.map(|interrupts| {
        let points: Vec<_> = interrupts
            .stages
            .unstamped
            .iter()
            .map(|p| p.name())
            .collect();
        let why = fact(report, interrupts, irq::STAGES).filter(|why| *why != irq::COUNTED);
        let why = why.map_or_else(String::new, |why| format!(" ({why})"));
        (points.join(" and "), interrupts.name() + &why)
    });
    let joined = together(sentences);
    let sentence = |(points, who)| format!("{points} not stamped: {who}");
    joined.into_iter().map(sentence).collect()
}

/// Returns the time from guest entry to the handler.
pub fn entries(shown: &[&Interrupts], report: &Report) -> Vec<String> {
    let known = shown.iter().filter_map(|interrupts| {
        let before = fact(report, interrupts, irq::GUEST_ENTERED)?;
        Some((before.to_owned(), interrupts.name()))
    });
    let joined = together(known);
    let sentence = |(before, who)| {
        format!("the guest was entered {before} insn before its handler read the clock: {who}")
    };
    joined.into_iter().map(sentence).collect()
}

/// Joins the subjects of equal texts.
fn together(said: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut joined: Vec<(String, Vec<String>)> = Vec::new();
    for (what, who) in said {
        match joined.iter_mut().find(|(known, _)| *known == what) {
            Some((_, all)) => all.push(who),
            None => joined.push((what, vec![who])),
        }
    }
    let names = |(what, who): (String, Vec<String>)| (what, who.join(", "));
    joined.into_iter().map(names).collect()
}
