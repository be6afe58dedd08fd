//! Operations that exit from a guest.
//!
//! Each operation is verified by its effect: a register keeps the written value, a constant is
//! read, an interrupt is counted.

use crate::arch::identify::{self, argument};
use crate::measure::{ensure, repeat, Bench, Work};
use crate::system::{DeviceRegisters, Machine, Reason, System};
use core::cell::Cell;
use trapline_abi::arch::x86_64::platform::{FLOATING_BUS, LOCAL_APIC, SERIAL_SCRATCH};
use trapline_abi::platform::{
    VIRTIO_DEVICE_FEATURES, VIRTIO_DEVICE_FEATURES_SEL, VIRTIO_MAGIC, VIRTIO_MMIO,
};
use trapline_abi::Op;

/// IA32_APIC_BASE and its bit of an enabled APIC (Intel SDM volume 3, figure 11-5).
const APIC_BASE: u32 = 0x1b;
const APIC_ENABLED: u64 = 1 << 11;

/// Sleep of `timer-wake`, in ticks.
const SLEEP_TICKS: u64 = 200_000;

/// Sleeps of `timer-wake` that are not recorded. KVM polls before it puts a halted vCPU to sleep,
/// and doubles the polling time, from 10 us on, with each halt that is longer
/// (virt/kvm/kvm_main.c, `kvm_vcpu_halt`). Five halts of 200 us bring it to its limit of 200 us.
const WARM_UP_SLEEPS: u32 = 8;

pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    port_out(bench);
    port_in(bench);
    mmio_read(bench);
    mmio_write(bench);
    identify(bench);
    hypercall(bench);
    self_ipi(bench);
    timer_wake(bench);
    port_emulated(bench);
    xen_hypercall(bench);
    event_channel(bench);
    msr_read(bench);
    doorbell(bench);
}

/// Measures `op` by [`measure_machine`].
///
/// Not inlined, because the lab identifies the markers of machine operations by the name of this
/// function.
#[inline(never)]
fn with_machine<S: System, T: Copy>(
    bench: &mut Bench<'_, S>,
    op: Op,
    prepare: impl Fn(&mut S::Machine) -> T,
    batch: impl Fn(&mut S::Machine, T, u64) -> u64,
    verify: impl Fn(&mut S::Machine, T, Work) -> Result<(), Reason>,
) {
    measure_machine(bench, op, prepare, batch, verify);
}

/// Measures `op` if there is a machine that supports it. The result of `prepare` is passed to
/// `batch` and `verify`; only `batch` is timed.
#[inline(always)]
fn measure_machine<S: System, T: Copy>(
    bench: &mut Bench<'_, S>,
    op: Op,
    prepare: impl Fn(&mut S::Machine) -> T,
    batch: impl Fn(&mut S::Machine, T, u64) -> u64,
    verify: impl Fn(&mut S::Machine, T, Work) -> Result<(), Reason>,
) {
    if !bench.job.selects(op) {
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
            |system, work| verify(system.machine()?, prepared, work),
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
            repeat(repetitions, || machine.port_out(SERIAL_SCRATCH, LAST));
            0
        },
        |machine, (), _| {
            let kept = machine.port_in(SERIAL_SCRATCH);
            // Resets the register, so that the next batch has to write it.
            machine.port_out(SERIAL_SCRATCH, !LAST);
            ensure(
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
        |machine| machine.port_out(SERIAL_SCRATCH, KEPT),
        |machine, (), repetitions| {
            let mut differences = 0;
            repeat(repetitions, || {
                differences |= machine.port_in(SERIAL_SCRATCH) ^ KEPT
            });
            differences.into()
        },
        |_, (), work| work.check_equal("the scratch register does not read the written value"),
    );
}

fn mmio_read<S: System>(bench: &mut Bench<'_, S>) {
    if let Some(registers) = device_registers(bench, Op::MmioRead) {
        return mmio_read_of_device(bench, registers);
    }
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
        |_, (), work| {
            work.check_equal("the magic register of the virtio transport has a wrong value")
        },
    );
}

