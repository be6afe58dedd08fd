//! The path of a timer interrupt through the host to its guest: the code addresses on it, and
//! the timestamps of the interrupts that followed it.
//!
//! No code on the path reads a clock except the guest's handler. The number of instructions that
//! the machine's clock counted from a point to that reading places the point on the guest's
//! clock, exactly. The clock also advances while the CPU is halted, so points before a halt get
//! no timestamp.

use crate::address_space::{AddressLayout, AddressSpace};
use crate::format::FormatError;
use crate::insn::RDTSC;
use crate::symbols::Symbols;
use std::fmt::Write;
use trapline_abi::Interrupt;

/// Plugin argument: trace interrupts on this path.
pub const PATH_ARGUMENT: &str = "way=";

/// Addresses of the first instruction of each function on the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IrqPath {
    /// The host's handler of its timer interrupt.
    pub host_irq: u64,
    /// The handler of the guest's expired timer.
    pub timer_expired: u64,
    /// The function that makes the interrupt pending for the guest.
    pub irq_pended: u64,
    /// The guest's handler.
    pub guest_handler: u64,
}

/// Events that the tracer sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqEvent {
    /// The machine's timer interrupts the host.
    HostIrq,
    /// The timer of the guest expired.
    TimerExpired,
    /// Its interrupt becomes pending.
    IrqPended,
    /// The guest's handler begins.
    GuestHandler,
    /// The clock is read.
    ClockRead,
    /// A guest is entered.
    GuestEntry,
    /// The CPU halts until an interrupt.
    Halt,
}

/// Names of the functions on a path.
struct PathSymbols {
    space: AddressSpace,
    host_irq: &'static str,
    timer_expired: &'static str,
    irq_pended: &'static str,
}

/// The image's handler, in guest/kernel/src/vectors.s.
const GUEST_HANDLER: &str = "take_tick";

/// Linux with KVM, which emulates the guest's local APIC (Linux `arch/x86/kvm/lapic.c`).
const KVM: PathSymbols = PathSymbols {
    space: AddressSpace::Kernel,
    host_irq: "asm_sysvec_apic_timer_interrupt",
    timer_expired: "apic_timer_fn",
    irq_pended: "__apic_accept_irq",
};

/// Xen (`xen/arch/x86/hvm/vpt.c`, `vlapic.c`).
const XEN: PathSymbols = PathSymbols {
    space: AddressSpace::Hypervisor,
    host_irq: "apic_timer_interrupt",
    timer_expired: "pt_timer_fn",
    irq_pended: "vlapic_set_irq",
};

/// Errors of [`IrqPath::find`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IrqPathError {
    /// The image runs on the bare machine.
    #[error("the bare machine has no host that interrupts pass through")]
    Bare,
    /// The guest is nested.
    #[error("interrupts of nested guests are not traced")]
    Nested,
    /// A function of the path has no symbol, or several.
    #[error("symbol {0}: not found, or found more than once")]
    Symbol(&'static str),
}

impl IrqPath {
    /// Finds the path on a machine with these symbols.
    ///
    /// # Errors
    /// The machine has no host, or a function has not exactly one symbol.
    pub fn find(symbols: &Symbols, layout: AddressLayout) -> Result<Self, IrqPathError> {
        let names = match layout {
            AddressLayout::Bare => return Err(IrqPathError::Bare),
            AddressLayout::Nested(_) | AddressLayout::NestedXen(_) => {
                return Err(IrqPathError::Nested)
            }
            AddressLayout::Linux => KVM,
            AddressLayout::Xen => XEN,
        };
        let only = |space, name| match symbols.starts(space, |known| known == name)[..] {
            [(_, address)] => Ok(address),
            _ => Err(IrqPathError::Symbol(name)),
        };
        Ok(Self {
            host_irq: only(names.space, names.host_irq)?,
            timer_expired: only(names.space, names.timer_expired)?,
            irq_pended: only(names.space, names.irq_pended)?,
            guest_handler: only(AddressSpace::Guest, GUEST_HANDLER)?,
        })
    }

    /// Returns the plugin argument for this path.
    pub fn argument(&self) -> String {
        let addresses = [
            self.host_irq,
            self.timer_expired,
            self.irq_pended,
            self.guest_handler,
        ];
        let words = addresses.map(|address| format!("{address:x}"));
        format!("{PATH_ARGUMENT}{}", words.join(":"))
    }

