//! What leaves the guest, or would on a virtual machine.
//!
//! Each operation leaves a trace by which it is proved: a register that keeps
//! what was written, a constant that must be read, an interrupt that is counted.

use crate::measure::{repeat, Bench, Work};
use crate::system::{Machine, Reason, System};
use core::arch::x86_64::__cpuid;
use core::hint::black_box;
use trapline_abi::platform::{
    SCRATCH, VIRTIO_DEVICE_FEATURES, VIRTIO_DEVICE_FEATURES_SEL, VIRTIO_MAGIC, VIRTIO_MMIO,
};
use trapline_abi::Op;

/// How far ahead `timer-wake` sets its timer, in ticks.
const SLEEP_TICKS: u64 = 200_000;

pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    with_machine(bench, Op::PortOut, port_out);
    with_machine(bench, Op::PortIn, port_in);
    with_machine(bench, Op::MmioRead, mmio_read);
    with_machine(bench, Op::MmioWrite, mmio_write);
    bench.measure(Op::Cpuid, |_, repetitions| cpuid(repetitions));
    with_machine(bench, Op::Hypercall, hypercall);
    with_machine(bench, Op::SelfIpi, self_ipi);
    timer_wake(bench);
}

/// Measures `op` where there is a machine that supports it.
fn with_machine<S: System>(
    bench: &mut Bench<'_, S>,
    op: Op,
    batch: impl Fn(&mut S::Machine, u64) -> Result<(), Reason>,
) {
    if !bench.job.wants(op) {
        return;
    }
    let supported = bench
        .system
        .machine()
        .and_then(|machine| machine.supports(op));
    if let Err(reason) = supported {
        return bench.skip(op, reason);
    }
    bench.measure(op, |system, repetitions| Work {
        count: repetitions,
        proved: system
            .machine()
            .and_then(|machine| batch(machine, repetitions)),
    });
}

fn port_out(machine: &mut impl Machine, repetitions: u64) -> Result<(), Reason> {
    let last = 0x5a;
    repeat(repetitions, || machine.port_out(SCRATCH, last));
    proved(
        machine.port_in(SCRATCH) == last,
        "the scratch register did not keep the last byte",
    )
}

fn port_in(machine: &mut impl Machine, repetitions: u64) -> Result<(), Reason> {
    let kept = 0xa5;
    machine.port_out(SCRATCH, kept);
    let mut differences = 0;
    repeat(repetitions, || {
        differences |= machine.port_in(SCRATCH) ^ kept
    });
    proved(
        differences == 0,
        "the scratch register read something else than was written",
    )
}

fn mmio_read(machine: &mut impl Machine, repetitions: u64) -> Result<(), Reason> {
    let mut differences = 0;
    repeat(repetitions, || {
        differences |= machine.mmio_read(VIRTIO_MMIO) ^ VIRTIO_MAGIC
    });
    proved(
        differences == 0,
        "the transport's magic register did not read as it must",
    )
}

/// Ends with the selector that shows the feature bit every modern device has:
/// VIRTIO_F_VERSION_1, bit 32 (virtio 1.2, section 6).
fn mmio_write(machine: &mut impl Machine, repetitions: u64) -> Result<(), Reason> {
    let selector = VIRTIO_MMIO + VIRTIO_DEVICE_FEATURES_SEL;
    let features = VIRTIO_MMIO + VIRTIO_DEVICE_FEATURES;
    repeat(repetitions, || machine.mmio_write(selector, 1));
    proved(
        machine.mmio_read(features) & 1 == 1,
        "the transport does not show VIRTIO_F_VERSION_1",
    )
}

fn cpuid(repetitions: u64) -> Work {
    let leaf = black_box(0);
    let highest = __cpuid(leaf).eax;
    let mut differences = 0;
    repeat(repetitions, || differences |= __cpuid(leaf).eax ^ highest);
    let reason = "cpuid leaf 0 gave different answers";
    Work {
        count: repetitions,
        proved: proved(differences == 0, reason),
    }
}

fn hypercall(machine: &mut impl Machine, repetitions: u64) -> Result<(), Reason> {
    let refusal = machine.hypercall();
    let mut differences = 0;
    repeat(repetitions, || differences |= machine.hypercall() ^ refusal);
    proved(
        refusal < 0 && differences == 0,
        "the hypervisor did not refuse an unknown hypercall each time",
    )
}

fn self_ipi(machine: &mut impl Machine, repetitions: u64) -> Result<(), Reason> {
    let before = machine.self_ipis();
    repeat(repetitions, || machine.self_ipi());
    proved(
        machine.self_ipis() - before == repetitions,
        "an interrupt was lost or came twice",
    )
}

/// Each sleep is a sample of its own, from when the timer was due until the
/// sleeper ran.
fn timer_wake<S: System>(bench: &mut Bench<'_, S>) {
    let op = Op::TimerWake;
    if !bench.job.wants(op) {
        return;
    }
    if let Err(reason) = bench.system.sleep(SLEEP_TICKS) {
        return bench.skip(op, reason);
    }
    bench.begin(op, 0);
    let mut proof = Ok(());
    for _ in 0..bench.job.batches {
        match bench.counted(|system| system.sleep(SLEEP_TICKS)) {
            Ok(wake) if wake.woke >= wake.due => bench.sample(op, wake.due, wake.woke, 1),
            Ok(_) => proof = Err("the sleeper woke before its timer was due"),
            Err(reason) => proof = Err(reason),
        }
    }
    match proof {
        Ok(()) => bench.end(op, bench.job.batches, u64::from(op.number())),
        Err(reason) => bench.fail(op, reason),
    }
}

fn proved(so: bool, otherwise: Reason) -> Result<(), Reason> {
    if so {
        Ok(())
    } else {
        Err(otherwise)
    }
}
