//! The plugin's output: for each window a line per instruction, then, with [`STACKS`], every
//! call path with the instructions executed on it.
//!
//! ```text
//! window
//! lengths 1657
//! h ffffffff81000000 12
//! h ffffffff81a00b40 2 uncharged 1
//! h ffffffffc0123456 3 uncharged 3 leaves
//! h 555555556000 7 page 9f86d081884c7d65
//! g 200110 3
//! root
//! 1 call 401000 402000
//! 2 kernel 402010 ffffffff81c00080
//! - ffffffff81c00080 3
//! stage exec vmm-main
//! h ffffffff81000000 9
//! ```
//! `lengths` counts the instructions of a window that find the length of an intercepted instruction. `window` is a batch of work, `stage` the interval between two stages of a launch. `h` is
//! host mode, `g` guest mode, `g2` and `g3` are nested guest modes. Addresses are hexadecimal, counts decimal. `page` is the
//! fingerprint of the instruction's page ([`crate::page`]). `uncharged` counts instructions
//! that did not retire and led here. `leaves` marks the target of #VMEXIT, `finds` executions
//! that find a length, the name of an [`Event`] an
//! instruction that has it. A path line gives the depth and the last
//! step: kind, last instruction before it, first instruction after it; it continues the last
//! path above it of lower depth. Lines with `-` count instructions on that path. `nested` and
//! `unbegun` report markers out of order ([`MarkerError`]).

use crate::insn::Event;
use std::fmt::Write;
use trapline_abi::Stage;

/// Returns the plugin's reply to `probe`. It contains a hash of the files that define the
/// formats, so that plugin and reader of different builds do not match.
pub fn ready() -> String {
    let files = [
        include_str!("format.rs"),
        include_str!("insn.rs"),
        include_str!("irq_path.rs"),
    ]
    .concat();
    format!("{READY} {:016x}", fnv1a(files.as_bytes()))
}

const READY: &str = "ready";

/// Computes the 64-bit FNV-1a hash.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Plugin argument: record call stacks.
pub const STACKS: &str = "stacks=on";

/// Plugin argument: count the instructions that find the length of an intercepted instruction.
pub const LENGTHS: &str = "lengths=on";

/// Plugin argument: count nothing else.
pub const LENGTHS_ALONE: &str = "lengths=alone";

/// Plugin argument: the machine runs Xen.
pub const XEN: &str = "machine=xen";

/// Plugin argument: the launch begins with the machine, before any marker.
pub const RESET: &str = "launch=reset";

/// Prefix of the plugin argument with the number of levels on a machine with nested guests.
pub const LEVELS: &str = "levels=";

/// Executions of one instruction within a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InsnCount {
    /// Level of virtualization: 0 in host mode, 1 in guest mode, 2 in nested guest mode.
    pub level: u8,
    /// Virtual address.
    pub address: u64,
    /// Fingerprint of its page, where an address alone is ambiguous.
    pub page: Option<u64>,
    /// Number of executions.
    pub count: u64,
    /// Number of executions whose preceding instruction did not retire.
    pub unretired: u64,
    /// True for the target of #VMEXIT.
    pub is_exit_target: bool,
    /// True for the executions that find the length of an intercepted instruction.
    pub finds_length: bool,
    /// Its event, in host mode.
    pub event: Option<Event>,
}

/// The interval that a window covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WindowKind {
    /// A batch of work.
    #[default]
    Batch,
    /// The interval between two stages of a launch.
    Stage(Stage, Stage),
}

/// Transfers of control that a call path records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepKind {
    /// A call.
    Call,
    /// An entry from user space into the kernel: system call, fault or interrupt.
    Kernel,
    /// A guest entry.
    Guest,
}

/// One step of a call path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallStep {
    /// Kind of transfer.
    pub kind: StepKind,
    /// Last instruction before the transfer.
    pub site: u64,
    /// First instruction after it; 0 for guest entries, and if an interrupt came in between.
    pub target: u64,
}

/// A call path and the instructions executed at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPath {
    /// Steps from the root.
    pub depth: usize,
    /// Last step; `None` for the root.
    pub step: Option<CallStep>,
    /// Instruction addresses with their number of executions.
    pub counts: Vec<(u64, u64)>,
}

