//! A guest without the lab: the image in a QEMU of the test's own, and what it
//! says on its console.

use crate::parts;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use trapline_abi::{Decoder, Item, Op, Record};

/// Decoded output of a guest, as far as the tests use it.
#[derive(Debug, Default, PartialEq)]
pub struct Said {
    /// The ring it said it runs in.
    pub ring: Option<u8>,
    /// Checksum of the work of each operation that was measured.
    pub checks: BTreeMap<Op, u64>,
    /// Batches of each operation: ticks and count.
    pub batches: BTreeMap<Op, Vec<(u64, u64)>>,
    /// Operations that were skipped or failed, with the reason.
    pub reasons: BTreeMap<Op, String>,
    /// Its last words, if it panicked.
    pub panic: Option<String>,
    /// The `Done` record was received.
    pub done: bool,
    /// Damaged frames.
    pub damaged: usize,
}

impl Said {
    /// Reads all that a console received.
    pub fn read(console: &[u8]) -> Self {
        let mut said = Self::default();
        let mut decoder = Decoder::new();
        let mut take = |item: Item<'_>| match item {
            Item::Record(record, _) => said.take(&record),
            Item::Damaged => said.damaged += 1,
            Item::Text(_) => {}
        };
        decoder.feed(console, &mut take);
        decoder.finish(&mut take);
        said
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

/// A machine of QEMU's for the image.
pub struct Machine {
    command: Command,
}

impl Machine {
    /// A microvm with everything the workloads touch, on the processor that
    /// `accelerator` (words for QEMU) offers.
    ///
    /// # Panics
    /// If nothing was built.
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

    /// One instruction is one tick: the simulated machine.
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

    /// Boots the image with these words of a job; its exit status and its words.
    ///
    /// # Panics
    /// If QEMU cannot be started.
    pub fn boot(mut self, job: &str) -> (Option<i32>, Said) {
        let output = self
            .command
            .args(["-append", &format!("trapline.console=port {job}")])
            .stdin(Stdio::null())
            .output()
            .expect("QEMU can be started");
        (output.status.code(), Said::read(&output.stdout))
    }
}
