//! The way of a timer's interrupt through whoever is below its guest: which code it
//! leads over, and what that says of the interrupts that a guest has told.
//!
//! Nobody on the way reads a clock. The guest's handler does, and how many
//! instructions the machine's clock was charged from a point to that reading places
//! the point on the guest's clock, to the instruction. While the machine sleeps its
//! clock goes on without any, so what lies before a sleep is not told.

use crate::symbols::Symbols;
use crate::worlds::{Machine, Space};
use std::fmt::Write;
use trapline_abi::Interrupt;

/// The plugin's argument that names a way.
pub const WAY: &str = "way=";

/// Reads the clock (Intel SDM volume 2, RDTSC).
const RDTSC: [u8; 2] = [0x0f, 0x31];

/// Addresses of first instructions that the way leads over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The machine's timer has interrupted.
    pub woke: u64,
    /// The timer that was set for the guest is found to have expired.
    pub expired: u64,
    /// The interrupt becomes pending for the guest.
    pub marked: u64,
    /// The guest's handler.
    pub handler: u64,
}

/// What an instruction on the way means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The machine's timer has interrupted.
    Woke,
    /// A timer for the guest has expired.
    Expired,
    /// Its interrupt becomes pending.
    Marked,
    /// The guest's handler begins.
    Handler,
    /// Somebody reads the clock.
    Clock,
    /// A guest is entered.
    Enter,
    /// The machine sleeps.
    Sleep,
}

/// Names of functions at whose first instruction an interrupt is at a point.
struct Names {
    space: Space,
    woke: &'static str,
    expired: &'static str,
    marked: &'static str,
}

/// The image's handler, in guest/kernel/src/vectors.s.
const HANDLER: &str = "take_tick";

/// Of a Linux whose KVM raises the interrupt of a guest's local APIC (Linux
/// `arch/x86/kvm/lapic.c`).
const KVM: Names = Names {
    space: Space::Kernel,
    woke: "asm_sysvec_apic_timer_interrupt",
    expired: "apic_timer_fn",
    marked: "__apic_accept_irq",
};

/// Of Xen (`xen/arch/x86/hvm/vpt.c`, `vlapic.c`).
const XEN: Names = Names {
    space: Space::Hypervisor,
    woke: "apic_timer_interrupt",
    expired: "pt_timer_fn",
    marked: "vlapic_set_irq",
};

/// Nobody can tell where on the way an interrupt is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoWay {
    /// Nobody is below who could be watched.
    #[error("nobody is below the guest but the machine")]
    Bare,
    /// A function cannot be found.
    #[error("{0} is not among the symbols, or more than once")]
    NotNamed(&'static str),
}

impl Way {
    /// The way on a machine whose code has these names.
    ///
    /// # Errors
    /// There is none, or one of its functions has no name.
    pub fn of(symbols: &Symbols, machine: Machine) -> Result<Self, NoWay> {
        let names = match machine {
            Machine::Bare => return Err(NoWay::Bare),
            Machine::Linux => KVM,
            Machine::Xen => XEN,
        };
        let only = |space, name| match symbols.starts(space, |known| known == name)[..] {
            [(_, address)] => Ok(address),
            _ => Err(NoWay::NotNamed(name)),
        };
        Ok(Self {
            woke: only(names.space, names.woke)?,
            expired: only(names.space, names.expired)?,
            marked: only(names.space, names.marked)?,
            handler: only(Space::Guest, HANDLER)?,
        })
    }

    /// The plugin's argument that says it.
    pub fn word(&self) -> String {
        let points = [self.woke, self.expired, self.marked, self.handler];
        let all = points.map(|address| format!("{address:x}"));
        format!("{WAY}{}", all.join(":"))
    }

    /// What such an argument says; `None` if it is none.
    pub fn from_word(word: &str) -> Option<Self> {
        let addresses = word.strip_prefix(WAY)?.split(':');
        let addresses = addresses.map(|word| u64::from_str_radix(word, 16).ok());
        let addresses: Vec<u64> = addresses.collect::<Option<_>>()?;
        let [woke, expired, marked, handler] = addresses[..] else {
            return None;
        };
        Some(Self {
            woke,
            expired,
            marked,
            handler,
        })
    }

    /// What an instruction on this way means, if it is on it.
    pub fn step(&self, address: u64, bytes: &[u8]) -> Option<Step> {
        match address {
            _ if address == self.woke => Some(Step::Woke),
            _ if address == self.marked => Some(Step::Marked),
            _ if address == self.expired => Some(Step::Expired),
            _ if address == self.handler => Some(Step::Handler),
            _ if bytes == RDTSC => Some(Step::Clock),
            _ => None,
        }
    }
}

/// How long before the reading of the clock in its handler an interrupt was at each
/// point, in ticks of the machine's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// Since the machine's timer interrupted.
    pub woke: Option<u64>,
    /// Since it became pending.
    pub marked: Option<u64>,
    /// Since the guest was entered.
    pub in_guest: Option<u64>,
}

/// How a passage is told.
const PASSAGE: &str = "passage";

/// What stands for a point that was not seen.
const NOT_SEEN: &str = "-";

/// The line of one passage.
pub fn write(passage: &Passage) -> String {
    let mut line = PASSAGE.to_owned();
    for since in [passage.woke, passage.marked, passage.in_guest] {
        // Writing to a string cannot fail.
        let _ = match since {
            Some(since) => write!(line, " {since}"),
            None => write!(line, " {NOT_SEEN}"),
        };
    }
    line.push('\n');
    line
}

