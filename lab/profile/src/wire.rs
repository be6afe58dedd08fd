//! What the plugin writes: for each window, a line an instruction; then, if call
//! stacks were asked for, every path of calls with the instructions on it.
//!
//! ```text
//! window
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
//! `window` is a batch of work, `stage` what was executed from one stage of a start
//! to the next. `h` is the machine itself, `g` a guest on it; addresses are
//! hexadecimal, counts decimal. `page` is the fingerprint of what is in the page of an
//! instruction, where it says whose it is ([`crate::page`]). `uncharged` is how many instructions led here and
//! were not charged by the clock. `leaves` is the instruction to which guests exit,
//! `halts` one with which the machine sleeps until an interrupt. A path is
//! told by how deep it is and by its last step: its kind, the instruction that
//! made it and the first one behind it; it continues the last path before it
//! that is less deep. Behind `-` stand the instructions executed on the path.
//! A line `nested` or `unbegun` tells of marks that are out of order ([`Astray`]).

use std::fmt::Write;
use trapline_abi::Stage;

/// What the plugin says when it is asked whether it could be used: that it is ready
/// to write what is read here. Another build says the same only if it had these very
/// files.
pub fn ready() -> String {
    let files = [include_str!("wire.rs"), include_str!("way.rs")].concat();
    format!("{READY} {:016x}", fingerprint(files.as_bytes()))
}

const READY: &str = "ready";

/// FNV-1a: any change of the text is to be seen, nobody means to deceive.
fn fingerprint(text: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut at = 0;
    while at < text.len() {
        hash = (hash ^ text[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}

/// The plugin's argument that asks for call stacks.
pub const STACKS: &str = "stacks=on";

/// The plugin's argument that tells of a Xen on the machine.
pub const XEN: &str = "machine=xen";

/// An instruction of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Whether a guest executed it.
    pub in_guest: bool,
    /// Its virtual address.
    pub address: u64,
    /// What its page holds, where that says whose it is.
    pub page: Option<u64>,
    /// How often it was executed.
    pub count: u64,
    /// Of how many executions the instruction before was not charged.
    pub uncharged: u64,
    /// Whether it is where guests exit to.
    pub leaves: bool,
    /// Whether it halts the machine until an interrupt.
    pub halts: bool,
}

/// What a window is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Span {
    /// A batch of work.
    #[default]
    Batch,
    /// From one stage of a start to the next.
    Stage(Stage, Stage),
}

/// How control got from one function to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// By a call.
    Call,
    /// From a program into its kernel: a system call, a fault, an interrupt.
    Kernel,
    /// Into a guest.
    Guest,
}

/// A step of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Step {
    /// How.
    pub kind: Kind,
    /// The last instruction before it.
    pub site: u64,
    /// The first instruction behind it; 0 where an interrupt came between, and
    /// for guests, which go on where they were.
    pub target: u64,
}

/// A path of calls and what was executed at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// Steps from the root.
    pub depth: usize,
    /// The last of them; the root has none.
    pub step: Option<Step>,
    /// Addresses of instructions, and how often each was executed.
    pub counts: Vec<(u64, u64)>,
}

/// What was executed between two marks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// What it is of.
    pub span: Span,
    /// Its instructions, each once, or once for each window that it is made of.
    pub lines: Vec<Line>,
    /// The same by path, each behind the one it continues; nothing unless it was
    /// asked for.
    pub contexts: Vec<Context>,
}

impl Window {
    /// All that was executed in `windows`, as one window.
    pub fn all<'a>(windows: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = Self::default();
        for window in windows {
            all.add(window);
        }
        all
    }

    /// Adds what was executed in another window.
    pub fn add(&mut self, other: &Self) {
        self.lines.extend(&other.lines);
        // Each begins with a root of its own.
        self.contexts.extend_from_slice(&other.contexts);
    }
}

/// Why nothing can be known from what the plugin wrote.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadText {
    /// A line that is none.
    #[error("'{0}' is not what the plugin writes; build both from one source with 'make build'")]
    Line(String),
    /// What is between such marks is no batch.
    #[error("marks are {0}; build image, agent and plugin from one source with 'make build'")]
    Astray(Astray),
}

