//! Forwarders: environments that pass frames from one port to another, on this host. Their names are `net/NAME`.
//!
//! A forwarder of the table has a name here, and a command in `lab/environments`. One of the user's has a command here; others
//! are known from stored runs only.

use crate::layers::{Guest, Machine, Stack};
use crate::named::named;
use crate::vmms::Row;
use std::ops::RangeInclusive;
use std::sync::{PoisonError, RwLock};

/// Format of the queues of a forwarder's ports, where those are of virtio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ring {
    /// Split (virtio 1.2, 2.7).
    Split,
    /// Packed (virtio 1.2, 2.8).
    Packed,
}

named!(Ring { Split "split", Packed "packed" });

/// Pairs of queues of a port.
pub const QUEUES: RangeInclusive<u32> = 1..=8;

/// Names of the forwarders of the table, in the order in which tables show them.
pub const NAMES: [&str; 7] = ["switch", "testpmd", "ovs", "tap", "veth", "bridge", "vde"];

/// Start of the name of an environment that forwards.
const PREFIX: &str = "net/";

/// Most forwarders of a process.
const MOST: usize = 256;

/// Place of the first one in tables: behind all others. The user's have one place, and are in the order of their names.
const FIRST: usize = usize::MAX / 2;

/// A forwarder. Its row lives as long as the process.
struct Forwarder {
    name: &'static str,
    /// Command of the user's, with `{a}` and `{b}` for the sockets of its ports.
    command: Option<String>,
    row: &'static Row,
}

static FORWARDERS: RwLock<Vec<Forwarder>> = RwLock::new(Vec::new());

/// Returns the row of the forwarder of the table with this name, if there is one.
pub(crate) fn known(name: &str) -> Option<&'static Row> {
    NAMES.contains(&name).then(|| row(name, None))?
}

/// Defines a forwarder of the user's. A later definition replaces an earlier one. `None` for a name that a forwarder of
/// the table has, or that is empty or has others than letters, digits and '-', and if there are too many.
pub(crate) fn define(name: &str, command: &str) -> Option<&'static Row> {
    let is_free = is_valid(name) && !NAMES.contains(&name);
    is_free.then(|| row(name, Some(command)))?
}

/// Returns whether a name has only letters, digits and '-'.
pub fn is_valid(name: &str) -> bool {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || it == '-';
    !name.is_empty() && name.chars().all(is_plain)
}

/// Returns the row of the environment with this name that a store or file has, also if it is not defined here.
pub(crate) fn recorded(environment_name: &str) -> Option<&'static Row> {
    let name = environment_name.strip_prefix(PREFIX)?;
    is_valid(name).then(|| row(name, None))?
}

/// Returns the row of a forwarder, which is added if it is not known.
fn row(name: &str, command: Option<&str>) -> Option<&'static Row> {
    let mut all = FORWARDERS.write().unwrap_or_else(PoisonError::into_inner);
    if all.is_empty() {
        all.extend(
            NAMES
                .into_iter()
                .enumerate()
                .map(|(place, name)| Forwarder::new(place, name)),
        );
    }
    let place = all
        .iter()
        .position(|it| it.name == name)
        .unwrap_or(all.len());
    if place == all.len() && place < MOST {
        all.push(Forwarder::new(place, String::leak(name.to_owned())));
    }
    let forwarder = all.get_mut(place)?;
    if command.is_some() {
        forwarder.command = command.map(str::to_owned);
    }
    Some(forwarder.row)
}

impl Forwarder {
    fn new(place: usize, name: &'static str) -> Self {
        let row = Row {
            position: FIRST + place.min(NAMES.len()),
            name: String::leak(format!("{PREFIX}{name}")),
            stack: Stack {
                machine: Machine::Host,
                levels: &[],
                guest: Guest::Linux,
            },
            description: "a forwarder of packets between two ports, without guests",
        };
        Self {
            name,
            command: None,
            row: Box::leak(Box::new(row)),
        }
    }
}

/// Returns the user's command of a forwarder, if it has one.
pub(crate) fn command(name: &str) -> Option<String> {
    let all = FORWARDERS.read().unwrap_or_else(PoisonError::into_inner);
    all.iter().find(|it| it.name == name)?.command.clone()
}

/// Returns the name of the forwarder of a row, if it has one.
pub(crate) fn name_of(row: &'static Row) -> Option<&'static str> {
    row.name.strip_prefix(PREFIX)
}
