//! The workloads and their operations: names that are an interface.
//!
//! A workload asks one question. Each of its operations has one unit and one
//! direction, and says in a sentence what one operation is, so that nobody has
//! to guess what was counted. On the wire an operation is its number; to people
//! and in stored data it is `workload/operation`.

/// What a figure of an operation counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Clock ticks per operation: nanoseconds on the wall clock, instructions on
    /// the instruction clock.
    Time,
    /// Bytes moved per tick, reported as MB/s on the wall clock and as MB per
    /// thousand million instructions on the instruction clock.
    Rate,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Smaller figures are better.
    Less,
    /// Larger figures are better.
    More,
}

/// One question; a group of operations that are selected together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Workload {
    /// What a kernel does all day: calls, switches, memory.
    Basic,
    /// Memory bandwidth, after McCalpin's STREAM.
    Stream,
    /// What leaves the guest, or would on a virtual machine.
    Exits,
    /// From starting a VMM to the guest's last word.
    Boot,
    /// Interrupts of a timer that keeps time, and their lateness.
    Irq,
}

impl Workload {
    /// Every workload, in the order in which tables show them.
    pub const ALL: [Workload; 5] = [
        Self::Basic,
        Self::Stream,
        Self::Exits,
        Self::Boot,
        Self::Irq,
    ];

    /// The name people type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Stream => "stream",
            Self::Exits => "exits",
            Self::Boot => "boot",
            Self::Irq => "irq",
        }
    }

    /// The question this workload answers.
    pub const fn question(self) -> &'static str {
        match self {
            Self::Basic => "What do a kernel's everyday operations cost here?",
            Self::Stream => "How fast does memory move here?",
            Self::Exits => "What does it cost to leave the guest and come back?",
            Self::Boot => "How long until the guest runs, and where does the time go?",
            Self::Irq => "How late does a timer's interrupt reach the guest, and why?",
        }
    }

    /// The workload called `name`, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|w| w.name() == name)
    }

    /// The operations of this workload, in table order.
    pub fn operations(self) -> impl Iterator<Item = Op> {
        Op::ALL.into_iter().filter(move |op| op.workload() == self)
    }
}

macro_rules! operations {
    ($($variant:ident = $number:literal, $workload:ident, $name:literal, $unit:ident, $direction:ident, $what:literal;)*) => {
        /// An operation: the smallest thing that has a figure.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Op { $(#[doc = $what] $variant = $number,)* }

        impl Op {
            /// Every operation, in the order in which tables show them.
            pub const ALL: [Op; [$($number),*].len()] = [$(Op::$variant),*];

            /// The workload this operation belongs to.
            pub const fn workload(self) -> Workload {
                match self { $(Op::$variant => Workload::$workload,)* }
            }

            /// The operation's name within its workload.
            pub const fn name(self) -> &'static str {
                match self { $(Op::$variant => $name,)* }
            }

            /// What its figure counts.
            pub const fn unit(self) -> Unit {
                match self { $(Op::$variant => Unit::$unit,)* }
            }

            /// Which way is better.
            pub const fn direction(self) -> Direction {
                match self { $(Op::$variant => Direction::$direction,)* }
            }

            /// What one operation is, in a sentence.
            pub const fn what(self) -> &'static str {
                match self { $(Op::$variant => $what,)* }
            }

            /// The operation with this number on the wire, if there is one.
            pub const fn from_number(number: u8) -> Option<Op> {
                match number { $($number => Some(Op::$variant),)* _ => None }
            }
        }
    };
}

