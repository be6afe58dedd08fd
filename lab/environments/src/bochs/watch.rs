//! What the debugger of Bochs is told: to let the machine go, and, where somebody
//! watches, to trace what is executed between the marks of a program.
//!
//! A breakpoint at each mark lets the machine run freely until a batch begins and
//! from its end on. None of that takes time on the machine.

use super::program::{Bochs, REMEDY};
use crate::error::EnvError;
use crate::trace::Trace;
use elf::abi::{PF_X, PT_LOAD};
use elf::endian::LittleEndian;
use elf::symbol::Symbol;
use elf::ElfBytes;
use std::ops::Range;
use std::path::Path;
use trapline_abi::mark;

/// Lets the machine go.
pub const GO: &str = "c\n";

/// Breakpoints of one kind that Bochs can keep: there are those at a linear
/// address, and those at an address of a code segment.
const MOST_BREAKPOINTS: usize = 16;

/// Bytes of a page, and of a mark.
const PAGE: u64 = 4096;
const MARK_BYTES: u64 = (mark::HEAD.len() + 1 + mark::TAIL.len()) as u64;

/// Bytes of the move right before a mark that begins a batch (`begin_batch` in guest/workloads).
const MOVE_BYTES: u64 = 3;

/// Batches of a run that are traced, more than a job has: what is told beyond the
/// machine's end is not read.
const MOST_BATCHES: usize = 1 << 14;

/// The code segment in which marks are executed.
#[derive(Clone, Copy, Debug)]
pub enum Segment {
    /// That of the image in ring 0.
    Image = 0x08,
    /// That of a program of Linux (`__USER_CS`).
    Program = 0x33,
}

/// Who watches a machine, and what the debugger is told for that.
#[derive(Clone, Debug)]
pub struct Watcher {
    /// Who is told.
    pub trace: Trace,
    /// What the debugger is told.
    pub script: String,
}

impl Watcher {
    /// Lets `trace` be told what is executed between the marks of `program`.
    ///
    /// # Errors
    /// The program cannot be read or has no such marks, or Bochs has no debugger.
    pub fn of(
        trace: &Trace,
        program: &Path,
        segment: Segment,
        bochs: &Bochs,
    ) -> Result<Self, EnvError> {
        if !bochs.debugger {
            let bochs = bochs.program.display();
            return Err(EnvError::Missing(format!(
                "{bochs} was built without its debugger, which tells what is executed: {REMEDY}"
            )));
        }
        let bytes = std::fs::read(program).map_err(EnvError::file(program))?;
        let script = script(&Marks::of(&bytes, segment), segment);
        Ok(Self {
            trace: trace.clone(),
            script: script
                .map_err(|why| EnvError::Missing(format!("{}: {why}", program.display())))?,
        })
    }
}

/// Where a program has the marks of batches.
#[derive(Debug, Default, PartialEq, Eq)]
struct Marks {
    begins: Vec<u64>,
    ends: Vec<u64>,
}

impl Marks {
    /// Those in an ELF file; none in what is no such file.
    fn of(bytes: &[u8], segment: Segment) -> Self {
        let mut marks = Self::default();
        let file = ElfBytes::<LittleEndian>::minimal_parse(bytes).ok();
        let segments = file.as_ref().and_then(ElfBytes::segments);
        let code = |header: &elf::segment::ProgramHeader| {
            header.p_type == PT_LOAD && header.p_flags & PF_X != 0
        };
        for header in segments.into_iter().flatten().filter(code) {
            let data = file.as_ref().map(|file| file.segment_data(&header));
            if let Some(Ok(data)) = data {
                marks.add(data, header.p_vaddr);
            }
        }
        let never = file.as_ref().map(|file| unexplained(file, segment));
        let never = never.unwrap_or_default();
        let is_wanted = |mark: &u64| !never.iter().any(|code| code.contains(mark));
        marks.begins.retain(is_wanted);
        marks.ends.retain(is_wanted);
        marks
    }

    fn add(&mut self, code: &[u8], start: u64) {
        for (bytes, address) in code.windows(MARK_BYTES as usize).zip(start..) {
            match mark::kind(bytes) {
                Some(mark::BEGIN) => self
                    .begins
                    .push(stop(address, address.wrapping_sub(MOVE_BYTES))),
                Some(mark::END) => self.ends.push(stop(address, address + MARK_BYTES)),
                _ => {}
            }
        }
    }
}

/// Returns where the debugger stops for the mark at `address`: there, or `beside` it if it crosses a page.
/// At an instruction that crosses a page Bochs stops twice, and trace and batch would change places.
fn stop(address: u64, beside: u64) -> u64 {
    match address % PAGE > PAGE - MARK_BYTES {
        true => beside,
        false => address,
    }
}

