//! What is said over a console, one fact a record.
//!
//! A guest says [`Record::Hello`] once, then for each operation `Begin`, its
//! `Sample`s and `End` - or a `Skip` or `Fail` with the reason - and at last
//! `Done`. The VMM speaks the same language on a channel of its own (`Stage`,
//! `Count`), and so does the agent that is init of a simulated machine
//! (`Launch`, `Relay`, `Reaped`). [`encode`] writes a whole frame around a
//! record; reading is [`crate::frame::Decoder`].

use crate::block;
use crate::catalogue::{Op, OpSet};
use crate::codec::{Error, Reader, Writer};
use crate::interrupt;

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $number:literal $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $number,)* }

        impl $name {
            /// Every value, in order.
            pub const ALL: [$name; [$($number),*].len()] = [$($name::$variant),*];

            /// The name people read.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            fn from_number(number: u8) -> Result<Self, Error> {
                match number { $($number => Ok($name::$variant),)* _ => Err(Error::Malformed) }
            }
        }
    };
}

numbered! {
    /// A moment between starting a VMM and reaping it, in order of time.
    Stage {
        /// Just before the VMM is executed; stamped by whoever starts it.
        Exec = 0 "exec",
        /// The VMM's main function.
        VmmMain = 1 "vmm-main",
        /// The virtual machine exists, with memory, CPU and image in place.
        VmCreated = 2 "vm-created",
        /// The VMM is about to enter the guest for the first time.
        VmmEntry = 3 "vmm-entry",
        /// The guest's first instruction.
        GuestEntry = 4 "guest-entry",
        /// The guest's main function.
        GuestMain = 5 "guest-main",
        /// The guest has sent its first sample.
        FirstSample = 6 "first-sample",
        /// The guest is about to leave.
        GuestExit = 7 "guest-exit",
        /// The VMM has seen the guest leave.
        VmmExit = 8 "vmm-exit",
        /// The VMM was reaped; stamped by whoever started it.
        Reaped = 9 "reaped",
    }
}

numbered! {
    /// What a VMM counts.
    Counter {
        /// Exits to the VMM, of every kind.
        UserExits = 0 "user-exits",
        /// Exits from the guest to the hypervisor, where the kernel tells.
        KernelExits = 1 "kernel-exits",
        /// Port accesses that reached the VMM.
        PortExits = 2 "port-exits",
        /// Memory-mapped accesses that reached the VMM.
        MmioExits = 3 "mmio-exits",
        /// Halts that reached the VMM.
        HaltExits = 4 "halt-exits",
        /// Accesses that no device claimed.
        Unclaimed = 5 "unclaimed",
        /// Peak of the VMM's memory beyond guest RAM, in bytes.
        OwnMemory = 6 "own-memory",
        /// CPU time of the VMM's process, in nanoseconds.
        CpuTime = 7 "cpu-time",
        /// Guest TSC minus host TSC, two's complement, where it is known.
        TscOffset = 8 "tsc-offset",
        /// The privilege ring the guest was started in.
        Ring = 9 "ring",
    }
}

numbered! {
    /// Which stream of a child a [`Record::Relay`] carries.
    Channel {
        /// Its console: standard output.
        Console = 0 "console",
        /// The VMM's own events.
        Events = 1 "events",
        /// Its standard error.
        Errors = 2 "errors",
    }
}

numbered! {
    /// Which program speaks.
    Speaker {
        /// The unikernel.
        Image = 0 "image",
        /// The Linux program.
        Agent = 1 "agent",
    }
}

