//! The image in QEMU without the lab, and its decoded console output.

use crate::parts;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use trapline_abi::{Decoder, Item, Op, Record};

/// Decoded records of a guest.
#[derive(Debug, Default, PartialEq)]
pub struct GuestOutput {
    /// Ring that the guest reported.
    pub ring: Option<u8>,
    /// Checksum of each measured operation.
    pub checks: BTreeMap<Op, u64>,
    /// Batches of each operation: ticks and count.
    pub batches: BTreeMap<Op, Vec<(u64, u64)>>,
    /// Operations that were skipped or failed, with the reason.
    pub reasons: BTreeMap<Op, String>,
    /// Panic message, if any.
    pub panic: Option<String>,
    /// The `Done` record was received.
    pub done: bool,
    /// Damaged frames.
    pub damaged: usize,
}

impl GuestOutput {
    /// Decodes the bytes of a console.
    pub fn read(console: &[u8]) -> Self {
        let mut output = Self::default();
        let mut decoder = Decoder::new();
        let mut take = |item: Item<'_>| match item {
            Item::Record(record, _) => output.take(&record),
            Item::Damaged => output.damaged += 1,
            Item::Text(_) => {}
        };
        decoder.feed(console, &mut take);
        decoder.finish(&mut take);
        output
    }

    fn take(&mut self, record: &Record<'_>) {
        match *record {
            Record::Hello { ring, .. } => self.ring = Some(ring),
            Record::Sample {
                op,
                start,
                end,
                count,
            } => {
                let batches = self.batches.entry(op).or_default();
                batches.push((end.wrapping_sub(start), count));
            }
            Record::End { op, check, .. } => {
                self.checks.insert(op, check);
            }
            Record::Skip { op, reason } | Record::Fail { op, reason } => {
                self.reasons.insert(op, reason.to_owned());
            }
            Record::Panic { message } => self.panic = Some(message.to_owned()),
            Record::Done => self.done = true,
            _ => {}
        }
    }
}

/// A QEMU microvm for the image.
pub struct Machine {
    command: Command,
}

impl Machine {
    /// Returns a microvm with all devices of the workloads and the QEMU options `accelerator`.
    ///
    /// # Panics
    /// Nothing was built.
    pub fn new(accelerator: &[&str]) -> Self {
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args([
                "-M",
                "microvm",
                "-nodefaults",
                "-no-user-config",
                "-display",
                "none",
            ])
            .args(["-m", "128M", "-smp", "1", "-no-reboot", "-serial", "null"])
            .args([
                "-global",
                "virtio-mmio.force-legacy=false",
                "-device",
                "virtio-rng-device",
            ])
            .args(["-chardev", "stdio,id=console,signal=off"])
            .args(["-device", "isa-debugcon,iobase=0xe9,chardev=console"])
            .args(["-device", "isa-debug-exit,iobase=0x501,iosize=4"])
            .args(accelerator)
            .arg("-kernel")
            .arg(parts().join("trapline-image"));
        Self { command }
    }

    /// Returns the simulated machine, in which one instruction is one tick.
    pub fn counting() -> Self {
        Self::new(&[
            "-accel",
            "tcg",
            "-cpu",
            "max",
            "-icount",
            "shift=0,sleep=off",
            "-seed",
            "1",
            "-rtc",
            "base=2024-01-01T00:00:00,clock=vm",
        ])
    }

    /// Boots the image with a job and returns its exit status and output.
    ///
    /// # Panics
    /// QEMU does not start.
    pub fn boot(mut self, job: &str) -> (Option<i32>, GuestOutput) {
        let output = self
            .command
            .args(["-append", &format!("trapline.console=port {job}")])
            .stdin(Stdio::null())
            .output()
            .expect("QEMU starts");
        (output.status.code(), GuestOutput::read(&output.stdout))
    }
}