/// Where a file has code whose batches are not traced: there are not breakpoints enough for
/// all. Bandwidth has no ledger; a program of Linux has no machine to itself there; and what
/// processes cost is explained on the other simulated machine.
fn unexplained(file: &ElfBytes<'_, LittleEndian>, segment: Segment) -> Vec<Range<u64>> {
    const BANDWIDTH: &str = "6stream";
    const MACHINE: &str = "12with_machine";
    const PROCESSES: &str = "9processes";
    let never: &[&str] = match segment {
        Segment::Image => &[BANDWIDTH],
        Segment::Program => &[BANDWIDTH, MACHINE, PROCESSES],
    };
    let Ok(Some((symbols, names))) = file.symbol_table() else {
        return Vec::new();
    };
    let is_it = |symbol: &Symbol| {
        let name = names.get(symbol.st_name as usize);
        name.is_ok_and(|name| never.iter().any(|part| name.contains(part)))
    };
    let found = symbols.iter().filter(is_it);
    found
        .map(|symbol| symbol.st_value..symbol.st_value + symbol.st_size)
        .collect()
}

/// What the debugger is told. Where there are more marks than breakpoints, it traces
/// on from the first batch.
fn script(marks: &Marks, segment: Segment) -> Result<String, String> {
    let every: Vec<_> = marks.begins.iter().chain(&marks.ends).copied().collect();
    let most = 2 * MOST_BREAKPOINTS;
    let (places, between) = match (every.len() <= most, marks.begins.len() <= most) {
        _ if marks.begins.is_empty() => {
            return Err("it has no marks: make build, so that all is of one source".to_owned())
        }
        // The step executes the mark at the end.
        (true, _) => (
            &every,
            "c\ntrace on\nc\ns\ntrace off\n".repeat(MOST_BATCHES),
        ),
        (_, true) => (
            &marks.begins,
            format!("c\ntrace on\n{}", GO.repeat(MOST_BATCHES)),
        ),
        _ => {
            return Err(format!(
                "it has more marks than Bochs has breakpoints, {most}"
            ))
        }
    };
    let breakpoint = |(number, place): (usize, &u64)| match number < MOST_BREAKPOINTS {
        true => format!("lb {place:#x}\n"),
        false => format!("vb {:#x}:{place:#x}\n", segment as u16),
    };
    let breakpoints: String = places.iter().enumerate().map(breakpoint).collect();
    Ok(breakpoints + &between)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(begins: u64, ends: u64) -> Marks {
        Marks {
            begins: (0..begins).collect(),
            ends: (100..100 + ends).collect(),
        }
    }

    #[test]
    fn marks_are_found_by_their_bytes() {
        let mark = |kind| [&mark::HEAD[..], &[kind], &mark::TAIL].concat();
        let code = [
            vec![0x90],
            mark(mark::BEGIN),
            mark(mark::IDLE),
            mark(mark::END),
        ]
        .concat();
        let mut found = Marks::default();
        found.add(&code, 0x1000);
        assert_eq!((found.begins, found.ends), (vec![0x1001], vec![0x1011]));
        assert_eq!(Marks::of(b"no program", Segment::Image), Marks::default());
    }

    #[test]
    fn every_mark_has_a_breakpoint_while_there_are_enough() {
        let told = script(&marks(9, 9), Segment::Program).unwrap();
        assert!(told.starts_with("lb 0x0\nlb 0x1\n"), "{told:.200}");
        assert!(told.contains("lb 0x6a\nvb 0x33:0x6b\n"), "{told:.400}");
        assert!(told.contains("trace on\nc\ns\ntrace off\nc\ntrace on\n"));
        let told = script(&marks(20, 20), Segment::Image).unwrap();
        assert!(
            told.contains("vb 0x8:0x13\nc\ntrace on\nc\nc\n"),
            "{told:.600}"
        );
        for (begins, why) in [(0, "no marks"), (40, "more marks")] {
            let told = script(&marks(begins, begins), Segment::Image).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }

    /// Bytes of each mark from the end of a page on.
    #[test]
    fn a_mark_that_crosses_a_page_has_its_breakpoint_beside_it() {
        let mark = |kind| [&mark::HEAD[..], &[kind], &mark::TAIL].concat();
        for (start, begin, end) in [(0xff0, 0xff0, 0x1000), (0xff8, 0xff8, 0x1008)] {
            let mut found = Marks::default();
            let code = [mark(mark::BEGIN), vec![0x90; 8], mark(mark::END)].concat();
            found.add(&code, start);
            assert_eq!((found.begins, found.ends), (vec![begin], vec![end]));
        }
        let mut found = Marks::default();
        found.add(&mark(mark::BEGIN), 0xff9);
        found.add(&mark(mark::END), 0x1fff);
        assert_eq!((found.begins, found.ends), (vec![0xff6], vec![0x2007]));
    }

    #[test]
    fn a_bochs_without_a_debugger_cannot_tell() {
        let bochs = Bochs {
            program: "/opt/bochs".into(),
            version: "3".to_owned(),
            debugger: false,
        };
        let trace = Trace::new(std::sync::Arc::new(std::sync::Mutex::new(Vec::new())));
        let told = Watcher::of(&trace, Path::new("/image"), Segment::Image, &bochs);
        let told = told.unwrap_err().to_string();
        assert!(told.starts_with("/opt/bochs was built without"), "{told}");
        assert!(told.ends_with(REMEDY), "{told}");
    }
}
