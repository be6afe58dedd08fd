//! Counters of all ports as JSON, over a socket.

use crate::counters::{Counters, Reason};
use crate::fault;
use crate::handle::Handle;
use crate::mirror::Mirror;
use serde::Serialize;
use serde_json::{Map, Value};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Time that a reader may take.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Flow {
    frames: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct Port<'a> {
    port: &'a str,
    sent: Flow,
    received: Flow,
    dropped: Map<String, Value>,
    connections: u64,
    notifications: u64,
    addresses_not_learnt: u64,
    faults: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_fault: Option<String>,
}

/// Copies of the frames of a port.
#[derive(Serialize)]
struct Copies<'a> {
    port: &'a str,
    written: u64,
    dropped: DroppedCopies,
}

/// Copies that were dropped, by reason.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct DroppedCopies {
    too_slow: u64,
    no_space: u64,
}

#[derive(Serialize)]
struct State<'a> {
    ports: Vec<Port<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mirror: Option<Copies<'a>>,
    lost_mappings: u64,
}

fn copies<'a>(names: &'a [String], mirror: &Mirror) -> Option<Copies<'a>> {
    Some(Copies {
        port: names.get(mirror.port)?,
        written: mirror.written.get(),
        dropped: DroppedCopies {
            too_slow: mirror.too_slow.get(),
            no_space: mirror.no_space.get(),
        },
    })
}

fn port<'a>(name: &'a str, counters: &Counters) -> Port<'a> {
    let flow = |[frames, bytes]: &[crate::counters::Counter; 2]| Flow {
        frames: frames.get(),
        bytes: bytes.get(),
    };
    let dropped = Reason::ALL.into_iter().filter_map(|reason| {
        let name = serde_json::to_value(reason).ok()?;
        Some((name.as_str()?.to_owned(), counters.dropped(reason).into()))
    });
    Port {
        port: name,
        sent: flow(&counters.sent),
        received: flow(&counters.received),
        dropped: dropped.collect(),
        connections: counters.connections.get(),
        notifications: counters.notifications.get(),
        addresses_not_learnt: counters.not_learnt.get(),
        faults: counters.faults.get(),
        last_fault: counters.fault().map(|fault| fault.to_string()),
    }
}

/// Returns the counters as a line of JSON.
pub fn text(handle: &Handle, names: &[String]) -> String {
    let ports = names.iter().zip(&handle.counters);
    let state = State {
        ports: ports.map(|(name, counters)| port(name, counters)).collect(),
        mirror: handle.mirror.as_ref().and_then(|it| copies(names, it)),
        lost_mappings: fault::lost_mappings(),
    };
    // Numbers and strings: serialization cannot fail.
    serde_json::to_string(&state).unwrap_or_default() + "\n"
}

/// Writes the counters to a reader.
///
/// # Errors
/// The reader has gone, or does not read.
pub fn answer(handle: &Handle, names: &[String], mut reader: &UnixStream) -> io::Result<()> {
    reader.set_write_timeout(Some(PATIENCE))?;
    reader.write_all(text(handle, names).as_bytes())
}
