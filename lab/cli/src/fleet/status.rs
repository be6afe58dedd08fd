//! Progress and state of a fleet.

use crate::terminal;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};
use trapline_fleet::{slurm, Fleet};

/// Lines about what is done, while one waits.
pub struct Progress {
    begin: Instant,
    done_before: usize,
    last: Option<(Instant, usize)>,
}

/// Interval of the lines.
const LINES: Duration = Duration::from_secs(10);

impl Progress {
    /// Begins with what is done already.
    pub fn new(fleet: &Fleet) -> Self {
        let done = fleet.order.slices as usize - fleet.missing().len();
        Self {
            begin: Instant::now(),
            done_before: done,
            last: None,
        }
    }

    /// Prints a line if ten seconds have passed since the last one, or all is done.
    pub fn show(&mut self, fleet: &Fleet) {
        let (missing, slices) = (fleet.missing().len(), fleet.order.slices as usize);
        let done = slices - missing;
        let is_due = self
            .last
            .is_none_or(|(at, before)| before != done && (at.elapsed() >= LINES || missing == 0));
        if !is_due {
            return;
        }
        self.last = Some((Instant::now(), done));
        let since = done - self.done_before.min(done);
        let left = match since {
            0 => String::new(),
            _ => {
                let seconds = self.begin.elapsed().as_secs_f64() / since as f64 * missing as f64;
                format!(", about {seconds:.0} s")
            }
        };
        let hosts = labels(fleet).len();
        let left = if missing == 0 { String::new() } else { left };
        let hosts = match hosts {
            1 => "1 host".to_owned(),
            _ => format!("{hosts} hosts"),
        };
        terminal::print_error(&format!("{done} of {slices} slices, {hosts}{left}"));
    }
}

/// Attempts of a host, by their outcome.
#[derive(Default)]
struct HostAttempts {
    done: usize,
    failed: usize,
    running: usize,
    reason: Option<String>,
    is_unfit: bool,
}

/// Returns the attempts by host.
fn labels(fleet: &Fleet) -> BTreeMap<String, HostAttempts> {
    let unfit = fleet.unfit_hosts();
    let mut hosts = BTreeMap::<String, HostAttempts>::new();
    for attempt in fleet.attempts() {
        let host = hosts.entry(attempt.label.clone()).or_default();
        host.is_unfit |= unfit.contains(&attempt.host);
        match (attempt.ended_at, attempt.failure) {
            (_, Some(reason)) => {
                host.failed += 1;
                host.reason = Some(reason);
            }
            (Some(_), None) => host.done += 1,
            (None, None) if fleet.is_done(attempt.slice) => {}
            (None, None) => host.running += 1,
        }
    }
    hosts
}

/// Returns what is done, by host, and what failed.
pub fn status(fleet: &Fleet) -> String {
    let missing = fleet.missing();
    let slices = fleet.order.slices as usize;
    let mut text = format!("{} of {slices} slices are done.\n", slices - missing.len());
    for (label, host) in labels(fleet) {
        let mut words = vec![format!("{} done", host.done)];
        // Of a host that died nothing says so.
        let counts = [
            (host.running, "begun and not ended"),
            (host.failed, "failed"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        words.extend(counts.map(|(count, what)| format!("{count} {what}")));
        let unfit = if host.is_unfit { ", excluded" } else { "" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, " {label}: {}{unfit}", words.join(", "));
        if let Some(reason) = host.reason {
            let _ = writeln!(text, "   {}", terminal::one_line(reason));
        }
    }
    match slurm::queue(fleet) {
        Some(tasks) if !tasks.is_empty() => {
            let running = tasks.iter().filter(|task| task.state == "RUNNING").count();
            let _ = writeln!(
                text,
                " Slurm: {running} running, {} waiting",
                tasks.len() - running
            );
        }
        _ => {}
    }
    text
}

/// Returns slices and attempts as JSON.
pub fn status_json(fleet: &Fleet) -> serde_json::Value {
    json!({
        "uuid": fleet.order.uuid,
        "slices": fleet.order.slices,
        "missing": fleet.missing(),
        "unfit_hosts": fleet.unfit_hosts(),
        "attempts": fleet.attempts(),
    })
}
