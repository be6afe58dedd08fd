//! What the debugger of Bochs traces, as windows: it tells every instruction before it
//! is executed, with its address and its bytes, and marks are known by their
//! bytes there, too.
//!
//! ```text
//! (0).[2023192804] [0x0000029c3c15] 0008:0000000000114c15 (unk. ctxt): mov rcx, rdx  ; 4889d1
//! (0).[2023192810] ??? (physical address not available)
//! ```
//! In brackets stands the clock. Each of these lines is one tick of it, whether or not
//! what it tells was intercepted or faulted; the second is of code that was not
//! there, and is no instruction. Only an interrupt that takes a guest away is a
//! tick without a line.

use crate::charge::Shape;
use crate::wire::{Astray, BadText, Line, Span, Window};
use crate::worlds::Machine;
use std::collections::{BTreeMap, HashMap};
use std::io;
use trapline_abi::mark;

/// Addresses from here on are a kernel's.
const KERNEL: u64 = 1 << 63;

/// How every line begins that tells an instruction, or that there is none.
const HEAD: &[u8] = b"(0).[";

/// The instructions that enter a guest, vmlaunch and vmresume (Intel SDM volume 3,
/// chapter 31).
const ENTER: [[u8; 3]; 2] = [[0x0f, 0x01, 0xc2], [0x0f, 0x01, 0xc3]];

/// The longest instruction, in bytes (Intel SDM volume 2, 2.3.11).
const LONGEST: usize = 15;

/// How often an instruction was executed, and what it is.
#[derive(Clone, Copy, Default)]
struct Told {
    count: u64,
    leaves: bool,
    halts: bool,
}

/// Takes what is traced, piece by piece, and makes windows of it.
pub struct Reader {
    machine: Machine,
    /// Whether marks are executed in a guest.
    marks_in_guest: bool,
    in_guest: bool,
    /// The beginning of a line whose end was not heard yet.
    rest: Vec<u8>,
    /// What was executed in the window that is open.
    open: Option<HashMap<(bool, u64), Told>>,
    windows: Vec<Window>,
    bad: Option<BadText>,
}

/// An instruction, as a line tells it.
#[derive(Debug, PartialEq, Eq)]
struct Executed {
    address: u64,
    bytes: [u8; LONGEST],
    length: usize,
}

impl Reader {
    /// A reader of a machine that has traced nothing yet. Guests have addresses in the
    /// lower half only, as those of ours do.
    pub fn new(machine: Machine, marks_in_guest: bool) -> Self {
        Self {
            machine,
            marks_in_guest,
            in_guest: false,
            rest: Vec::new(),
            open: None,
            windows: Vec::new(),
            bad: None,
        }
    }

    /// The windows that were traced so far.
    ///
    /// # Errors
    /// Marks were out of order, or a line is none.
    pub fn take(&mut self) -> Result<Vec<Window>, BadText> {
        match self.bad.take() {
            Some(bad) => Err(bad),
            None => Ok(std::mem::take(&mut self.windows)),
        }
    }

    fn line(&mut self, line: &[u8]) {
        let Some(told) = line.strip_prefix(HEAD) else {
            // The debugger's other words.
            return;
        };
        match executed(told) {
            Some(executed) => self.executed(&executed),
            None if told.windows(3).any(|word| word == b"???") => self.add(0, Told::default()),
            None => self.complain(BadText::Line(String::from_utf8_lossy(line).into_owned())),
        }
    }

    fn executed(&mut self, executed: &Executed) {
        let bytes = &executed.bytes[..executed.length];
        match mark::kind(bytes) {
            Some(mark::BEGIN) => return self.begin(),
            Some(mark::END) => return self.end(),
            _ => {}
        }
        let in_kernel = executed.address >= KERNEL;
        let leaves = in_kernel && self.in_guest;
        self.in_guest &= !in_kernel;
        let told = Told {
            leaves,
            halts: Shape::of(self.machine, executed.address, bytes, false).halts(),
            count: 0,
        };
        self.add(executed.address, told);
        self.in_guest |= in_kernel && ENTER.iter().any(|enter| bytes == enter);
    }

    fn add(&mut self, address: u64, told: Told) {
        if let Some(open) = &mut self.open {
            let known = open.entry((self.in_guest, address)).or_default();
            known.count += 1;
            known.leaves |= told.leaves;
            known.halts |= told.halts;
        }
    }

    fn begin(&mut self) {
        self.in_guest = self.marks_in_guest;
        if self.open.replace(HashMap::new()).is_some() {
            self.complain(BadText::Astray(Astray::Nested));
        }
    }

    fn end(&mut self) {
        match self.open.take() {
            Some(open) => self.windows.push(window(open)),
            None => self.complain(BadText::Astray(Astray::Unbegun)),
        }
    }

    /// The first thing that is wrong tells most.
    fn complain(&mut self, what: BadText) {
        self.bad.get_or_insert(what);
    }
}

