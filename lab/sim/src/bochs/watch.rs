//! Scripts for the debugger of Bochs: it continues the machine, and traces the instructions between the
//! markers of a program.
//!
//! A breakpoint at each marker lets the machine run freely outside of batches. Breakpoints take no time on the
//! machine.

use super::program::{Bochs, REMEDY};
use crate::trace::Trace;
use elf::abi::{PF_X, PT_LOAD};
use elf::endian::LittleEndian;
use elf::symbol::Symbol;
use elf::ElfBytes;
use std::ops::Range;
use std::path::Path;
use trapline_abi::marker;
use trapline_host::Error;
use trapline_model::Unavailable;

/// Continues the machine.
pub const GO: &str = "c\n";

/// Number of breakpoints of each kind: at a linear address, and at an address in a code segment.
const MOST_BREAKPOINTS: usize = 16;

/// Size of a page and of a marker, in bytes.
const PAGE: u64 = 4096;
const MARKER_BYTES: u64 = (marker::HEAD.len() + 1 + marker::TAIL.len()) as u64;

/// Size of the move before a marker that begins a batch (`begin_batch` in guest/workloads), in bytes.
const MOVE_BYTES: u64 = 3;

/// Number of traced batches, above that of any job. Commands after the end of the machine are not read.
const MOST_BATCHES: usize = 1 << 14;

/// Code segment in which markers execute.
#[derive(Clone, Copy, Debug)]
pub enum Segment {
    /// The image in ring 0.
    Image = 0x08,
    /// A program of Linux (`__USER_CS`).
    Program = 0x33,
}

/// A trace, and the debugger's script for it.
#[derive(Clone, Debug)]
pub struct Watcher {
    /// Destination of the trace.
    pub trace: Trace,
    /// Script of the debugger.
    pub script: String,
}

impl Watcher {
    /// Traces the instructions between the markers of `program`.
    ///
    /// # Errors
    /// The program cannot be read or has no markers, or Bochs has no debugger.
    pub fn of(
        trace: &Trace,
        program: &Path,
        segment: Segment,
        bochs: &Bochs,
    ) -> Result<Self, Error> {
        if !bochs.debugger {
            let bochs = bochs.program.display();
            let reason =
                format!("{bochs} was built without its debugger, which lists instructions");
            return Err(Error::missing(reason, REMEDY));
        }
        let bytes = std::fs::read(program).map_err(Error::file(program))?;
        let script = script(&Markers::of(&bytes, segment), segment);
        Ok(Self {
            trace: trace.clone(),
            script: script.map_err(|why| Unavailable {
                reason: format!("{}: {}", program.display(), why.reason),
                ..why
            })?,
        })
    }
}

/// Addresses of the markers of batches.
#[derive(Debug, Default, PartialEq, Eq)]
struct Markers {
    begins: Vec<u64>,
    ends: Vec<u64>,
}

impl Markers {
    /// Returns the markers in an ELF file; none in other files.
    fn of(bytes: &[u8], segment: Segment) -> Self {
        let mut markers = Self::default();
        let file = ElfBytes::<LittleEndian>::minimal_parse(bytes).ok();
        let segments = file.as_ref().and_then(ElfBytes::segments);
        let code = |header: &elf::segment::ProgramHeader| {
            header.p_type == PT_LOAD && header.p_flags & PF_X != 0
        };
        for header in segments.into_iter().flatten().filter(code) {
            let data = file.as_ref().map(|file| file.segment_data(&header));
            if let Some(Ok(data)) = data {
                markers.add(data, header.p_vaddr);
            }
        }
        let never = file.as_ref().map(|file| unexplained(file, segment));
        let never = never.unwrap_or_default();
        let is_wanted = |mark: &u64| !never.iter().any(|code| code.contains(mark));
        markers.begins.retain(is_wanted);
        markers.ends.retain(is_wanted);
        markers
    }

    fn add(&mut self, code: &[u8], start: u64) {
        for (bytes, address) in code.windows(MARKER_BYTES as usize).zip(start..) {
            match marker::kind(bytes) {
                Some(marker::BEGIN) => self
                    .begins
                    .push(stop(address, address.wrapping_sub(MOVE_BYTES))),
                Some(marker::END) => self.ends.push(stop(address, address + MARKER_BYTES)),
                _ => {}
            }
        }
    }
}

/// Returns the breakpoint of the marker at `address`: there, or at `beside` if it crosses a page, because Bochs
/// stops twice at an instruction that crosses a page.
fn stop(address: u64, beside: u64) -> u64 {
    match address % PAGE > PAGE - MARKER_BYTES {
        true => beside,
        false => address,
    }
}