/// Sets the selector to the word with the feature bit of all modern devices: VIRTIO_F_VERSION_1, bit
/// 32 (virtio 1.2, section 6).
fn mmio_write<S: System>(bench: &mut Bench<'_, S>) {
    if let Some(registers) = device_registers(bench, Op::MmioWrite) {
        return mmio_write_of_device(bench, registers);
    }
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
            ensure(
                shown,
                "the virtio transport does not offer VIRTIO_F_VERSION_1",
            )
        },
    );
}

/// Returns the registers to access if the job selects `op` and the machine has its virtio devices on PCI, or virtio-mmio
/// transports at other addresses. Those of the usual transport are constants, so that the measured instructions are the
/// same in all environments that have it.
fn device_registers<S: System>(bench: &mut Bench<'_, S>, op: Op) -> Option<DeviceRegisters> {
    let machine = bench.system.machine().ok()?;
    bench.job.selects(op).then(|| machine.device_registers())?
}

/// Reads a register that keeps its value while the selector is 0.
///
/// Not inlined, because the lab identifies these markers by the name of this function.
#[inline(never)]
fn mmio_read_of_device<S: System>(bench: &mut Bench<'_, S>, registers: DeviceRegisters) {
    measure_machine(
        bench,
        Op::MmioRead,
        |machine| {
            machine.mmio_write(registers.selector, 0);
            machine.mmio_read(registers.features)
        },
        |machine, features, repetitions| {
            let mut differences = 0;
            repeat(repetitions, || {
                differences |= machine.mmio_read(registers.features) ^ features
            });
            differences.into()
        },
        |_, _, work| work.check_equal("the features of the virtio device change"),
    );
}

/// Sets the selector, as in [`mmio_write`]. Not inlined, as [`mmio_read_of_device`].
#[inline(never)]
fn mmio_write_of_device<S: System>(bench: &mut Bench<'_, S>, registers: DeviceRegisters) {
    measure_machine(
        bench,
        Op::MmioWrite,
        |_| (),
        |machine, (), repetitions| {
            repeat(repetitions, || machine.mmio_write(registers.selector, 1));
            0
        },
        |machine, (), _| {
            let shown = machine.mmio_read(registers.features) & 1 == 1;
            machine.mmio_write(registers.selector, 0);
            ensure(shown, "the virtio device does not offer VIRTIO_F_VERSION_1")
        },
    );
}

fn identify<S: System>(bench: &mut Bench<'_, S>) {
    let argument = argument();
    let expected = identify::identify(argument);
    bench.measure(
        identify::OP,
        |_, repetitions| {
            let mut differences = 0;
            repeat(repetitions, || {
                differences |= identify::identify(argument) ^ expected
            });
            Work::new(repetitions, differences)
        },
        |_, work| work.check_equal(identify::DIFFERS),
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
            ensure(refusal < 0 && work.evidence == 0, reason)
        },
    );
}

fn self_ipi<S: System>(bench: &mut Bench<'_, S>) {
    let before = Cell::new(0);
    with_machine(
        bench,
        Op::SelfIpi,
        |machine| before.set(machine.self_ipi_count()),
        |machine, (), repetitions| {
            repeat(repetitions, || machine.self_ipi());
            0
        },
        |machine, (), work| {
            let now = machine.self_ipi_count();
            ensure(
                now - before.replace(now) == work.count,
                "an interrupt was lost or handled twice",
            )
        },
    );
}

/// Records each sleep as a sample: the time from the expiry of the timer until the sleeper runs.
fn timer_wake<S: System>(bench: &mut Bench<'_, S>) {
    let op = Op::TimerWake;
    if !bench.job.selects(op) {
        return;
    }
    match sample_sleeps(bench) {
        Ok(()) => bench.end(op, bench.job.batches, u64::from(op.number())),
        Err(SleepError::Unsupported(reason)) => bench.skip(op, reason),
        Err(SleepError::Failed(reason)) => bench.fail(op, reason),
    }
    bench.system.quiesce();
}

/// Failure of a sleep.
enum SleepError {
    /// This system cannot sleep.
    Unsupported(Reason),
    /// The sleep failed or was too short.
    Failed(Reason),
}