/// One fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// The first word of a guest.
    Hello {
        /// The [`crate::VERSION`] it was built with.
        version: u16,
        /// Who speaks.
        speaker: Speaker,
        /// The privilege ring it runs in.
        ring: u8,
        /// Memory it may use, in bytes.
        memory: u64,
        /// Bit [`Op::bit`] set for each operation that will be tried.
        planned: OpSet,
    },
    /// A stage was reached at guest (or VMM) clock `at`, in ticks.
    Stage {
        /// Which.
        stage: Stage,
        /// When, in ticks of the speaker's TSC.
        at: u64,
    },
    /// An operation begins. Calibration is over.
    Begin {
        /// Which.
        op: Op,
        /// Ticks that a batch of no operations takes, its fixed part: reading the clock,
        /// the marks, entering and leaving the loop. The intercept of the line through the
        /// times of two lengths of the empty loop. Of a lateness ([`Op::is_lateness`]) the
        /// ticks between two readings of the clock, which are not subtracted.
        clock_cost: u64,
        /// Ticks of 1,024 turns of the empty loop, the slope of that line, never negative;
        /// 0 where the batches have no such loop.
        loop_cost: u64,
        /// Exits during the batches so far, where the machine counts them: not
        /// those that telling the records took.
        exits: Option<u64>,
    },
    /// One batch: the raw measurement.
    Sample {
        /// Of which operation.
        op: Op,
        /// Clock before, in ticks.
        start: u64,
        /// Clock after, in ticks.
        end: u64,
        /// What was counted in between: operations, or bytes for a rate.
        count: u64,
    },
    /// An operation is complete and its work was proved.
    End {
        /// Which.
        op: Op,
        /// How many samples were sent.
        samples: u32,
        /// A checksum of the work, equal wherever the work was equal.
        check: u64,
        /// Exits during the batches so far, where the machine counts them: not
        /// those that telling the records took.
        exits: Option<u64>,
    },
    /// An operation that cannot be measured here.
    Skip {
        /// Which.
        op: Op,
        /// Why, for people.
        reason: &'a str,
    },
    /// An operation whose work was not done as it should have been.
    Fail {
        /// Which.
        op: Op,
        /// What was wrong, for people.
        reason: &'a str,
    },
    /// The guest cannot go on.
    Panic {
        /// Its last words.
        message: &'a str,
    },
    /// All that was planned has been said; the guest leaves.
    Done,
    /// A figure that the VMM counted.
    Count {
        /// Which.
        counter: Counter,
        /// Its value.
        value: u64,
    },
    /// An agent starts a child. Stamp: just before its exec.
    Launch {
        /// Number of the child, from 0.
        child: u16,
    },
    /// Bytes that a child wrote.
    Relay {
        /// Number of the child.
        child: u16,
        /// Which of its streams.
        channel: Channel,
        /// What it wrote, at most [`crate::frame::MAX_RELAY`] bytes.
        bytes: &'a [u8],
    },
    /// A child was reaped.
    Reaped {
        /// Number of the child.
        child: u16,
        /// Its wait status, as wait(2) reports it.
        status: u32,
        /// Its peak resident memory in KiB, as getrusage(2) reports it.
        peak_kib: u64,
    },
    /// The guest is ready and waits for one byte on its console to go.
    Ready,
    /// Interrupts of an operation of workload `irq`, in place of samples.
    Interrupts {
        /// Of which operation.
        op: Op,
        /// What [`interrupt::pack`] made of them.
        packed: &'a [u8],
    },
    /// Requests of an operation of workload `block`, in place of samples, in the order in
    /// which they were made.
    Requests {
        /// Of which operation.
        op: Op,
        /// What [`block::pack`] made of them.
        packed: &'a [u8],
    },
}

impl Record<'_> {
    /// The number of this record's kind on the wire.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::Hello { .. } => 1,
            Self::Stage { .. } => 2,
            Self::Begin { .. } => 3,
            Self::Sample { .. } => 4,
            Self::End { .. } => 5,
            Self::Skip { .. } => 6,
            Self::Fail { .. } => 7,
            Self::Panic { .. } => 8,
            Self::Done => 9,
            Self::Count { .. } => 10,
            Self::Launch { .. } => 11,
            Self::Relay { .. } => 12,
            Self::Reaped { .. } => 13,
            Self::Ready => 14,
            Self::Interrupts { .. } => 15,
            Self::Requests { .. } => 16,
        }
    }

    pub(crate) fn write(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        match *self {
            Self::Hello {
                version,
                speaker,
                ring,
                memory,
                planned,
            } => {
                out.number(u64::from(version))?;
                out.byte(speaker as u8)?;
                out.byte(ring)?;
                out.number(memory)?;
                out.wide(planned)
            }
            Self::Stage { stage, at } => {
                out.byte(stage as u8)?;
                out.number(at)
            }
            Self::Begin {
                op,
                clock_cost,
                loop_cost,
                exits,
            } => {
                out.byte(op.number())?;
                out.number(clock_cost)?;
                out.number(loop_cost)?;
                write_exits(out, exits)
            }
            Self::Sample {
                op,
                start,
                end,
                count,
            } => {
                out.byte(op.number())?;
                out.number(start)?;
                out.number(end.wrapping_sub(start))?;
                out.number(count)
            }
            Self::End {
                op,
                samples,
                check,
                exits,
            } => {
                out.byte(op.number())?;
                out.number(u64::from(samples))?;
                out.number(check)?;
                write_exits(out, exits)
            }
            Self::Skip { op, reason } | Self::Fail { op, reason } => {
                out.byte(op.number())?;
                out.bytes(reason.as_bytes())
            }
            Self::Panic { message } => out.bytes(message.as_bytes()),
            Self::Done | Self::Ready => Ok(()),
            Self::Count { counter, value } => {
                out.byte(counter as u8)?;
                out.number(value)
            }
            Self::Launch { child } => out.number(u64::from(child)),
            Self::Relay {
                child,
                channel,
                bytes,
            } => {
                out.number(u64::from(child))?;
                out.byte(channel as u8)?;
                out.bytes(bytes)
            }
            Self::Reaped {
                child,
                status,
                peak_kib,
            } => {
                out.number(u64::from(child))?;
                out.number(u64::from(status))?;
                out.number(peak_kib)
            }
            Self::Interrupts { op, packed } | Self::Requests { op, packed } => {
                out.byte(op.number())?;
                out.bytes(packed)
            }
        }
    }
}

