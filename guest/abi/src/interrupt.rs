//! Interrupts of workload `irq`, and how many of them go into one record.
//!
//! Each has the clock at several points of its way, and the number of the expiry
//! that it stands for: expiries whose number nobody tells were missed, or came
//! together with a later one. A record holds as many as fit, each told by how it
//! differs from the one before. They come from a guest, so reading them checks
//! everything and cannot panic.

use crate::codec::{Error, Reader, Writer};
use crate::frame::MAX_BODY;

/// Expiries of one window: what is taken without a word in between.
pub const WINDOW: u32 = 1024;

/// The most bytes of interrupts in one record: what remains of a body after clock,
/// operation and length.
pub const MAX_PACKED: usize = MAX_BODY - 16;

/// What an interrupt found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Found {
    /// A halted processor, or a sleeping process.
    #[default]
    Halt = 0,
    /// A program at work.
    Code = 1,
    /// An instruction that had left the guest and was being served.
    Exit = 2,
}

impl Found {
    /// Every value, in order.
    pub const ALL: [Found; 3] = [Found::Halt, Found::Code, Found::Exit];

    /// The name people read.
    pub const fn name(self) -> &'static str {
        match self {
            Found::Halt => "halt",
            Found::Code => "code",
            Found::Exit => "exit",
        }
    }
}

/// One interrupt, from its timer to the thread behind its handler. All times are
/// ticks; those of whoever raises it may be by another clock than the guest's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interrupt {
    /// Which expiry of the timer, from 0.
    pub sequence: u64,
    /// When that was due, by the clock of whoever raises the interrupt.
    pub due: u64,
    /// By how much the timer may really have been due later: what setting it took.
    pub doubt: u64,
    /// When whoever raises it ran, by its own clock; `None` where the guest's own
    /// timer raises it.
    pub woke: Option<u64>,
    /// When it was pending for the guest, by the clock of whoever raised it.
    pub marked: Option<u64>,
    /// When the guest's handler was entered, by the guest's clock.
    pub entered: u64,
    /// When the handler was done.
    pub done: u64,
    /// When the thread behind it ran.
    pub resumed: u64,
    /// What it found.
    pub found: Found,
}

/// Packs the first of `interrupts`, as many as fit `buffer`. Returns how many, and
/// the bytes used.
pub fn pack(interrupts: &[Interrupt], buffer: &mut [u8; MAX_PACKED]) -> (usize, usize) {
    let mut before = Interrupt::default();
    let (mut count, mut used) = (0, 0);
    for interrupt in interrupts {
        let mut out = Writer::new(&mut buffer[used..]);
        if write(&mut out, &before, interrupt).is_err() {
            break;
        }
        used += out.used();
        count += 1;
        before = *interrupt;
    }
    (count, used)
}

/// The interrupts that [`pack`] has packed, in order.
///
/// # Errors
/// `sink` has had those before the first that is damaged.
pub fn unpack(bytes: &[u8], sink: &mut impl FnMut(Interrupt)) -> Result<(), Error> {
    let mut input = Reader::new(bytes);
    let mut before = Interrupt::default();
    while !input.is_empty() {
        before = read(&mut input, &before)?;
        sink(before);
    }
    Ok(())
}

fn write(out: &mut Writer<'_>, before: &Interrupt, now: &Interrupt) -> Result<(), Error> {
    out.number(now.sequence.wrapping_sub(before.sequence))?;
    out.number(now.due.wrapping_sub(before.due))?;
    out.number(now.doubt)?;
    write_since(out, now.woke, now.due)?;
    write_since(out, now.marked, now.woke.unwrap_or(now.due))?;
    out.number(now.entered.wrapping_sub(before.entered))?;
    out.number(now.done.wrapping_sub(now.entered))?;
    out.number(now.resumed.wrapping_sub(now.done))?;
    out.byte(now.found as u8)
}