/// Instructions executed between two markers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Interval covered.
    pub kind: WindowKind,
    /// Executions by instruction, unique within one recorded window.
    pub insns: Vec<InsnCount>,
    /// Number of instructions that find the length of an intercepted instruction, with [`LENGTHS`]; `None` if the calls
    /// that do so are unknown.
    pub lengths: Option<u64>,
    /// Executions by call path in depth-first order; empty without [`STACKS`].
    pub paths: Vec<CallPath>,
    /// The clock also charges instructions that fault, as that of Bochs does.
    pub charges_faults: bool,
}

impl Window {
    /// Merges `windows` into one.
    pub fn merge<'a>(windows: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut merged = Self::default();
        for window in windows {
            merged.add(window);
        }
        merged
    }

    /// Adds the executions of `other`.
    pub fn add(&mut self, other: &Self) {
        self.charges_faults |= other.charges_faults;
        self.lengths = match (self.lengths, other.lengths) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        };
        self.insns.extend(&other.insns);
        // The paths of each window begin with a root of their own.
        self.paths.extend_from_slice(&other.paths);
    }
}

/// Errors in the plugin's output.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// A line does not have the format.
    #[error("plugin output: invalid line '{0}'")]
    Line(String),
    /// The markers do not enclose batches.
    #[error("marks are {0}")]
    Marker(MarkerError),
}

impl FormatError {
    /// The remedy for all of these errors.
    pub const REMEDY: &'static str =
        "build image, agent and plugin from one source with 'make build'";
}

/// Markers out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MarkerError {
    /// Two begin markers without an end marker in between.
    #[error("nested: a batch began before the last one had ended")]
    Nested,
    /// An end marker without a begin marker.
    #[error("missing: a batch ended that had not begun")]
    Unbegun,
}

impl MarkerError {
    const ALL: [Self; 2] = [Self::Nested, Self::Unbegun];

    /// Returns the output line, with its newline.
    pub const fn line(self) -> &'static str {
        match self {
            Self::Nested => "nested\n",
            Self::Unbegun => "unbegun\n",
        }
    }
}

const WINDOW: &str = "window";
const ROOT: &str = "root";
const STAGE: &str = "stage";
const LENGTHS_OF: &str = "lengths";
const PAGE: &str = "page";
const UNCHARGED: &str = "uncharged";
const LEAVES: &str = "leaves";
const FINDS: &str = "finds";

/// Formats one window.
pub fn write(window: &Window) -> String {
    let mut text = match window.kind {
        WindowKind::Batch => format!("{WINDOW}\n"),
        WindowKind::Stage(from, to) => format!("{STAGE} {} {}\n", from.name(), to.name()),
    };
    if let Some(lengths) = window.lengths {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{LENGTHS_OF} {lengths}");
    }
    for insn in &window.insns {
        write_insn(&mut text, insn);
    }
    for path in &window.paths {
        // Writing to a string cannot fail.
        let _ = match path.step {
            None => writeln!(text, "{ROOT}"),
            Some(CallStep { kind, site, target }) => {
                let (depth, kind) = (path.depth, kind.word());
                writeln!(text, "{depth} {kind} {site:x} {target:x}")
            }
        };
        for (address, count) in &path.counts {
            let _ = writeln!(text, "- {address:x} {count}");
        }
    }
    text
}

fn write_insn(text: &mut String, insn: &InsnCount) {
    // Writing to a string cannot fail.
    let _ = match insn.level {
        0 => write!(text, "h"),
        1 => write!(text, "g"),
        level => write!(text, "g{level}"),
    };
    let _ = write!(text, " {:x} {}", insn.address, insn.count);
    if let Some(page) = insn.page {
        let _ = write!(text, " {PAGE} {page:x}");
    }
    if insn.unretired != 0 {
        let _ = write!(text, " {UNCHARGED} {}", insn.unretired);
    }
    let leaves = insn.is_exit_target.then_some(LEAVES);
    let finds = insn.finds_length.then_some(FINDS);
    let words = leaves.into_iter().chain(finds);
    for word in words.chain(insn.event.map(Event::name)) {
        let _ = write!(text, " {word}");
    }
    text.push('\n');
}