impl<'a> Record<'a> {
    /// Reads the payload of a record of kind `kind`. Every byte must be used.
    pub(crate) fn read(kind: u8, payload: &'a [u8]) -> Result<Self, Error> {
        let mut input = Reader::new(payload);
        let record = Self::read_fields(kind, &mut input)?;
        if input.is_empty() {
            Ok(record)
        } else {
            Err(Error::Malformed)
        }
    }

    fn read_fields(kind: u8, input: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(match kind {
            1 => Self::Hello {
                version: read_u16(input)?,
                speaker: Speaker::from_number(input.byte()?)?,
                ring: input.byte()?,
                memory: input.number()?,
                planned: input.wide()?,
            },
            2 => Self::Stage {
                stage: Stage::from_number(input.byte()?)?,
                at: input.number()?,
            },
            3 => Self::Begin {
                op: read_op(input)?,
                clock_cost: input.number()?,
                loop_cost: input.number()?,
                exits: read_exits(input)?,
            },
            4 => read_sample(input)?,
            5 => Self::End {
                op: read_op(input)?,
                samples: input.number32()?,
                check: input.number()?,
                exits: read_exits(input)?,
            },
            6 => Self::Skip {
                op: read_op(input)?,
                reason: input.text()?,
            },
            7 => Self::Fail {
                op: read_op(input)?,
                reason: input.text()?,
            },
            8 => Self::Panic {
                message: input.text()?,
            },
            9 => Self::Done,
            10 => Self::Count {
                counter: Counter::from_number(input.byte()?)?,
                value: input.number()?,
            },
            11 => Self::Launch {
                child: read_u16(input)?,
            },
            12 => Self::Relay {
                child: read_u16(input)?,
                channel: Channel::from_number(input.byte()?)?,
                bytes: input.bytes()?,
            },
            13 => Self::Reaped {
                child: read_u16(input)?,
                status: input.number32()?,
                peak_kib: input.number()?,
            },
            14 => Self::Ready,
            15 => read_interrupts(input)?,
            16 => read_requests(input)?,
            _ => return Err(Error::Malformed),
        })
    }
}

fn read_sample<'a>(input: &mut Reader<'a>) -> Result<Record<'a>, Error> {
    let op = read_op(input)?;
    let start = input.number()?;
    let end = start.checked_add(input.number()?).ok_or(Error::Malformed)?;
    Ok(Record::Sample {
        op,
        start,
        end,
        count: input.number()?,
    })
}

/// What is packed is looked through, so that whoever unpacks it finds it whole.
fn read_interrupts<'a>(input: &mut Reader<'a>) -> Result<Record<'a>, Error> {
    let op = read_op(input)?;
    let packed = input.bytes()?;
    interrupt::unpack(packed, &mut |_| {})?;
    Ok(Record::Interrupts { op, packed })
}

fn read_requests<'a>(input: &mut Reader<'a>) -> Result<Record<'a>, Error> {
    let op = read_op(input)?;
    let packed = input.bytes()?;
    block::unpack(packed, &mut |_| {})?;
    Ok(Record::Requests { op, packed })
}

fn read_op(input: &mut Reader<'_>) -> Result<Op, Error> {
    Op::from_number(input.byte()?).ok_or(Error::Malformed)
}

fn read_u16(input: &mut Reader<'_>) -> Result<u16, Error> {
    u16::try_from(input.number()?).map_err(|_| Error::Malformed)
}

/// Absent is 0, and a count is sent one higher.
fn write_exits(out: &mut Writer<'_>, exits: Option<u64>) -> Result<(), Error> {
    out.number(exits.map_or(0, |count| count.saturating_add(1)))
}

fn read_exits(input: &mut Reader<'_>) -> Result<Option<u64>, Error> {
    Ok(input.number()?.checked_sub(1))
}
