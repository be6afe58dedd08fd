//! Interrupts of workload `irq` and their packed form in records.
//!
//! Each interrupt has timestamps along its path and the number of its timer expiry. Expiries
//! without an interrupt were missed or coalesced with a later one. A record holds as many
//! interrupts as fit, delta-encoded. They come from a guest, so unpacking checks everything and
//! cannot panic.

use crate::codec::{Error, Reader, Writer, MAX_BODY};

/// Expiries of one window. Nothing is sent within a window.
pub const WINDOW: u32 = 1024;

/// Maximum size of the packed interrupts of one record, in bytes: the body without clock,
/// operation and length.
pub const MAX_PACKED: usize = MAX_BODY - 16;

/// State of the CPU when it was interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum CpuState {
    /// Halted CPU, or sleeping process.
    #[default]
    Halt = 0,
    /// Running code of the guest.
    Code = 1,
    /// Handling an exit from the guest.
    Exit = 2,
}

impl CpuState {
    /// All values, in the order of their numbers.
    pub const ALL: [CpuState; 3] = [CpuState::Halt, CpuState::Code, CpuState::Exit];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            CpuState::Halt => "halt",
            CpuState::Code => "code",
            CpuState::Exit => "exit",
        }
    }
}

/// One interrupt, from its timer to the thread that waits for it. Times are ticks; those before
/// the guest's handler are ticks of the raiser's clock, which may differ from the guest's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interrupt {
    /// Number of the timer expiry, from 0.
    pub sequence: u64,
    /// Due time of the expiry, on the clock of the raiser.
    pub due: u64,
    /// Uncertainty of `due`: the duration of setting the timer.
    pub uncertainty: u64,
    /// Wake-up of the raiser, on its own clock; `None` for the guest's own timer.
    pub woke: Option<u64>,
    /// Time at which the raiser marked the interrupt as pending, on its own clock.
    pub marked: Option<u64>,
    /// Entry of the guest's handler, on the guest's clock.
    pub entered: u64,
    /// End of the handler.
    pub done: u64,
    /// Resumption of the waiting thread.
    pub resumed: u64,
    /// Interrupted activity.
    pub found: CpuState,
}

/// Packs as many of `interrupts` as fit into `buffer`, from the first on. Returns their number and
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

/// Passes the interrupts that [`pack`] has packed to `sink`, in order.
///
/// # Errors
/// Fails at the first damaged interrupt; `sink` has received those before it.
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
    out.number(now.uncertainty)?;
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
    let uncertainty = input.number()?;
    let woke = read_since(input, due)?;
    let marked = read_since(input, woke.unwrap_or(due))?;
    let entered = before.entered.wrapping_add(input.number()?);
    let done = entered.wrapping_add(input.number()?);
    let resumed = done.wrapping_add(input.number()?);
    let found = usize::from(input.byte()?);
    Ok(Interrupt {
        sequence,
        due,
        uncertainty,
        woke,
        marked,
        entered,
        done,
        resumed,
        found: *CpuState::ALL.get(found).ok_or(Error::Malformed)?,
    })
}

/// Code for one tick before `earlier`; as a delay it would be half of all ticks, which does not
/// occur.
const ONE_BEFORE: u64 = 1 << 63;

/// Writes 0 if absent, otherwise the time since `earlier` plus 1. A host may be woken before its
/// guest's timer is due.
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

    /// Realistic interrupt: the clocks of the two sides are far apart.
    fn interrupt(sequence: u64) -> Interrupt {
        let due = (1 << 50) + sequence * 25_000_000;
        let own = sequence.is_multiple_of(3);
        Interrupt {
            sequence,
            due,
            uncertainty: sequence % 7,
            woke: (!own).then_some(due + 5_000),
            marked: (!own).then_some(due + 9_000),
            entered: sequence * 25_000_000 + 12_345,
            done: sequence * 25_000_000 + 12_400,
            resumed: sequence * 25_000_000 + 13_000,
            found: CpuState::ALL[sequence as usize % 3],
        }
    }

    #[test]
    fn a_window_is_equal_after_packing_and_unpacking() {
        let window: Vec<_> = (0..u64::from(WINDOW)).map(interrupt).collect();
        let (mut rest, mut decoded, mut records) = (&window[..], Vec::new(), 0);
        while !rest.is_empty() {
            let mut buffer = [0; MAX_PACKED];
            let (count, used) = pack(rest, &mut buffer);
            assert!(count > 30, "a record holds {count} only");
            decoded.extend(unpacked(&buffer[..used]).unwrap());
            rest = &rest[count..];
            records += 1;
        }
        assert_eq!(decoded, window);
        assert!(records > 1);
    }

    #[test]
    fn extreme_values_are_equal_after_unpacking() {
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
    fn damaged_bytes_are_rejected() {
        let mut buffer = [0; MAX_PACKED];
        let (_, used) = pack(&[interrupt(1)], &mut buffer);
        assert_eq!(unpacked(&buffer[..used - 1]), Err(Error::Short));
        buffer[used - 1] = 3;
        assert_eq!(unpacked(&buffer[..used]), Err(Error::Malformed));
        assert_eq!(unpacked(&[]), Ok(Vec::new()));
    }
}