/// What was executed, in an order of its own.
fn window(open: HashMap<(bool, u64), Told>) -> Window {
    let lines = open.into_iter().collect::<BTreeMap<_, _>>().into_iter();
    let lines = lines.map(|((in_guest, address), told)| Line {
        in_guest,
        address,
        page: None,
        count: told.count,
        uncharged: 0,
        leaves: told.leaves,
        halts: told.halts,
    });
    Window {
        span: Span::Batch,
        lines: lines.collect(),
        contexts: Vec::new(),
    }
}

impl io::Write for Reader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut lines = bytes.split(|byte| *byte == b'\n');
        // There is one piece more than ends of lines: the beginning of the next.
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

/// The instruction in a line, behind [`HEAD`]: its address stands behind the first
/// colon, where its selector ends, and its bytes behind the last semicolon.
fn executed(told: &[u8]) -> Option<Executed> {
    let bracket = told.iter().position(|byte| *byte == b']')?;
    let rest = &told[bracket + 1..];
    let colon = rest.iter().position(|byte| *byte == b':')?;
    let address = rest[colon + 1..].split(|byte| *byte == b' ').next()?;
    let semicolon = told.iter().rposition(|byte| *byte == b';')?;
    let digits = told[semicolon + 1..].trim_ascii();
    let mut executed = Executed {
        address: hexadecimal(address)?,
        bytes: [0; LONGEST],
        length: digits.len() / 2,
    };
    let places = executed.bytes.get_mut(..executed.length)?;
    for (place, pair) in places.iter_mut().zip(digits.chunks_exact(2)) {
        *place = hexadecimal(pair)? as u8;
    }
    (executed.length != 0).then_some(executed)
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

    /// A batch of one exit, as Bochs 2.7 traces it.
    const TRACED: &str = "\
Next at t=9\n\
(0).[10] [0x0000029c3c0d] 0008:0000000000114c0d (unk. ctxt): nop  ; 0f1f84000100707a\n\
(0).[11] [0x0000029c3c36] 0008:0000000000114c36 (unk. ctxt): out dx, al  ; ee\n\
(0).[12] [0x00000c0513ae] 0010:ffffffffc03513ae (unk. ctxt): jbe .+10  ; 760a\n\
(0).[13] ??? (physical address not available)\n\
(0).[14] [0x00000c0513a8] 0010:ffffffffc03513a8 (unk. ctxt): vmresume  ; 0f01c3\n\
(0).[15] [0x0000029c3c37] 0008:0000000000114c37 (unk. ctxt): dec r8  ; 49ffc8\n\
(0).[16] [0x0000029c3c3c] 0008:0000000000114c3c (unk. ctxt): nop  ; 0f1f84000200707a\n\
(0).[17] [0x0000029c3c44] 0008:0000000000114c44 (unk. ctxt): lfence  ; 0faee8\n";

    fn read(text: &str, piece: usize) -> Result<Vec<Window>, BadText> {
        let mut reader = Reader::new(Machine::Linux, true);
        for piece in text.as_bytes().chunks(piece) {
            reader.write_all(piece).unwrap();
        }
        reader.take()
    }

    #[test]
    fn what_is_between_marks_is_a_window_with_its_worlds() {
        let windows = read(TRACED, 4096).unwrap();
        let told = windows[0].lines.iter();
        let told: Vec<_> = told
            .map(|line| (line.in_guest, line.address, line.count, line.leaves))
            .collect();
        let expected = [
            (false, 0, 1, false),
            (false, 0xffff_ffff_c035_13a8, 1, false),
            (false, 0xffff_ffff_c035_13ae, 1, true),
            (true, 0x11_4c36, 1, false),
            (true, 0x11_4c37, 1, false),
        ];
        assert_eq!(told, expected);
        assert_eq!(windows.len(), 1);
    }

    #[test]
    fn pieces_may_end_anywhere() {
        let whole = read(TRACED, 4096).unwrap();
        for piece in [1, 7, 80] {
            assert_eq!(read(TRACED, piece).unwrap(), whole);
        }
    }

    #[test]
    fn marks_out_of_order_and_lines_that_are_none_are_told() {
        let line = |number: usize| TRACED.lines().nth(number).unwrap_or_default();
        let twice = format!("{}\n{}\n", line(1), line(1));
        assert_eq!(read(&twice, 99), Err(BadText::Astray(Astray::Nested)));
        let end = format!("{}\n", line(7));
        assert_eq!(read(&end, 99), Err(BadText::Astray(Astray::Unbegun)));
        for bad in ["", "] 0008:11 ; ", "] 0008:x: ; 90", "] 1:2 ; zz"] {
            let told = format!("(0).[1{bad}\n");
            assert!(matches!(read(&told, 99), Err(BadText::Line(_))), "{bad}");
        }
        let long = format!("(0).[1] 0008:0011 ; {}\n", "90".repeat(LONGEST + 1));
        assert!(read(&long, 99).is_err());
    }
}
