//! What a machine has done so far, for whoever asks over its socket: one line of JSON.
//!
//! Written out by hand: it holds numbers, and names that are this program's own.

use super::Common;
use crate::threads;
use crate::virtio::Counts;
use std::fmt::Write;

/// All of it.
pub fn line(common: &Common) -> String {
    let state = match common.gate.is_closed() {
        true => "paused",
        false => "running",
    };
    let unclaimed = common.devices().counts().unclaimed;
    format!(
        "{{\"ok\":true,\"state\":\"{state}\",\"vcpus\":[{}],\"devices\":[{}],\
         \"threads\":[{}],\"unclaimed\":{unclaimed}}}",
        vcpus(common),
        devices(common),
        times(),
    )
}

/// Exits to this program, by their causes.
fn vcpus(common: &Common) -> String {
    joined(common.exits().map(|exits| {
        format!(
            "{{\"port\":{},\"mmio\":{},\"hypercall\":{},\"other\":{}}}",
            exits.port, exits.mmio, exits.hypercall, exits.other
        )
    }))
}

fn devices(common: &Common) -> String {
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
        // A string takes all that is written to it.
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
