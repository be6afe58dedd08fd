//! What leaves the guest, or would on a virtual machine.
//!
//! Each operation leaves a trace by which it is proved: a register that keeps
//! what was written, a constant that must be read, an interrupt that is counted.

use crate::measure::{proved, repeat, Bench, Work};
use crate::system::{Machine, Reason, System};
use core::arch::x86_64::__cpuid;
use core::cell::Cell;
use core::hint::black_box;
use trapline_abi::platform::{
    NO_DEVICE, SCRATCH, VIRTIO_DEVICE_FEATURES, VIRTIO_DEVICE_FEATURES_SEL, VIRTIO_MAGIC,
    VIRTIO_MMIO,
};
use trapline_abi::Op;

/// How far ahead `timer-wake` sets its timer, in ticks.
const SLEEP_TICKS: u64 = 200_000;

/// Sleeps of `timer-wake` that are not recorded. KVM polls for a while before it puts a
/// halted vCPU to sleep, and doubles that time from 10 us on with each halt that outlasts it
/// (virt/kvm/kvm_main.c, `kvm_vcpu_halt`); five halts of 200 us bring it to its limit,
/// which is 200 us, too.
const WARM_UP_SLEEPS: u32 = 8;

pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    port_out(bench);
    port_in(bench);
    mmio_read(bench);
    mmio_write(bench);
    cpuid(bench);
    hypercall(bench);
    self_ipi(bench);
    timer_wake(bench);
    port_emulated(bench);
    xen_hypercall(bench);
    event_channel(bench);
}

/// Measures `op` where there is a machine that supports it. `prepare` gives what
/// `batch` and `prove` are told; neither it nor the proof is inside the time.
///
/// A function of its own for each operation: by its name the lab tells marks of a machine's
/// operations from those that any program executes.
#[inline(never)]
fn with_machine<S: System, T: Copy>(
    bench: &mut Bench<'_, S>,
    op: Op,
    prepare: impl Fn(&mut S::Machine) -> T,
    batch: impl Fn(&mut S::Machine, T, u64) -> u64,
    prove: impl Fn(&mut S::Machine, T, Work) -> Result<(), Reason>,
) {
    if !bench.job.wants(op) {
        return;
    }
    let supported = match bench.system.machine() {
        Ok(machine) => machine.supports(op).map(|()| prepare(machine)),
        Err(reason) => Err(reason),
    };
    match supported {
        Ok(prepared) => bench.measure(
            op,
            |system, count| {
                let machine = system.machine();
                let evidence = machine.map_or(0, |machine| batch(machine, prepared, count));
                Work { count, evidence }
            },
            |system, work| prove(system.machine()?, prepared, work),
        ),
        Err(reason) => bench.skip(op, reason),
    }
    bench.system.quiesce();
}

fn port_out<S: System>(bench: &mut Bench<'_, S>) {
    const LAST: u8 = 0x5a;
    with_machine(
        bench,
        Op::PortOut,
        |_| (),
        |machine, (), repetitions| {
            repeat(repetitions, || machine.port_out(SCRATCH, LAST));
            0
        },
        |machine, (), _| {
            let kept = machine.port_in(SCRATCH);
            // So that the next batch has to write it again.
            machine.port_out(SCRATCH, !LAST);
            proved(
                kept == LAST,
                "the scratch register did not keep the last byte",
            )
        },
    );
}

fn port_in<S: System>(bench: &mut Bench<'_, S>) {
    const KEPT: u8 = 0xa5;
    with_machine(
        bench,
        Op::PortIn,
        |machine| machine.port_out(SCRATCH, KEPT),
        |machine, (), repetitions| {
            let mut differences = 0;
            repeat(repetitions, || {
                differences |= machine.port_in(SCRATCH) ^ KEPT
            });
            differences.into()
        },
        |_, (), work| work.alike("the scratch register read something else than was written"),
    );
}

fn mmio_read<S: System>(bench: &mut Bench<'_, S>) {
    with_machine(
        bench,
        Op::MmioRead,
        |_| (),
        |machine, (), repetitions| {
            let mut differences = 0;
            repeat(repetitions, || {
                differences |= machine.mmio_read(VIRTIO_MMIO) ^ VIRTIO_MAGIC
            });
            differences.into()
        },
        |_, (), work| work.alike("the transport's magic register did not read as it must"),
    );
}

/// Leaves the selector so that it shows the feature bit every modern device has:
/// VIRTIO_F_VERSION_1, bit 32 (virtio 1.2, section 6).
fn mmio_write<S: System>(bench: &mut Bench<'_, S>) {
    let selector = VIRTIO_MMIO + VIRTIO_DEVICE_FEATURES_SEL;
    let features = VIRTIO_MMIO + VIRTIO_DEVICE_FEATURES;
    with_machine(
        bench,
        Op::MmioWrite,
        |_| (),
        |machine, (), repetitions| {
            repeat(repetitions, || machine.mmio_write(selector, 1));
            0
        },
        |machine, (), _| {
            let shown = machine.mmio_read(features) & 1 == 1;
            machine.mmio_write(selector, 0);
            proved(shown, "the transport does not show VIRTIO_F_VERSION_1")
        },
    );
}