/// How marks can be out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Astray {
    /// Two begin, and none ended.
    #[error("nested: a batch began before the last one had ended")]
    Nested,
    /// One ends that did not begin.
    #[error("missing: a batch ended that had not begun")]
    Unbegun,
}

impl Astray {
    const ALL: [Self; 2] = [Self::Nested, Self::Unbegun];

    /// The line that tells of it.
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
const PAGE: &str = "page";
const UNCHARGED: &str = "uncharged";
const LEAVES: &str = "leaves";
const HALTS: &str = "halts";

/// The text of one window.
pub fn write(window: &Window) -> String {
    let mut text = match window.span {
        Span::Batch => format!("{WINDOW}\n"),
        Span::Stage(from, to) => format!("{STAGE} {} {}\n", from.name(), to.name()),
    };
    for line in &window.lines {
        let world = if line.in_guest { 'g' } else { 'h' };
        let (address, count) = (line.address, line.count);
        // Writing to a string cannot fail.
        let _ = write!(text, "{world} {address:x} {count}");
        if let Some(page) = line.page {
            let _ = write!(text, " {PAGE} {page:x}");
        }
        if line.uncharged != 0 {
            let _ = write!(text, " {UNCHARGED} {}", line.uncharged);
        }
        for (is, word) in [(line.leaves, LEAVES), (line.halts, HALTS)] {
            if is {
                let _ = write!(text, " {word}");
            }
        }
        text.push('\n');
    }
    for context in &window.contexts {
        let _ = match context.step {
            None => writeln!(text, "{ROOT}"),
            Some(Step { kind, site, target }) => {
                let (depth, kind) = (context.depth, kind.word());
                writeln!(text, "{depth} {kind} {site:x} {target:x}")
            }
        };
        for (address, count) in &context.counts {
            let _ = writeln!(text, "- {address:x} {count}");
        }
    }
    text
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Kernel => "kernel",
            Self::Guest => "guest",
        }
    }
}

/// The windows in what the plugin wrote.
///
/// # Errors
/// A line is none, or marks were out of order.
pub fn read(text: &str) -> Result<Vec<Window>, BadText> {
    let mut windows: Vec<Window> = Vec::new();
    for line in text.lines() {
        let bad = || BadText::Line(line.to_owned());
        let mut astray = Astray::ALL.into_iter();
        if let Some(astray) = astray.find(|astray| astray.line().trim_end() == line) {
            return Err(BadText::Astray(astray));
        }
        if let Some(span) = read_span(line) {
            windows.push(Window {
                span,
                ..Window::default()
            });
        } else {
            let window = windows.last_mut().ok_or_else(bad)?;
            read_line(line, window).ok_or_else(bad)?;
        }
    }
    Ok(windows)
}

fn read_span(line: &str) -> Option<Span> {
    if line == WINDOW {
        return Some(Span::Batch);
    }
    let (from, to) = line.strip_prefix(STAGE)?.trim_start().split_once(' ')?;
    Some(Span::Stage(named(from)?, named(to)?))
}

fn named(name: &str) -> Option<Stage> {
    Stage::ALL.into_iter().find(|stage| stage.name() == name)
}

fn read_line(line: &str, window: &mut Window) -> Option<()> {
    let words: Vec<_> = line.split(' ').collect();
    match words[..] {
        [ROOT] => window.contexts.push(Context {
            depth: 0,
            step: None,
            counts: Vec::new(),
        }),
        ["-", address, count] => {
            let count = (hexadecimal(address)?, count.parse().ok()?);
            window.contexts.last_mut()?.counts.push(count);
        }
        [depth, kind, site, target] if depth != "h" && depth != "g" => {
            let depth = depth.parse().ok()?;
            // A path continues one that is there.
            (1..=window.contexts.last()?.depth + 1)
                .contains(&depth)
                .then_some(())?;
            let kinds = [Kind::Call, Kind::Kernel, Kind::Guest];
            let step = Step {
                kind: kinds.into_iter().find(|known| known.word() == kind)?,
                site: hexadecimal(site)?,
                target: hexadecimal(target)?,
            };
            window.contexts.push(Context {
                depth,
                step: Some(step),
                counts: Vec::new(),
            });
        }
        _ => window.lines.push(instruction(&words)?),
    }
    Some(())
}

