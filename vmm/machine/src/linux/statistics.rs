//! Statistics of a run as one line of JSON.
//!
//! Formatted by hand: it holds only numbers and fixed names.

use super::Common;
use crate::threads;
use crate::virtio::Counts;
use std::fmt::Write;

/// Returns the statistics.
pub fn line(common: &Common) -> String {
    let state = if common.gate.is_closed() {
        "paused"
    } else {
        "running"
    };
    let devices = common.devices();
    let (unclaimed, dropped) = (devices.io.unclaimed(), devices.shell.console.dropped());
    drop(devices);
    format!(
        "{{\"ok\":true,\"state\":\"{state}\",\"vcpus\":[{}],\"devices\":[{}],\
         \"threads\":[{}],\"unclaimed\":{unclaimed},\"console_dropped\":{dropped}}}",
        vcpus(common),
        slots(common),
        times(),
    )
}

/// Exits of each vCPU by cause.
fn vcpus(common: &Common) -> String {
    joined(common.exits.iter().map(|exits| {
        let exits = exits.counts();
        format!(
            "{{\"port\":{},\"mmio\":{},\"hypercall\":{},\"other\":{}}}",
            exits.port, exits.mmio, exits.hypercall, exits.other
        )
    }))
}

fn slots(common: &Common) -> String {
    let slots = &common.slots;
    joined(
        slots
            .counts()
            .into_iter()
            .map(|(name, counts)| device(&name, &counts)),
    )
}

fn device(name: &str, counts: &Counts) -> String {
    let mut text = format!("{{\"name\":\"{name}\"");
    for (what, count) in [
        ("wakes", counts.wakes),
        ("interrupts", counts.interrupts),
        ("requests", counts.requests),
        ("bytes_to_guest", counts.read),
        ("bytes_from_guest", counts.written),
        ("failures", counts.failures),
    ] {
        // Writing to a string does not fail.
        let _ = write!(text, ",\"{what}\":{count}");
    }
    text + "}"
}

fn times() -> String {
    let times = threads::times().into_iter();
    joined(times.map(|(name, time)| format!("{{\"name\":\"{name}\",\"cpu_ns\":{time}}}")))
}

fn joined(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(",")
}
