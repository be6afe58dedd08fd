//! VMMs that plan files and the user's configuration define: `[vmm.NAME]` adds the environments `NAME`, `NAME/linux`,
//! `sim/NAME` and `sim/NAME/linux` to the table of this process.

use crate::layers::{Guest, Level, Machine, Stack};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

/// Most VMMs of a process.
const MAX_VMMS: usize = 64;

/// Most characters of a name.
const MAX_NAME: usize = 24;

/// Environments of a VMM, in table order: their machines and guests.
const ENVIRONMENTS: [(Machine, Guest); 4] = [
    (Machine::Host, Guest::Image),
    (Machine::Host, Guest::Linux),
    (Machine::Sim, Guest::Image),
    (Machine::Sim, Guest::Linux),
];

/// A `[vmm.NAME]` as deserialized.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Command with placeholders.
    pub command: String,
    /// Format of the image.
    #[serde(default)]
    pub format: ImageFormat,
    /// Files and directories that it needs, besides those that the command names.
    #[serde(default)]
    pub files: Vec<PathBuf>,
    /// Environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Text of its configuration file, with placeholders.
    pub config: Option<String>,
    /// Device that the records of the guest leave through.
    #[serde(default)]
    pub console: Console,
    /// Transport of its virtio devices.
    #[serde(default)]
    pub transport: Transport,
    /// Command for a Linux guest, with placeholders.
    pub linux: Option<String>,
    /// Text of the configuration file of that command.
    #[serde(rename = "linux-config")]
    pub linux_config: Option<String>,
}

/// Format of the file that a VMM boots: `format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageFormat {
    /// An ELF with a PVH note.
    #[default]
    Pvh,
    /// A bzImage.
    Bzimage,
    /// A 32-bit ELF file with a multiboot header.
    Multiboot,
    /// A flat binary, entered at its first byte, with its command line.
    Raw,
}

impl ImageFormat {
    /// The names of all values.
    pub const NAMES: [&str; 4] = ["pvh", "bzimage", "multiboot", "raw"];
}

/// Device that the records of a guest leave through: `console`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Console {
    /// The first serial port.
    #[default]
    Serial,
    /// The debug console at port 0xe9.
    Debugcon,
}

impl Console {
    /// The names of all values.
    pub const NAMES: [&str; 2] = ["serial", "debugcon"];
}

/// Transport of the virtio devices of a VMM: `transport`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Registers in memory.
    #[default]
    Mmio,
    /// Functions of PCI bus 0.
    Pci,
}

impl Transport {
    /// The names of all values.
    pub const NAMES: [&str; 2] = ["mmio", "pci"];
}

/// A name that no VMM can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// Characters or length.
    #[error("VMM '{0}': a name has at most {MAX_NAME} characters, a-z, 0-9 and '-', and starts with a letter")]
    Characters(String),
    /// The name of an environment, or of a part of one.
    #[error("VMM '{0}': an environment has this name: choose another")]
    Taken(String),
    /// The table is full.
    #[error("VMM '{0}': at most {MAX_VMMS} VMMs can be defined")]
    TooMany(String),
}

/// A defined VMM. Strings and layers are leaked: they live as long as the process, like the table.
struct Vmm {
    name: &'static str,
    /// `None` if a stored run has figures of it and nothing defines it.
    definition: Option<Definition>,
    /// The definition is part of this program.
    is_built_in: bool,
    environments: [&'static Row; ENVIRONMENTS.len()],
}

/// The row of an environment. No two have the same position and name.
pub(crate) struct Row {
    pub position: usize,
    pub name: &'static str,
    pub stack: Stack,
    pub description: &'static str,
}

static VMMS: RwLock<Vec<Vmm>> = RwLock::new(Vec::new());

fn with_vmms<T>(read: impl FnOnce(&[Vmm]) -> T) -> T {
    read(&VMMS.read().unwrap_or_else(PoisonError::into_inner))
}

/// Returns the definition of a VMM, if it has one.
pub fn definition(name: &str) -> Option<Definition> {
    with_vmms(|all| {
        let vmm = all.iter().find(|vmm| vmm.name == name)?;
        vmm.definition.clone()
    })
}

/// Marks all definitions so far as part of this program: their environments are measured only if asked for. Definitions of the
/// same names replace them, and have no mark.
pub fn mark_built_in() {
    let mut all = VMMS.write().unwrap_or_else(PoisonError::into_inner);
    all.iter_mut().for_each(|vmm| vmm.is_built_in = true);
}

/// Returns whether the definition of a VMM is part of this program.
pub fn is_built_in(name: &str) -> bool {
    with_vmms(|all| all.iter().any(|vmm| vmm.name == name && vmm.is_built_in))
}

/// Returns the position of a VMM among those defined.
pub fn position(name: &str) -> Option<usize> {
    with_vmms(|all| all.iter().position(|vmm| vmm.name == name))
}

/// Returns the environments of all VMMs, in table order.
pub(crate) fn environments() -> Vec<&'static Row> {
    with_vmms(|all| all.iter().flat_map(|vmm| vmm.environments).collect())
}

/// Adds a VMM, whose environments stand behind `built_in` others. If it is known, a definition replaces its definition.
///
/// # Errors
/// The name is invalid, or there are too many VMMs.
pub(crate) fn add(
    name: &str,
    definition: Option<&Definition>,
    built_in: usize,
) -> Result<(), InvalidName> {
    if !is_valid(name) {
        return Err(InvalidName::Characters(name.to_owned()));
    }
    let mut all = VMMS.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.iter_mut().find(|vmm| vmm.name == name) {
        if definition.is_some() {
            known.definition = definition.cloned();
            known.is_built_in = false;
        }
        return Ok(());
    }
    if all.len() == MAX_VMMS {
        return Err(InvalidName::TooMany(name.to_owned()));
    }
    let name: &'static str = String::leak(name.to_owned());
    let levels: &'static [Level] = Vec::leak(vec![Level::custom(name)]);
    let mut positions = built_in + all.len() * ENVIRONMENTS.len()..;
    let row = |(machine, guest)| {
        let stack = Stack {
            machine,
            levels,
            guest,
        };
        let row = Row {
            position: positions.next().unwrap_or(usize::MAX),
            name: String::leak(stack.name()),
            stack,
            description: String::leak(description(name, &stack)),
        };
        &*Box::leak(Box::new(row))
    };
    all.push(Vmm {
        name,
        definition: definition.cloned(),
        is_built_in: false,
        environments: ENVIRONMENTS.map(row),
    });
    Ok(())
}

/// Returns the name of the VMM in the name of one of its environments.
pub(crate) fn vmm_of(environment: &str) -> &str {
    let name = environment.strip_prefix("sim/").unwrap_or(environment);
    name.strip_suffix("/linux").unwrap_or(name)
}

fn description(name: &str, stack: &Stack) -> String {
    let place = match stack.machine {
        Machine::Host => "",
        _ => ", on KVM on the simulated machine",
    };
    let guest = match stack.guest {
        Guest::Image => "the image",
        Guest::Linux => "a Linux guest",
    };
    format!("{guest} in the VMM of [vmm.{name}]{place}")
}

fn is_valid(name: &str) -> bool {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let starts_well = name.starts_with(|first: char| first.is_ascii_lowercase());
    starts_well && name.len() <= MAX_NAME && name.bytes().all(is_allowed)
}