/// Sleeps once per batch of the job. If operations are aligned to the timer interrupts of the host
/// kernel, each sleep is, so that none contains an interrupt. An unrecorded sleep precedes it then,
/// because a sleep right after another one is the usual case.
fn sample_sleeps<S: System>(bench: &mut Bench<'_, S>) -> Result<(), SleepError> {
    for _ in 0..WARM_UP_SLEEPS {
        bench
            .system
            .sleep(SLEEP_TICKS)
            .map_err(SleepError::Unsupported)?;
    }
    let op = Op::TimerWake;
    bench.begin_unmarked(op);
    for _ in 0..bench.job.batches {
        if bench.await_interrupt().is_some() {
            bench
                .system
                .sleep(SLEEP_TICKS)
                .map_err(SleepError::Failed)?;
        }
        match bench.count_exits(|system| system.sleep(SLEEP_TICKS)) {
            Ok(wake) if wake.woke >= wake.due => bench.sample(op, wake.due, wake.woke, 1),
            Ok(_) => {
                let reason = "the sleeper woke before its timer was due";
                return Err(SleepError::Failed(reason));
            }
            Err(reason) => return Err(SleepError::Failed(reason)),
        }
    }
    Ok(())
}

/// Reads a port that the VMM, QEMU in another domain, or the hardware emulates. Without a device the
/// hypervisor returns all ones.
fn port_emulated<S: System>(bench: &mut Bench<'_, S>) {
    const KEPT: u8 = 0x3c;
    with_machine(
        bench,
        Op::PortEmulated,
        |machine| {
            machine.port_out(SERIAL_SCRATCH, KEPT);
            machine.port_in(SERIAL_SCRATCH)
        },
        |machine, answer, repetitions| {
            let mut differences = 0;
            repeat(repetitions, || {
                differences |= machine.port_in(SERIAL_SCRATCH) ^ answer
            });
            differences.into()
        },
        |_, answer, work| {
            work.check_equal("the serial port returned different values")?;
            ensure(
                [KEPT, FLOATING_BUS].contains(&answer),
                "the serial port returned neither the written value nor all ones",
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
            let reason = "Xen returned different versions";
            ensure(version > 0 && work.evidence == 0, reason)
        },
    );
}

fn event_channel<S: System>(bench: &mut Bench<'_, S>) {
    let before = Cell::new(0);
    with_machine(
        bench,
        Op::EventChannel,
        |machine| before.set(machine.event_count()),
        |machine, (), repetitions| {
            repeat(repetitions, || machine.send_event());
            0
        },
        |machine, (), work| {
            let now = machine.event_count();
            ensure(
                now - before.replace(now) == work.count,
                "an event was lost or handled twice",
            )
        },
    );
}

/// Reads a register that KVM and Xen emulate on AMD and Intel: the CPU's own has the base of the
/// host's APIC.
fn msr_read<S: System>(bench: &mut Bench<'_, S>) {
    with_machine(
        bench,
        Op::MsrRead,
        |machine| machine.read_msr(APIC_BASE),
        |machine, base, repetitions| {
            let mut differences = 0;
            repeat(repetitions, || {
                differences |= machine.read_msr(APIC_BASE) ^ base;
            });
            differences
        },
        |_, base, work| {
            work.check_equal("IA32_APIC_BASE returned different values")?;
            ensure(
                base & !0xfff == LOCAL_APIC && base & APIC_ENABLED != 0,
                "IA32_APIC_BASE has no enabled local APIC at 0xfee00000",
            )
        },
    );
}

/// Notifies a device whose queue is empty, so that it finds nothing to do. Between the batches it performs a request.
///
/// Not inlined, because the lab identifies these markers by the name of this function.
#[inline(never)]
fn doorbell<S: System>(bench: &mut Bench<'_, S>) {
    measure_machine(
        bench,
        Op::Doorbell,
        |machine| machine.doorbell(),
        |machine, doorbell, repetitions| {
            if doorbell.is_narrow {
                repeat(repetitions, || machine.mmio_write16(doorbell.address, 0))
            } else {
                repeat(repetitions, || machine.mmio_write(doorbell.address, 0))
            }
            0
        },
        |machine, _, _| machine.check_doorbell(),
    );
}
