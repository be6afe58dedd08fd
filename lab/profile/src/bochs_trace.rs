//! Windows from the instruction trace of Bochs's debugger, which prints every instruction with
//! address and bytes before it is executed. It stops after a marker at the begin of a batch, and traces to that at its
//! end, which is recognized by its bytes.
//!
//! ```text
//! Tracing enabled for CPU0
//! (0).[2023192804] [0x0000029c3c15] 0008:0000000000114c15 (unk. ctxt): mov rcx, rdx  ; 4889d1
//! (0).[2023192810] ??? (physical address not available)
//! ```
//! The first brackets hold the clock. Each of these lines is one tick, whether or not the
//! instruction retires; the second line stands for absent code and is not an instruction. Only an
//! interrupt that makes a guest exit is a tick without a line.

use crate::address_space::{AddressLayout, KERNEL};
use crate::format::{FormatError, InsnCount, MarkerError, Window};
use crate::insn::{Event, InsnTraits, MAX_LENGTH};
use std::collections::BTreeMap;
use std::io;
use trapline_abi::marker;

/// Start of each line that is a tick.
const PREFIX: &[u8] = b"(0).[";

/// Start of the line that follows the marker at the begin of a batch.
const BEGIN: &[u8] = b"Tracing enabled";

/// VMLAUNCH and VMRESUME (Intel SDM volume 3, chapter 31).
const GUEST_ENTRIES: [[u8; 3]; 2] = [[0x0f, 0x01, 0xc2], [0x0f, 0x01, 0xc3]];

/// Executions by mode (true for guests) and address.
type Counts = BTreeMap<(u8, u64), InsnCount>;

/// Reads a trace in pieces of any size.
pub struct TraceReader {
    layout: AddressLayout,
    markers_in_guest: bool,
    in_guest: bool,
    /// Start of an incomplete line.
    rest: Vec<u8>,
    open: Option<Counts>,
    windows: Vec<Window>,
    error: Option<FormatError>,
}

/// An instruction in a line.
#[derive(Debug, PartialEq, Eq)]
struct TracedInsn {
    address: u64,
    bytes: [u8; MAX_LENGTH],
    length: usize,
}

impl TraceReader {
    /// Creates a reader. With `markers_in_guest` the guest executes the markers. Guests
    /// must use addresses of the lower half only, as the image does.
    pub fn new(layout: AddressLayout, markers_in_guest: bool) -> Self {
        Self {
            layout,
            markers_in_guest,
            in_guest: false,
            rest: Vec::new(),
            open: None,
            windows: Vec::new(),
            error: None,
        }
    }

    /// Removes and returns the windows read so far.
    ///
    /// # Errors
    /// The first invalid line or marker out of order.
    pub fn take(&mut self) -> Result<Vec<Window>, FormatError> {
        match self.error.take() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut self.windows)),
        }
    }

    fn line(&mut self, line: &[u8]) {
        let Some(tick) = line.strip_prefix(PREFIX) else {
            // Other output of the debugger.
            if line.starts_with(BEGIN) {
                self.begin();
            }
            return;
        };
        match parse_insn(tick) {
            Some(insn) => self.execute(&insn),
            None if tick.windows(3).any(|word| word == b"???") => self.add(0, false, None),
            None => self.fail(FormatError::Line(
                String::from_utf8_lossy(line).into_owned(),
            )),
        }
    }

    fn execute(&mut self, insn: &TracedInsn) {
        let bytes = &insn.bytes[..insn.length];
        match marker::kind(bytes) {
            Some(marker::BEGIN) => return self.fail(FormatError::Marker(MarkerError::Nested)),
            Some(marker::END) => return self.end(),
            _ => {}
        }
        let in_kernel = insn.address >= KERNEL;
        let is_exit_target = in_kernel && self.in_guest;
        self.in_guest &= !in_kernel;
        let event = InsnTraits::new(self.layout, insn.address, bytes, false).event();
        self.add(insn.address, is_exit_target, event);
        self.in_guest |= in_kernel && GUEST_ENTRIES.iter().any(|entry| bytes == entry);
    }

    fn add(&mut self, address: u64, is_exit_target: bool, event: Option<Event>) {
        let level = u8::from(self.in_guest);
        if let Some(open) = &mut self.open {
            let known = open.entry((level, address)).or_insert(InsnCount {
                level,
                address,
                ..InsnCount::default()
            });
            known.count += 1;
            known.is_exit_target |= is_exit_target;
            known.event = known.event.or(event.filter(|_| level == 0));
        }
    }

    fn begin(&mut self) {
        self.in_guest = self.markers_in_guest;
        if self.open.replace(Counts::new()).is_some() {
            self.fail(FormatError::Marker(MarkerError::Nested));
        }
    }

    fn end(&mut self) {
        match self.open.take() {
            Some(open) => self.windows.push(Window {
                insns: open.into_values().collect(),
                charges_faults: true,
                ..Window::default()
            }),
            None => self.fail(FormatError::Marker(MarkerError::Unbegun)),
        }
    }

    /// Keeps the first error.
    fn fail(&mut self, error: FormatError) {
        self.error.get_or_insert(error);
    }
}