fn instruction(words: &[&str]) -> Option<Line> {
    let mut words = words.to_vec();
    let halts = words.pop_if(|word| *word == HALTS).is_some();
    let leaves = words.pop_if(|word| *word == LEAVES).is_some();
    let uncharged = behind(UNCHARGED, &mut words);
    let page = behind(PAGE, &mut words);
    let [world, address, count] = words[..] else {
        return None;
    };
    Some(Line {
        in_guest: match world {
            "g" => true,
            "h" => false,
            _ => return None,
        },
        address: hexadecimal(address)?,
        page: page.map_or(Some(None), |page| hexadecimal(page).map(Some))?,
        count: count.parse().ok()?,
        uncharged: uncharged.unwrap_or("0").parse().ok()?,
        leaves,
        halts,
    })
}

/// Takes a number and the word before it from the end of a line, if they are there.
fn behind<'a>(name: &str, words: &mut Vec<&'a str>) -> Option<&'a str> {
    let [.., before, number] = words[..] else {
        return None;
    };
    (before == name).then(|| {
        words.truncate(words.len() - 2);
        number
    })
}

fn hexadecimal(word: &str) -> Option<u64> {
    u64::from_str_radix(word, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worlds::KERNEL;

    fn context(depth: usize, kind: Kind, counts: Vec<(u64, u64)>) -> Context {
        let step = (depth > 0).then_some(Step {
            kind,
            site: 0x10,
            target: u64::MAX,
        });
        Context {
            depth,
            step,
            counts,
        }
    }

    #[test]
    fn a_changed_byte_is_another_build() {
        assert_ne!(fingerprint(b"wire"), fingerprint(b"wise"));
        assert_eq!(ready().len(), "ready ".len() + 16);
    }

    #[test]
    fn windows_are_read_as_they_are_written() {
        let line = |in_guest: bool, address: u64, uncharged, leaves: bool| Line {
            in_guest,
            address,
            page: (!in_guest && !leaves).then_some(address ^ 1),
            count: 7,
            uncharged,
            leaves,
            halts: !leaves,
        };
        let plain = Window {
            span: Span::Batch,
            lines: vec![
                line(false, KERNEL, 0, true),
                line(false, u64::MAX, 3, true),
                line(true, 0x20_0110, 0, false),
            ],
            contexts: vec![],
        };
        let stage = Window {
            span: Span::Stage(Stage::Exec, Stage::VmmMain),
            lines: vec![line(false, KERNEL, 3, false)],
            contexts: vec![],
        };
        let with_paths = Window {
            span: Span::Batch,
            lines: plain.lines.clone(),
            contexts: vec![
                context(0, Kind::Call, vec![(u64::MAX, 7)]),
                context(1, Kind::Kernel, vec![]),
                context(2, Kind::Guest, vec![(1, 2), (0xabc, 3)]),
                context(1, Kind::Call, vec![]),
            ],
        };
        let all = [plain, with_paths, stage, Window::default()];
        let text: String = all.iter().map(write).collect();
        assert_eq!(read(&text).unwrap(), all);
    }

    #[test]
    fn marks_out_of_order_are_told_wherever_they_were() {
        for (text, told) in [
            ("nested\n", "marks are nested: "),
            ("window\nh 1 1\nunbegun\nwindow\n", "marks are missing: "),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.starts_with(told), "{error}");
            assert!(error.contains("make build"), "{error}");
        }
    }

    #[test]
    fn what_is_no_line_is_named() {
        for text in [
            "g 1 1",
            "window\nx 1 1",
            "window\ng 1",
            "window\ng 1 1 enters",
            "window\n- 1 1",
            "window\n1 call 2 3",
            "window\nroot\n2 call 2 3",
            "window\nroot\n1 leap 2 3",
            "window\nroot\n1 call 2",
            "window\ng 1 1 uncharged",
            "window\nh 1 1 page",
            "window\nh 1 1 page here",
            "stage exec lunch",
        ] {
            let last = text.lines().last().unwrap();
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(last), "{error}");
        }
    }
}
