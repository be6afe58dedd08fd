//! Records: messages from guests, VMMs and agents to the lab.
//!
//! A guest sends [`Record::Hello`], then for each operation `Begin`, its `Sample`s and `End`, or
//! `Skip` or `Fail` with the reason, and at the end `Done`. A VMM sends `Stage` and `Count` on a
//! channel of its own. The agent that is init of a simulated machine sends `Launch`, `Relay` and
//! `Reaped`. [`crate::frame::encode`] writes a record as a frame, [`crate::frame::Decoder`] reads
//! it.

mod format;

use crate::names::numbered;
use crate::operation::{Op, OpSet};

numbered! {
    /// Stage of a boot, from starting a VMM to reaping it, in order of time.
    Stage {
        /// The VMM is about to be executed; stamped by its parent.
        Exec = 0 "exec",
        /// The main function of the VMM begins.
        VmmMain = 1 "vmm-main",
        /// The virtual machine exists, with memory, CPU and image.
        VmCreated = 2 "vm-created",
        /// The VMM is about to enter the guest for the first time.
        VmmEntry = 3 "vmm-entry",
        /// The first instruction of the guest.
        GuestEntry = 4 "guest-entry",
        /// The main function of the guest begins.
        GuestMain = 5 "guest-main",
        /// The guest has sent its first sample.
        FirstSample = 6 "first-sample",
        /// The guest is about to end the machine.
        GuestExit = 7 "guest-exit",
        /// The VMM has detected the end of the guest.
        VmmExit = 8 "vmm-exit",
        /// The VMM was reaped; stamped by its parent.
        Reaped = 9 "reaped",
    }
}

numbered! {
    /// Quantity that a VMM counts.
    Counter {
        /// Exits to the VMM, of every kind.
        UserExits = 0 "user-exits",
        /// Exits from the guest to the hypervisor, where the kernel reports them.
        KernelExits = 1 "kernel-exits",
        /// Port accesses that reached the VMM.
        PortExits = 2 "port-exits",
        /// Memory-mapped accesses that reached the VMM.
        MmioExits = 3 "mmio-exits",
        /// Halts that reached the VMM.
        HaltExits = 4 "halt-exits",
        /// Accesses to addresses without a device.
        Unclaimed = 5 "unclaimed",
        /// Peak memory of the VMM without guest RAM, in bytes.
        OwnMemory = 6 "own-memory",
        /// CPU time of the VMM process, in nanoseconds.
        CpuTime = 7 "cpu-time",
        /// Guest TSC minus host TSC, two's complement, if known.
        TscOffset = 8 "tsc-offset",
        /// Privilege ring in which the guest was started.
        Ring = 9 "ring",
    }
}

numbered! {
    /// Stream of a child process in a [`Record::Relay`].
    Channel {
        /// Console of the guest: standard output.
        Console = 0 "console",
        /// Events of the VMM.
        Events = 1 "events",
        /// Standard error.
        Errors = 2 "errors",
    }
}

numbered! {
    /// Program that sends records.
    Sender {
        /// The unikernel.
        Image = 0 "image",
        /// The Linux program.
        Agent = 1 "agent",
    }
}

/// Message to the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// First record of a guest.
    Hello {
        /// [`crate::VERSION`] of the sender.
        version: u16,
        /// Sending program.
        sender: Sender,
        /// Privilege ring of the sender.
        ring: u8,
        /// Usable memory, in bytes.
        memory: u64,
        /// Operations of the job.
        planned: OpSet,
    },
    /// A stage was reached.
    Stage {
        /// Stage.
        stage: Stage,
        /// Time, in ticks of the sender's TSC.
        at: u64,
    },
    /// An operation begins, after calibration.
    Begin {
        /// Operation.
        op: Op,
        /// Fixed cost of a batch, in ticks: reading the clock, the markers, entering and leaving
        /// the loop. It is the intercept of the line through the times of two lengths of the
        /// empty loop. For a lateness ([`Op::is_lateness`]) it is the time between two readings
        /// of the clock, which is not subtracted.
        clock_cost: u64,
        /// Cost of 1,024 turns of the empty loop, in ticks: the slope of that line, never
        /// negative; 0 if the batches have no such loop.
        loop_cost: u64,
        /// Exits during all batches so far, without those of sending records, if the machine
        /// counts them.
        exits: Option<u64>,
    },
    /// One sample: a batch, or a lateness.
    Sample {
        /// Measured operation.
        op: Op,
        /// Clock at the start, in ticks.
        start: u64,
        /// Clock at the end, in ticks.
        end: u64,
        /// Operations in between, or bytes for a rate.
        count: u64,
    },
    /// An operation is complete and its work was verified.
    End {
        /// Operation.
        op: Op,
        /// Number of samples sent.
        samples: u32,
        /// Checksum of the work: equal if and only if the work was equal.
        check: u64,
        /// Exits during all batches so far, without those of sending records, if the machine
        /// counts them.
        exits: Option<u64>,
    },
    /// An operation cannot be measured here.
    Skip {
        /// Operation.
        op: Op,
        /// Human-readable reason.
        reason: &'a str,
    },
    /// The work of an operation was wrong.
    Fail {
        /// Operation.
        op: Op,
        /// Human-readable reason.
        reason: &'a str,
    },
    /// The guest panicked.
    Panic {
        /// Panic message.
        message: &'a str,
    },
    /// All operations are reported; the guest ends.
    Done,
    /// A count of the VMM.
    Count {
        /// Quantity.
        counter: Counter,
        /// Value.
        value: u64,
    },
    /// The agent starts a child process; sent just before its exec.
    Launch {
        /// Index of the child, from 0.
        child: u16,
    },
    /// Output of a child.
    Relay {
        /// Index of the child.
        child: u16,
        /// Stream of the output.
        channel: Channel,
        /// Output, at most [`crate::frame::MAX_RELAY`] bytes.
        bytes: &'a [u8],
    },
    /// A child was reaped.
    Reaped {
        /// Index of the child.
        child: u16,
        /// Wait status, as in wait(2).
        status: u32,
        /// Peak resident memory, in KiB, as in getrusage(2).
        peak_kib: u64,
    },
    /// The number of the job ([`crate::Job::nonce`]), if it has one. Follows `Hello`.
    Nonce {
        /// As in the job.
        nonce: u64,
    },
    /// The guest waits for one byte on its console before it starts.
    Ready,
    /// Samples of an operation of workload `irq`.
    Interrupts {
        /// Measured operation.
        op: Op,
        /// Output of [`crate::interrupt::pack`].
        packed: &'a [u8],
    },
    /// Work between the batches of an operation, which prepared them. Sent at most once, before its End.
    Idle {
        /// Measured operation.
        op: Op,
        /// Duration, in ticks.
        ticks: u64,
        /// Memory written, in bytes.
        bytes: u64,
    },
    /// Samples of an operation of workload `block`, in the order of submission.
    Requests {
        /// Measured operation.
        op: Op,
        /// Output of [`crate::block::pack`].
        packed: &'a [u8],
    },
}