fn cpuid<S: System>(bench: &mut Bench<'_, S>) {
    let leaf = black_box(0);
    let highest = __cpuid(leaf).eax;
    bench.measure(
        Op::Cpuid,
        |_, repetitions| {
            let mut differences = 0;
            repeat(repetitions, || differences |= __cpuid(leaf).eax ^ highest);
            Work::compared(repetitions, differences)
        },
        |_, work| work.alike("cpuid leaf 0 gave different answers"),
    );
}

fn hypercall<S: System>(bench: &mut Bench<'_, S>) {
    with_machine(
        bench,
        Op::Hypercall,
        |machine| machine.hypercall(),
        |machine, refusal, repetitions| {
            let mut differences = 0;
            repeat(repetitions, || differences |= machine.hypercall() ^ refusal);
            differences as u64
        },
        |_, refusal, work| {
            let reason = "the hypervisor did not refuse an unknown hypercall each time";
            proved(refusal < 0 && work.evidence == 0, reason)
        },
    );
}

fn self_ipi<S: System>(bench: &mut Bench<'_, S>) {
    let before = Cell::new(0);
    with_machine(
        bench,
        Op::SelfIpi,
        |machine| before.set(machine.self_ipis()),
        |machine, (), repetitions| {
            repeat(repetitions, || machine.self_ipi());
            0
        },
        |machine, (), work| {
            let now = machine.self_ipis();
            proved(
                now - before.replace(now) == work.count,
                "an interrupt was lost or came twice",
            )
        },
    );
}

/// Each sleep is a sample of its own, from when the timer was due until the
/// sleeper ran: a lateness, from which the clock's cost is not subtracted.
fn timer_wake<S: System>(bench: &mut Bench<'_, S>) {
    let op = Op::TimerWake;
    if !bench.job.wants(op) {
        return;
    }
    match lateness(bench) {
        Ok(()) => bench.end(op, bench.job.batches, u64::from(op.number())),
        Err(Missed::Sleep(reason)) => bench.skip(op, reason),
        Err(Missed::Proof(reason)) => bench.fail(op, reason),
    }
    bench.system.quiesce();
}

/// Why there is no lateness.
enum Missed {
    /// This system cannot sleep.
    Sleep(Reason),
    /// A sleep went wrong.
    Proof(Reason),
}

/// Sleeps as often as the job has batches. Where operations are aligned to the timer
/// interrupts of the kernel below, each sleep is, so that none contains one. One that is not
/// recorded comes between, for a sleep that follows a sleep is the usual one.
fn lateness<S: System>(bench: &mut Bench<'_, S>) -> Result<(), Missed> {
    for _ in 0..WARM_UP_SLEEPS {
        bench.system.sleep(SLEEP_TICKS).map_err(Missed::Sleep)?;
    }
    let op = Op::TimerWake;
    bench.begin_unmarked(op);
    for _ in 0..bench.job.batches {
        if bench.await_interrupt().is_some() {
            bench.system.sleep(SLEEP_TICKS).map_err(Missed::Proof)?;
        }
        match bench.counted(|system| system.sleep(SLEEP_TICKS)) {
            Ok(wake) if wake.woke >= wake.due => bench.sample(op, wake.due, wake.woke, 1),
            Ok(_) => {
                let reason = "the sleeper woke before its timer was due";
                return Err(Missed::Proof(reason));
            }
            Err(reason) => return Err(Missed::Proof(reason)),
        }
    }
    Ok(())
}

/// The VMM answers, or QEMU in another domain, or the device itself; where nobody
/// models devices the hypervisor, with all ones. Whoever it is, is asked each time.
fn port_emulated<S: System>(bench: &mut Bench<'_, S>) {
    const KEPT: u8 = 0x3c;
    with_machine(
        bench,
        Op::PortEmulated,
        |machine| {
            machine.port_out(SCRATCH, KEPT);
            machine.port_in(SCRATCH)
        },
        |machine, answer, repetitions| {
            let mut differences = 0;
            repeat(repetitions, || {
                differences |= machine.port_in(SCRATCH) ^ answer
            });
            differences.into()
        },
        |_, answer, work| {
            work.alike("the serial port did not read the same each time")?;
            proved(
                [KEPT, NO_DEVICE].contains(&answer),
                "the serial port read neither what was written nor all ones",
            )
        },
    );
}

fn xen_hypercall<S: System>(bench: &mut Bench<'_, S>) {
    with_machine(
        bench,
        Op::XenHypercall,
        |machine| machine.xen_version(),
        |machine, version, repetitions| {
            let mut differences = 0;
            repeat(repetitions, || {
                differences |= machine.xen_version() ^ version
            });
            differences as u64
        },
        |_, version, work| {
            let reason = "Xen did not tell the same version each time";
            proved(version > 0 && work.evidence == 0, reason)
        },
    );
}

fn event_channel<S: System>(bench: &mut Bench<'_, S>) {
    let before = Cell::new(0);
    with_machine(
        bench,
        Op::EventChannel,
        |machine| before.set(machine.events()),
        |machine, (), repetitions| {
            repeat(repetitions, || machine.send_event());
            0
        },
        |machine, (), work| {
            let now = machine.events();
            proved(
                now - before.replace(now) == work.count,
                "an event was lost or came twice",
            )
        },
    );
}