/// The passages in what the plugin wrote.
///
/// # Errors
/// A line is none.
pub fn read(text: &str) -> Result<Vec<Passage>, crate::wire::BadText> {
    let bad = |line: &str| crate::wire::BadText::Line(line.to_owned());
    let passages = text.lines().map(|line| read_line(line).ok_or(bad(line)));
    passages.collect()
}

fn read_line(line: &str) -> Option<Passage> {
    let since = |word: &str| match word {
        NOT_SEEN => Some(None),
        number => number.parse().ok().map(Some),
    };
    let mut words = line.strip_prefix(PASSAGE)?.trim_start().split(' ');
    let mut next = || since(words.next()?);
    let passage = Passage {
        woke: next()?,
        marked: next()?,
        in_guest: next()?,
    };
    words.next().is_none().then_some(passage)
}

/// The guest told of other interrupts than were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{told} interrupts were told, and {seen} were seen to come")]
pub struct OtherInterrupts {
    told: usize,
    seen: usize,
}

/// Says of interrupts when they were at the points that were seen. `passages` are in the
/// same order; if `others` came by the same handler they came later.
///
/// # Errors
/// Not as many were seen as were told.
pub fn stamp(
    interrupts: &mut [Interrupt],
    passages: &[Passage],
    others: bool,
) -> Result<(), OtherInterrupts> {
    let (told, seen) = (interrupts.len(), passages.len());
    if seen < told || (seen > told && !others) {
        return Err(OtherInterrupts { told, seen });
    }
    for (interrupt, passage) in interrupts.iter_mut().zip(passages) {
        let before = |since: u64| interrupt.entered.wrapping_sub(since);
        interrupt.woke = passage.woke.map(before);
        interrupt.marked = passage.marked.map(before);
    }
    Ok(())
}

/// How long before the handler's reading of the clock guests were entered, in words; `None`
/// where one was not seen to be.
pub fn guest_entered<'a>(passages: impl Iterator<Item = &'a Passage>) -> Option<String> {
    let all: Option<Vec<u64>> = passages.map(|passage| passage.in_guest).collect();
    let all = all?;
    match (all.iter().min()?, all.iter().max()?) {
        (least, most) if least == most => Some(least.to_string()),
        (least, most) => Some(format!("{least} to {most}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "ffffffff81c00eb0 T asm_sysvec_apic_timer_interrupt\n\
                          ffffffffc024aef0 t apic_timer_fn\t[kvm]\n\
                          ffffffffc0248360 t __apic_accept_irq\t[kvm]\n";

    fn way(listed: &str) -> Result<Way, NoWay> {
        let mut symbols = Symbols::default();
        symbols.add_kallsyms("kernel", listed);
        Way::of(&symbols, Machine::Linux)
    }

    #[test]
    fn a_way_whose_functions_have_no_names_is_none() {
        assert_eq!(way(LISTED), Err(NoWay::NotNamed(HANDLER)));
        assert_eq!(
            way(""),
            Err(NoWay::NotNamed("asm_sysvec_apic_timer_interrupt"))
        );
        let symbols = Symbols::default();
        let bare = Way::of(&symbols, Machine::Bare).unwrap_err();
        assert_eq!(bare, NoWay::Bare);
        let twice = format!("{LISTED}ffffffff81000000 t apic_timer_fn\n");
        let told = way(&twice).unwrap_err().to_string();
        assert!(
            told.contains("apic_timer_fn") && told.contains("once"),
            "{told}"
        );
    }

    #[test]
    fn the_plugin_is_told_the_way() {
        let way = Way {
            woke: 1 << 63,
            expired: 0xb,
            marked: 0xc,
            handler: 0x11_0894,
        };
        assert_eq!(Way::from_word(&way.word()), Some(way.clone()));
        for word in [
            "stacks=on",
            "way=",
            "way=1:2",
            "way=1:2:3:x",
            "way=1:2:3:4:5",
        ] {
            assert_eq!(Way::from_word(word), None, "{word}");
        }
        assert_eq!(way.step(0xb, &[0x55]), Some(Step::Expired));
        assert_eq!(way.step(0xd, &[0x0f, 0x31]), Some(Step::Clock));
        assert_eq!(way.step(0xd, &[0x55]), None);
    }

    #[test]
    fn interrupts_are_stamped_back_from_their_handlers() {
        let passage = |woke, marked| Passage {
            woke,
            marked,
            in_guest: Some(6),
        };
        let seen = [
            passage(Some(900), Some(40)),
            passage(None, None),
            passage(Some(1), None),
        ];
        let text: String = seen.iter().map(write).collect();
        assert_eq!(read(&text).unwrap(), seen);
        let entered = |entered| Interrupt {
            entered,
            ..Interrupt::default()
        };
        let mut told = [entered(1_000), entered(2_000)];
        let short = stamp(&mut told, &seen, false).unwrap_err().to_string();
        assert!(
            short.starts_with("2 interrupts were told, and 3"),
            "{short}"
        );
        assert_eq!(told[0].woke, None);
        stamp(&mut told, &seen, true).unwrap();
        assert_eq!((told[0].woke, told[0].marked), (Some(100), Some(960)));
        assert_eq!((told[1].woke, told[1].marked), (None, None));
        let error = stamp(&mut [entered(0); 4], &seen, true).unwrap_err();
        assert!(error.to_string().starts_with("4 interrupts were told"));
        assert_eq!(guest_entered(seen.iter()).as_deref(), Some("6"));
        for line in ["passage 1 2", "passage 1 2 3 4", "passage 1 x 3", "window"] {
            assert!(read(line).unwrap_err().to_string().contains(line));
        }
    }
}