operations! {
    Getpid = 0, Basic, "getpid", Time, Less,
        "one request for the caller's process number: a function call in the image, a system call on Linux";
    Yield = 1, Basic, "yield", Time, Less,
        "one switch between two runnable threads, counted";
    Malloc1m = 2, Basic, "malloc-1m", Time, Less,
        "one allocation of 1 MiB of fresh, page-mapped memory";
    FirstTouch4k = 3, Basic, "first-touch-4k", Time, Less,
        "the first write to one 4 KiB page of freshly allocated memory";
    Copy = 16, Stream, "copy", Rate, More,
        "c[i] = a[i] over arrays of doubles, 16 bytes each";
    Scale = 17, Stream, "scale", Rate, More,
        "b[i] = s * c[i] over arrays of doubles, 16 bytes each";
    Add = 18, Stream, "add", Rate, More,
        "c[i] = a[i] + b[i] over arrays of doubles, 24 bytes each";
    Triad = 19, Stream, "triad", Rate, More,
        "a[i] = b[i] + s * c[i] over arrays of doubles, 24 bytes each";
    PortOut = 32, Exits, "port-out", Time, Less,
        "one byte written to the scratch register of the first serial port";
    PortIn = 33, Exits, "port-in", Time, Less,
        "one byte read from the scratch register of the first serial port";
    MmioRead = 34, Exits, "mmio-read", Time, Less,
        "one 32-bit read of a virtio-mmio transport's magic register";
    MmioWrite = 35, Exits, "mmio-write", Time, Less,
        "one 32-bit write to a virtio-mmio transport's feature selector";
    Cpuid = 36, Exits, "cpuid", Time, Less,
        "one cpuid instruction, leaf 0";
    Hypercall = 37, Exits, "hypercall", Time, Less,
        "one hypercall that the hypervisor refuses or ignores";
    SelfIpi = 38, Exits, "self-ipi", Time, Less,
        "one interrupt sent by a CPU to itself, until its handler has run";
    TimerWake = 39, Exits, "timer-wake", Time, Less,
        "how late a halted CPU runs again after its own timer was due";
    PortEmulated = 40, Exits, "port-emulated", Time, Less,
        "one byte read where a PC has its first serial port, from whoever answers for devices here";
    XenHypercall = 41, Exits, "xen-hypercall", Time, Less,
        "one hypercall that Xen answers: which version it is";
    EventChannel = 42, Exits, "event-channel", Time, Less,
        "one event sent by a domain of Xen to itself, until its handler has run";
    BootCreated = 48, Boot, "vm-created", Time, Less,
        "from exec of the VMM until it has created the virtual machine";
    BootEntry = 49, Boot, "first-instruction", Time, Less,
        "from exec of the VMM until the guest's first instruction";
    BootMain = 50, Boot, "main", Time, Less,
        "from exec of the VMM until the guest's main function";
    BootSample = 51, Boot, "first-sample", Time, Less,
        "from exec of the VMM until the guest has sent its first sample";
    BootExit = 52, Boot, "exit", Time, Less,
        "from exec of the VMM until it was reaped, the guest having nothing to do";
    OwnTimer = 56, Irq, "own-timer", Time, Less,
        "how late the handler of the guest's own periodic timer is entered";
    HostTimer = 57, Irq, "host-timer", Time, Less,
        "how late the handler is entered after a periodic timer of whoever runs the guest";
}

impl Op {
    /// The operation called `workload/name`, if there is one.
    pub fn from_path(path: &str) -> Option<Op> {
        let (workload, name) = path.split_once('/')?;
        Op::ALL
            .into_iter()
            .find(|op| op.workload().name() == workload && op.name() == name)
    }

    /// The operation's number on the wire.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// This operation's place in a 64-bit set of operations.
    pub const fn bit(self) -> u64 {
        1 << self.number()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn numbers_and_paths_lead_back_to_their_operation() {
        for op in Op::ALL {
            assert_eq!(Op::from_number(op.number()), Some(op));
            let path = format!("{}/{}", op.workload().name(), op.name());
            assert_eq!(Op::from_path(&path), Some(op));
            assert!(op.number() < 64, "operations must fit a 64-bit set");
        }
        assert_eq!(Op::from_path("exits/port-oot"), None);
        assert_eq!(Op::from_number(63), None);
    }

    #[test]
    fn every_workload_has_operations_and_a_name_that_leads_back() {
        for workload in Workload::ALL {
            assert_eq!(Workload::from_name(workload.name()), Some(workload));
            assert!(workload.operations().count() >= 2);
        }
    }
}