fn read(input: &mut Reader<'_>, before: &Interrupt) -> Result<Interrupt, Error> {
    let sequence = before.sequence.wrapping_add(input.number()?);
    let due = before.due.wrapping_add(input.number()?);
    let doubt = input.number()?;
    let woke = read_since(input, due)?;
    let marked = read_since(input, woke.unwrap_or(due))?;
    let entered = before.entered.wrapping_add(input.number()?);
    let done = entered.wrapping_add(input.number()?);
    let resumed = done.wrapping_add(input.number()?);
    let found = usize::from(input.byte()?);
    Ok(Interrupt {
        sequence,
        due,
        doubt,
        woke,
        marked,
        entered,
        done,
        resumed,
        found: *Found::ALL.get(found).ok_or(Error::Malformed)?,
    })
}

/// What is sent for one tick before `earlier`: a time that is none, half of all ticks
/// there are later.
const ONE_BEFORE: u64 = 1 << 63;

/// Absent is 0, and a time since `earlier` is sent one higher. A host may be woken before
/// its guest's timer is due.
fn write_since(out: &mut Writer<'_>, time: Option<u64>, earlier: u64) -> Result<(), Error> {
    let since = time.map(|time| time.wrapping_sub(earlier));
    out.number(since.map_or(0, |since| since.checked_add(1).unwrap_or(ONE_BEFORE)))
}

fn read_since(input: &mut Reader<'_>, earlier: u64) -> Result<Option<u64>, Error> {
    let since = match input.number()? {
        ONE_BEFORE => Some(u64::MAX),
        number => number.checked_sub(1),
    };
    Ok(since.map(|since| earlier.wrapping_add(since)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn unpacked(bytes: &[u8]) -> Result<Vec<Interrupt>, Error> {
        let mut found = Vec::new();
        unpack(bytes, &mut |interrupt| found.push(interrupt))?;
        Ok(found)
    }

    /// One as it may really be, the clocks of the two sides far apart.
    fn interrupt(sequence: u64) -> Interrupt {
        let due = (1 << 50) + sequence * 25_000_000;
        let own = sequence.is_multiple_of(3);
        Interrupt {
            sequence,
            due,
            doubt: sequence % 7,
            woke: (!own).then_some(due + 5_000),
            marked: (!own).then_some(due + 9_000),
            entered: sequence * 25_000_000 + 12_345,
            done: sequence * 25_000_000 + 12_400,
            resumed: sequence * 25_000_000 + 13_000,
            found: Found::ALL[sequence as usize % 3],
        }
    }

    #[test]
    fn a_window_survives_its_records() {
        let window: Vec<_> = (0..u64::from(WINDOW)).map(interrupt).collect();
        let (mut rest, mut heard, mut records) = (&window[..], Vec::new(), 0);
        while !rest.is_empty() {
            let mut buffer = [0; MAX_PACKED];
            let (count, used) = pack(rest, &mut buffer);
            assert!(count > 30, "a record holds {count} only");
            heard.extend(unpacked(&buffer[..used]).unwrap());
            rest = &rest[count..];
            records += 1;
        }
        assert_eq!(heard, window);
        assert!(records > 1);
    }

    #[test]
    fn extremes_survive() {
        let odd = [
            Interrupt {
                sequence: u64::MAX,
                due: 3,
                entered: 1,
                ..interrupt(1)
            },
            Interrupt {
                sequence: 0,
                due: u64::MAX,
                woke: Some(u64::MAX),
                marked: None,
                entered: 0,
                done: u64::MAX,
                resumed: 0,
                ..interrupt(2)
            },
        ];
        let mut buffer = [0; MAX_PACKED];
        let (count, used) = pack(&odd, &mut buffer);
        assert_eq!(count, 2);
        assert_eq!(unpacked(&buffer[..used]).unwrap(), odd);
        for ahead in 1..4 {
            let early = Interrupt {
                woke: Some(interrupt(1).due - ahead),
                ..interrupt(1)
            };
            let (_, used) = pack(&[early], &mut buffer);
            assert_eq!(unpacked(&buffer[..used]).unwrap(), [early]);
        }
    }

    #[test]
    fn what_is_damaged_is_refused() {
        let mut buffer = [0; MAX_PACKED];
        let (_, used) = pack(&[interrupt(1)], &mut buffer);
        assert_eq!(unpacked(&buffer[..used - 1]), Err(Error::Short));
        buffer[used - 1] = 3;
        assert_eq!(unpacked(&buffer[..used]), Err(Error::Malformed));
        assert_eq!(unpacked(&[]), Ok(Vec::new()));
    }
}