impl StepKind {
    const ALL: [Self; 3] = [Self::Call, Self::Kernel, Self::Guest];

    fn word(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Kernel => "kernel",
            Self::Guest => "guest",
        }
    }
}

/// Parses the windows in the plugin's output.
///
/// # Errors
/// The first line that is invalid or reports a marker out of order.
pub fn read(text: &str) -> Result<Vec<Window>, FormatError> {
    let mut windows: Vec<Window> = Vec::new();
    for line in text.lines() {
        let invalid = || FormatError::Line(line.to_owned());
        let mut errors = MarkerError::ALL.into_iter();
        if let Some(error) = errors.find(|error| error.line().trim_end() == line) {
            return Err(FormatError::Marker(error));
        }
        if let Some(kind) = parse_kind(line) {
            windows.push(Window {
                kind,
                ..Window::default()
            });
        } else {
            let window = windows.last_mut().ok_or_else(invalid)?;
            parse_line(line, window).ok_or_else(invalid)?;
        }
    }
    Ok(windows)
}

fn parse_kind(line: &str) -> Option<WindowKind> {
    if line == WINDOW {
        return Some(WindowKind::Batch);
    }
    let (from, to) = line.strip_prefix(STAGE)?.trim_start().split_once(' ')?;
    Some(WindowKind::Stage(stage_named(from)?, stage_named(to)?))
}

fn stage_named(name: &str) -> Option<Stage> {
    Stage::ALL.into_iter().find(|stage| stage.name() == name)
}

fn parse_line(line: &str, window: &mut Window) -> Option<()> {
    let words: Vec<_> = line.split(' ').collect();
    match words[..] {
        [LENGTHS_OF, count] => window.lengths = Some(count.parse().ok()?),
        [ROOT] => window.paths.push(CallPath {
            depth: 0,
            step: None,
            counts: Vec::new(),
        }),
        ["-", address, count] => {
            let count = (hexadecimal(address)?, count.parse().ok()?);
            window.paths.last_mut()?.counts.push(count);
        }
        [depth, kind, site, target] if !depth.starts_with(['h', 'g']) => {
            let depth = depth.parse().ok()?;
            let continues = 1..=window.paths.last()?.depth + 1;
            continues.contains(&depth).then_some(())?;
            let step = CallStep {
                kind: StepKind::ALL
                    .into_iter()
                    .find(|known| known.word() == kind)?,
                site: hexadecimal(site)?,
                target: hexadecimal(target)?,
            };
            window.paths.push(CallPath {
                depth,
                step: Some(step),
                counts: Vec::new(),
            });
        }
        _ => window.insns.push(parse_insn(words)?),
    }
    Some(())
}

fn parse_insn(mut words: Vec<&str>) -> Option<InsnCount> {
    let last = words.last().copied();
    let mut events = Event::ALL.into_iter();
    let event = events.find(|event| last == Some(event.name()));
    if event.is_some() {
        words.pop();
    }
    let finds_length = words.pop_if(|word| *word == FINDS).is_some();
    let is_exit_target = words.pop_if(|word| *word == LEAVES).is_some();
    let unretired = pop_value(UNCHARGED, &mut words);
    let page = pop_value(PAGE, &mut words);
    let [mode, address, count] = words[..] else {
        return None;
    };
    Some(InsnCount {
        level: match mode {
            "h" => 0,
            "g" => 1,
            _ => mode.strip_prefix('g')?.parse().ok()?,
        },
        address: hexadecimal(address)?,
        page: page.map_or(Some(None), |page| hexadecimal(page).map(Some))?,
        count: count.parse().ok()?,
        unretired: unretired.unwrap_or("0").parse().ok()?,
        is_exit_target,
        finds_length,
        event,
    })
}

/// Removes `name` and its value from the end of `words`; returns the value.
fn pop_value<'a>(name: &str, words: &mut Vec<&'a str>) -> Option<&'a str> {
    let [.., before, value] = words[..] else {
        return None;
    };
    (before == name).then(|| {
        words.truncate(words.len() - 2);
        value
    })
}

fn hexadecimal(word: &str) -> Option<u64> {
    u64::from_str_radix(word, 16).ok()
}

#[cfg(test)]
mod tests;