    /// Parses a plugin argument; `None` if it is another one.
    pub fn parse_argument(argument: &str) -> Option<Self> {
        let words = argument.strip_prefix(PATH_ARGUMENT)?.split(':');
        let addresses = words.map(|word| u64::from_str_radix(word, 16).ok());
        let addresses: Vec<u64> = addresses.collect::<Option<_>>()?;
        let [host_irq, timer_expired, irq_pended, guest_handler] = addresses[..] else {
            return None;
        };
        Some(Self {
            host_irq,
            timer_expired,
            irq_pended,
            guest_handler,
        })
    }

    /// Returns the event at an instruction, if there is one.
    pub fn event(&self, address: u64, bytes: &[u8]) -> Option<IrqEvent> {
        match address {
            _ if address == self.host_irq => Some(IrqEvent::HostIrq),
            _ if address == self.irq_pended => Some(IrqEvent::IrqPended),
            _ if address == self.timer_expired => Some(IrqEvent::TimerExpired),
            _ if address == self.guest_handler => Some(IrqEvent::GuestHandler),
            _ if bytes == RDTSC => Some(IrqEvent::ClockRead),
            _ => None,
        }
    }
}

/// Times of one interrupt before the clock reading in its handler, in ticks of the machine's
/// clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IrqTimestamps {
    /// Since the machine's timer interrupted.
    pub woke: Option<u64>,
    /// Since the interrupt became pending.
    pub marked: Option<u64>,
    /// Since the guest was entered.
    pub guest_entry: Option<u64>,
}

/// First word of a line of timestamps.
const PASSAGE: &str = "passage";

/// Stands for a missing timestamp.
const MISSING: &str = "-";

/// Formats the line of one interrupt.
pub fn write(timestamps: &IrqTimestamps) -> String {
    let mut line = PASSAGE.to_owned();
    for since in [timestamps.woke, timestamps.marked, timestamps.guest_entry] {
        // Writing to a string cannot fail.
        let _ = match since {
            Some(since) => write!(line, " {since}"),
            None => write!(line, " {MISSING}"),
        };
    }
    line.push('\n');
    line
}

/// Parses the timestamps in the plugin's output.
///
/// # Errors
/// The first line that is invalid.
pub fn read(text: &str) -> Result<Vec<IrqTimestamps>, FormatError> {
    let invalid = |line: &str| FormatError::Line(line.to_owned());
    let lines = text.lines();
    lines
        .map(|line| parse_line(line).ok_or_else(|| invalid(line)))
        .collect()
}

fn parse_line(line: &str) -> Option<IrqTimestamps> {
    let since = |word: &str| match word {
        MISSING => Some(None),
        number => number.parse().ok().map(Some),
    };
    let mut words = line.strip_prefix(PASSAGE)?.trim_start().split(' ');
    let mut next = || since(words.next()?);
    let timestamps = IrqTimestamps {
        woke: next()?,
        marked: next()?,
        guest_entry: next()?,
    };
    words.next().is_none().then_some(timestamps)
}

/// Error: the guest reported other interrupts than the plugin traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("guest reported {reported} interrupts; plugin traced {traced}")]
pub struct CountMismatch {
    reported: usize,
    traced: usize,
}

/// Adds the traced times to the reported interrupts, which are in the same order. With
/// `others`, `traced` may end with interrupts of another operation.
///
/// # Errors
/// The numbers of interrupts differ.
pub fn stamp(
    interrupts: Vec<&mut Interrupt>,
    traced: &[IrqTimestamps],
    others: bool,
) -> Result<(), CountMismatch> {
    let error = CountMismatch {
        reported: interrupts.len(),
        traced: traced.len(),
    };
    if error.traced < error.reported || (error.traced > error.reported && !others) {
        return Err(error);
    }
    for (interrupt, timestamps) in interrupts.into_iter().zip(traced) {
        let before = |since: u64| interrupt.entered.wrapping_sub(since);
        interrupt.woke = timestamps.woke.map(before);
        interrupt.marked = timestamps.marked.map(before);
    }
    Ok(())
}