/// Returns code whose batches are not traced, because breakpoints are few. `stream` and `memory` have no instruction
/// profile, a Linux program does not own the machine, this one has one CPU and no virtio devices but at the usual transport,
/// and processes, memory hotplug, disks and networks are profiled on the other simulated machine.
fn unexplained(file: &ElfBytes<'_, LittleEndian>, segment: Segment) -> Vec<Range<u64>> {
    const BANDWIDTH: &str = "6stream";
    const LOADS: &str = "6memory";
    const HOTPLUG: &str = "8populate";
    const MACHINE: &str = "12with_machine";
    const PROCESSES: &str = "9processes";
    const NETWORK: &str = "18trapline_workloads3net";
    const FILES: &str = "18trapline_workloads5files";
    const DEVICE: &str = "_of_device";
    const DOORBELL: &str = "8doorbell";
    const PAIR: &str = "18trapline_workloads3ipc";
    const ALL_CPUS: &str = "18trapline_workloads3smp";
    const CALLOC: &str = "18trapline_workloads6calloc";
    const DRIVER: &str = "15trapline_kernel6virtio";
    const DISK: &str = "14trapline_agent5block";
    let never: &[&str] = match segment {
        Segment::Image => &[
            BANDWIDTH, LOADS, HOTPLUG, PROCESSES, NETWORK, DRIVER, FILES, PAIR, ALL_CPUS, DEVICE,
            DOORBELL, CALLOC,
        ],
        Segment::Program => &[
            BANDWIDTH, LOADS, HOTPLUG, MACHINE, PROCESSES, NETWORK, DISK, FILES, PAIR, ALL_CPUS,
            DOORBELL, CALLOC,
        ],
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

/// Returns the script. With more markers than breakpoints, it traces on from the first batch.
fn script(markers: &Markers, segment: Segment) -> Result<String, Unavailable> {
    let every: Vec<_> = markers
        .begins
        .iter()
        .chain(&markers.ends)
        .copied()
        .collect();
    let most = 2 * MOST_BREAKPOINTS;
    let (places, between) = match (every.len() <= most, markers.begins.len() <= most) {
        _ if markers.begins.is_empty() => {
            return Err(Unavailable::new("no markers").help("build all parts with 'make build'"))
        }
        // The step executes the marker at the end.
        (true, _) => (
            &every,
            "c\ntrace on\nc\ns\ntrace off\n".repeat(MOST_BATCHES),
        ),
        (_, true) => (
            &markers.begins,
            format!("c\ntrace on\n{}", GO.repeat(MOST_BATCHES)),
        ),
        _ => {
            return Err(Unavailable::new(format!(
                "more markers than Bochs has breakpoints, {most}"
            )))
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
    use expect_test::expect;

    fn markers(begins: u64, ends: u64) -> Markers {
        Markers {
            begins: (0..begins).collect(),
            ends: (100..100 + ends).collect(),
        }
    }

    #[test]
    fn markers_are_found_by_their_bytes() {
        let mark = |kind| [&marker::HEAD[..], &[kind], &marker::TAIL].concat();
        let code = [
            vec![0x90],
            mark(marker::BEGIN),
            mark(marker::IDLE),
            mark(marker::END),
        ]
        .concat();
        let mut found = Markers::default();
        found.add(&code, 0x1000);
        assert_eq!((found.begins, found.ends), (vec![0x1001], vec![0x1011]));
        assert_eq!(
            Markers::of(b"no program", Segment::Image),
            Markers::default()
        );
    }

    #[test]
    fn every_marker_has_a_breakpoint_up_to_the_limit() {
        let text = script(&markers(9, 9), Segment::Program).unwrap();
        assert!(text.starts_with("lb 0x0\nlb 0x1\n"), "{text:.200}");
        assert!(text.contains("lb 0x6a\nvb 0x33:0x6b\n"), "{text:.400}");
        assert!(text.contains("trace on\nc\ns\ntrace off\nc\ntrace on\n"));
        let text = script(&markers(20, 20), Segment::Image).unwrap();
        assert!(
            text.contains("vb 0x8:0x13\nc\ntrace on\nc\nc\n"),
            "{text:.600}"
        );
        let error = |count| {
            script(&markers(count, count), Segment::Image)
                .unwrap_err()
                .to_string()
        };
        expect![[r#"
            no markers: build all parts with 'make build'
            more markers than Bochs has breakpoints, 32"#]]
        .assert_eq(&[0, 40].map(error).join("\n"));
    }

    /// Markers start at these offsets before the end of a page.
    #[test]
    fn marker_across_pages_has_its_breakpoint_beside_it() {
        let mark = |kind| [&marker::HEAD[..], &[kind], &marker::TAIL].concat();
        for (start, begin, end) in [(0xff0, 0xff0, 0x1000), (0xff8, 0xff8, 0x1008)] {
            let mut found = Markers::default();
            let code = [mark(marker::BEGIN), vec![0x90; 8], mark(marker::END)].concat();
            found.add(&code, start);
            assert_eq!((found.begins, found.ends), (vec![begin], vec![end]));
        }
        let mut found = Markers::default();
        found.add(&mark(marker::BEGIN), 0xff9);
        found.add(&mark(marker::END), 0x1fff);
        assert_eq!((found.begins, found.ends), (vec![0xff6], vec![0x2007]));
    }

    #[test]
    fn bochs_without_a_debugger_is_rejected() {
        let bochs = Bochs {
            program: "/opt/bochs".into(),
            version: "3".to_owned(),
            debugger: false,
        };
        let trace = Trace::new(std::sync::Arc::new(std::sync::Mutex::new(Vec::new())));
        let text = Watcher::of(&trace, Path::new("/image"), Segment::Image, &bochs);
        expect!["/opt/bochs was built without its debugger, which lists instructions: sudo apt-get install --no-install-recommends bochs bochs-term"].assert_eq(&text.unwrap_err().to_string());
    }
}