impl io::Write for TraceReader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut lines = bytes.split(|byte| *byte == b'\n');
        // The last piece has no newline.
        let last = lines.next_back().unwrap_or_default();
        for line in lines {
            if self.rest.is_empty() {
                self.line(line);
            } else {
                let mut whole = std::mem::take(&mut self.rest);
                whole.extend(line);
                self.line(&whole);
            }
        }
        self.rest.extend(last);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Parses the instruction in a line without [`PREFIX`]: the address follows the first colon after
/// the bracket, which ends the selector, and the bytes follow the last semicolon.
fn parse_insn(tick: &[u8]) -> Option<TracedInsn> {
    let bracket = tick.iter().position(|byte| *byte == b']')?;
    let rest = &tick[bracket + 1..];
    let colon = rest.iter().position(|byte| *byte == b':')?;
    let address = rest[colon + 1..].split(|byte| *byte == b' ').next()?;
    let semicolon = tick.iter().rposition(|byte| *byte == b';')?;
    let digits = tick[semicolon + 1..].trim_ascii();
    let mut insn = TracedInsn {
        address: hexadecimal(address)?,
        bytes: [0; MAX_LENGTH],
        length: digits.len() / 2,
    };
    let bytes = insn.bytes.get_mut(..insn.length)?;
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = hexadecimal(pair)? as u8;
    }
    (insn.length != 0).then_some(insn)
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let value = |digit: u8| char::from(digit).to_digit(16).map(u64::from);
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    let mut digits = digits.iter();
    digits.try_fold(0, |sum, digit| Some(sum << 4 | value(*digit)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A batch with one exit, in the format of Bochs 2.7.
    const TRACE: &str = "\
Next at t=10\n\
Tracing enabled for CPU0\n\
(0).[11] [0x0000029c3c36] 0008:0000000000114c36 (unk. ctxt): out dx, al  ; ee\n\
(0).[12] [0x00000c0513ae] 0010:ffffffffc03513ae (unk. ctxt): jbe .+10  ; 760a\n\
(0).[13] ??? (physical address not available)\n\
(0).[14] [0x00000c0513a8] 0010:ffffffffc03513a8 (unk. ctxt): vmresume  ; 0f01c3\n\
(0).[15] [0x0000029c3c37] 0008:0000000000114c37 (unk. ctxt): dec r8  ; 49ffc8\n\
(0).[16] [0x0000029c3c3c] 0008:0000000000114c3c (unk. ctxt): xchg bx, bx  ; 2e3e2e3e366687db\n\
(0).[17] [0x0000029c3c44] 0008:0000000000114c44 (unk. ctxt): lfence  ; 0faee8\n";

    fn read(text: &str, piece: usize) -> Result<Vec<Window>, FormatError> {
        let mut reader = TraceReader::new(AddressLayout::Linux, true);
        for piece in text.as_bytes().chunks(piece) {
            reader.write_all(piece).unwrap();
        }
        reader.take()
    }

    #[test]
    fn instructions_between_markers_are_counted_by_mode() {
        let windows = read(TRACE, 4096).unwrap();
        let insns = windows[0].insns.iter();
        let insns: Vec<_> = insns
            .map(|insn| (insn.level, insn.address, insn.count, insn.is_exit_target))
            .collect();
        let expected = [
            (0, 0, 1, false),
            (0, 0xffff_ffff_c035_13a8, 1, false),
            (0, 0xffff_ffff_c035_13ae, 1, true),
            (1, 0x11_4c36, 1, false),
            (1, 0x11_4c37, 1, false),
        ];
        assert_eq!(insns, expected);
        assert_eq!(windows.len(), 1);
    }

    #[test]
    fn pieces_may_end_anywhere() {
        let whole = read(TRACE, 4096).unwrap();
        for piece in [1, 7, 80] {
            assert_eq!(read(TRACE, piece).unwrap(), whole);
        }
    }

    #[test]
    fn invalid_lines_and_markers_out_of_order_are_errors() {
        let line = |number: usize| TRACE.lines().nth(number).unwrap_or_default();
        let marker = |error| Err(FormatError::Marker(error));
        let twice = format!("{}\n{}\n", line(1), line(1));
        assert_eq!(read(&twice, 99), marker(MarkerError::Nested));
        let end = format!("{}\n", line(7));
        assert_eq!(read(&end, 99), marker(MarkerError::Unbegun));
        let long = format!("] 0008:0011 ; {}", "90".repeat(MAX_LENGTH + 1));
        for invalid in ["", "] 0008:11 ; ", "] 0008:x: ; 90", "] 1:2 ; zz", &long] {
            let text = format!("(0).[1{invalid}\n");
            let expected = Err(FormatError::Line(text.trim_end_matches('\n').to_owned()));
            assert_eq!(read(&text, 99), expected);
        }
    }
}