/// Returns the time from guest entry to the handler's clock reading, as a number or a range;
/// `None` if one is missing.
pub fn guest_entry_range<'a>(traced: impl Iterator<Item = &'a IrqTimestamps>) -> Option<String> {
    let all: Option<Vec<u64>> = traced.map(|timestamps| timestamps.guest_entry).collect();
    let all = all?;
    match (all.iter().min()?, all.iter().max()?) {
        (min, max) if min == max => Some(min.to_string()),
        (min, max) => Some(format!("{min} to {max}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &str = "ffffffff81c00eb0 T asm_sysvec_apic_timer_interrupt\n\
                            ffffffffc024aef0 t apic_timer_fn\t[kvm]\n\
                            ffffffffc0248360 t __apic_accept_irq\t[kvm]\n";

    fn find(kallsyms: &str) -> Result<IrqPath, IrqPathError> {
        let mut symbols = Symbols::default();
        symbols.add_kallsyms(AddressSpace::Kernel, "kernel", kallsyms);
        IrqPath::find(&symbols, AddressLayout::Linux)
    }

    #[test]
    fn missing_or_ambiguous_symbols_are_errors() {
        let symbol = |name| Err(IrqPathError::Symbol(name));
        assert_eq!(find(KALLSYMS), symbol(GUEST_HANDLER));
        assert_eq!(find(""), symbol("asm_sysvec_apic_timer_interrupt"));
        let twice = format!("{KALLSYMS}ffffffff81000000 t apic_timer_fn\n");
        assert_eq!(find(&twice), symbol("apic_timer_fn"));
        let bare = IrqPath::find(&Symbols::default(), AddressLayout::Bare);
        assert_eq!(bare, Err(IrqPathError::Bare));
    }

    #[test]
    fn plugin_argument_round_trips() {
        let path = IrqPath {
            host_irq: 1 << 63,
            timer_expired: 0xb,
            irq_pended: 0xc,
            guest_handler: 0x11_0894,
        };
        assert_eq!(
            IrqPath::parse_argument(&path.argument()),
            Some(path.clone())
        );
        for argument in [
            "stacks=on",
            "way=",
            "way=1:2",
            "way=1:2:3:x",
            "way=1:2:3:4:5",
        ] {
            assert_eq!(IrqPath::parse_argument(argument), None, "{argument}");
        }
        assert_eq!(path.event(0xb, &[0x55]), Some(IrqEvent::TimerExpired));
        assert_eq!(path.event(0xd, &[0x0f, 0x31]), Some(IrqEvent::ClockRead));
        assert_eq!(path.event(0xd, &[0x55]), None);
    }

    #[test]
    fn interrupts_are_stamped_relative_to_their_handlers() {
        let timestamps = |woke, marked| IrqTimestamps {
            woke,
            marked,
            guest_entry: Some(6),
        };
        let traced = [
            timestamps(Some(900), Some(40)),
            timestamps(None, None),
            timestamps(Some(1), None),
        ];
        let text: String = traced.iter().map(write).collect();
        assert_eq!(read(&text).unwrap(), traced);
        let entered = |entered| Interrupt {
            entered,
            ..Interrupt::default()
        };
        let mut reported = [entered(1_000), entered(2_000)];
        let error = |reported| CountMismatch {
            reported,
            traced: 3,
        };
        assert_eq!(
            stamp(reported.iter_mut().collect(), &traced, false),
            Err(error(2))
        );
        assert_eq!(reported[0].woke, None);
        stamp(reported.iter_mut().collect(), &traced, true).unwrap();
        assert_eq!(
            (reported[0].woke, reported[0].marked),
            (Some(100), Some(960))
        );
        assert_eq!((reported[1].woke, reported[1].marked), (None, None));
        assert_eq!(
            stamp([entered(0); 4].iter_mut().collect(), &traced, true),
            Err(error(4))
        );
        assert_eq!(guest_entry_range(traced.iter()).as_deref(), Some("6"));
    }

    #[test]
    fn invalid_lines_are_quoted() {
        for line in ["passage 1 2", "passage 1 2 3 4", "passage 1 x 3", "window"] {
            assert_eq!(read(line), Err(FormatError::Line(line.to_owned())));
        }
    }
}
