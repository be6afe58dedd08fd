//! Conditions of a measurement of interrupts: loads and their work, placement and scheduling of the
//! guest, and the bound of a deadline.

use super::tables::time;
use crate::Report;
use trapline_model::irq::{self, Settings};
use trapline_model::{Clock, Conditions, Halt, PerCpu, Pin, Sched, Scheduling};
use trapline_stats::irq::Interrupts;

/// Returns the conditions and their effects, in sentences.
pub fn words(report: &Report, shown: &[&Interrupts], unit: &str) -> Vec<String> {
    let settings = &report.irq;
    let is_default =
        settings.conditions == Conditions::default() && settings.scheduling == Scheduling::DEFAULT;
    let mut words = Vec::new();
    if !is_default {
        words.push(asked(settings));
    }
    for interrupts in shown {
        words.extend(bounded(settings.scheduling.sched, interrupts, unit));
    }
    let mut configs: Vec<_> = shown.iter().map(|one| &one.config).collect();
    configs.dedup();
    for config in configs {
        let name = report.name(config);
        let facts = report.summary.facts.get(config);
        let cpu_time = facts.and_then(|facts| facts.get(irq::CPU_TIME_US));
        words.extend(cpu_time.map(|us| {
            format!("{name}: its VMM had {us} thousand insn of CPU time, with its start")
        }));
        let did = facts.into_iter().flatten().filter_map(|(fact, did)| {
            let (_, load) = fact.strip_prefix("load-")?.split_once('-')?;
            Some(format!("{load} {did}"))
        });
        let did: Vec<_> = did.collect();
        if !did.is_empty() {
            words.push(format!("{name}: {}", did.join("; ")));
        }
    }
    words
}

fn asked(settings: &Settings) -> String {
    let Settings {
        conditions,
        scheduling,
        ..
    } = settings;
    let mut words = format!("load {}", conditions.loads);
    match scheduling.pin {
        Pin::Free => {}
        Pin::Exclusive => words.push_str(", the virtual CPU's thread alone on a CPU"),
        Pin::Shared => words.push_str(", guest and loads on one CPU"),
    }
    if scheduling.sched != Sched::Other {
        words.push_str(&format!(", scheduled {}", scheduling.sched));
    }
    if scheduling.halt == Halt::InGuest {
        words.push_str(", halted without leaving the guest");
    }
    if conditions.per_cpu == PerCpu::Two {
        words.push_str(", two virtual CPUs on one CPU");
    }
    words
}

/// Returns the bound that a deadline promises and the latest interrupt.
fn bounded(sched: Sched, interrupts: &Interrupts, unit: &str) -> Option<String> {
    let bound = sched.bound()?;
    let late = interrupts.all.lateness?;
    let clock = interrupts.clock;
    let unit = if clock == Clock::Wall { unit } else { "insn" };
    Some(format!(
        "{}: {sched} promises at most 2P-2B = {} {unit} until it runs; the latest was {} {unit}",
        interrupts.name(),
        time(bound.0 as f64, clock),
        time(late.max, clock)
    ))
}
