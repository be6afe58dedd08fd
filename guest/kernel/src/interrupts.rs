//! Interrupts of the local APIC: self-IPIs and its timer. vectors.s counts them.
//!
//! None of this runs at boot. Before the first operation PIC and PIT are masked and stopped. The
//! APIC is enabled only during operations that need it, because exits cost more while it is. Its
//! timer is calibrated at the first sleep of such an operation.

use crate::cpu::{mmio_read, mmio_write, out32, out8, pause, ring, wrmsr};
use core::arch::asm;
use core::arch::x86_64::__cpuid;
use trapline_abi::platform::{IDLE, LOCAL_APIC};
use trapline_abi::ticker;
use trapline_workloads::{ticks, Reason, Wake};

/// Vector of self-IPIs.
pub const IPI_VECTOR: u32 = 0x30;
/// Vector of the APIC timer, of a higher priority class.
pub const TIMER_VECTOR: u32 = 0x31;
/// Vector of periodic timers, see [`crate::ticks`].
pub const TICK_VECTOR: u32 = ticker::VECTOR as u32;
/// Vector of interrupts that end the halt of another CPU.
pub const WAKE_VECTOR: u32 = 0x36;
/// Vector of interrupts that invalidate a translation of another CPU.
pub const INVALIDATE_VECTOR: u32 = 0x37;
/// Vector of spurious interrupts; its low bits are ones on every APIC.
pub const SPURIOUS_VECTOR: u32 = 0x3f;

/// Registers of the local APIC (Intel SDM volume 3, table 11-1).
const VERSION: u64 = LOCAL_APIC + 0x30;
const TASK_PRIORITY: u64 = LOCAL_APIC + 0x80;
pub const END_OF_INTERRUPT: u64 = LOCAL_APIC + 0xb0;
const SPURIOUS: u64 = LOCAL_APIC + 0xf0;
const IN_SERVICE: u64 = LOCAL_APIC + 0x100;
const REQUESTED: u64 = LOCAL_APIC + 0x200;
const COMMAND: u64 = LOCAL_APIC + 0x300;
const DESTINATION: u64 = LOCAL_APIC + 0x310;
const TIMER: u64 = LOCAL_APIC + 0x320;
const LINE_0: u64 = LOCAL_APIC + 0x350;
const LINE_1: u64 = LOCAL_APIC + 0x360;
const INITIAL_COUNT: u64 = LOCAL_APIC + 0x380;
const CURRENT_COUNT: u64 = LOCAL_APIC + 0x390;
const DIVIDER: u64 = LOCAL_APIC + 0x3e0;

const ENABLED: u32 = 1 << 8;
const MASKED: u32 = 1 << 16;
const TO_SELF: u32 = 1 << 18 | 1 << 14;
/// Commands to another CPU (Intel SDM volume 3, figure 11-12): INIT, startup, and a vector, all asserted.
const INIT: u32 = 0b101 << 8 | ASSERT;
const STARTUP: u32 = 0b110 << 8 | ASSERT;
const ASSERT: u32 = 1 << 14;
const DIVIDE_BY_1: u32 = 0b1011;
const PERIODIC: u32 = 1 << 17;
const BY_DEADLINE: u32 = 1 << 18;

/// `IA32_TSC_DEADLINE` (Intel SDM volume 4, table 2-2).
const DEADLINE: u32 = 0x6e0;

/// TSC-deadline bit in `ecx` of cpuid leaf 1.
const HAS_TSC_DEADLINE: u32 = 1 << 24;

/// Mask registers of the two 8259A interrupt controllers (PIC).
const PIC_MASKS: [u16; 2] = [0x21, 0xa1];

/// Channel 0 of the 8254 interval timer (PIT), and its command port.
const PIT_CHANNEL_0: u16 = 0x40;
const PIT_COMMAND: u16 = 0x43;

/// Channel 0, low byte first, mode 0: a single interrupt at the end of the count
/// (Intel 8254 data sheet, control word format).
const PIT_ONCE: u8 = 0x30;

extern "C" {
    /// Counters, written by vectors.s only.
    static trapline_ipis: u64;
    static trapline_timers: u64;
    static trapline_interrupts: u32;
}

/// Returns the number of handled self-IPIs.
#[inline(always)]
pub fn ipis() -> u64 {
    // SAFETY: a static counter, read as volatile.
    unsafe { (&raw const trapline_ipis).read_volatile() }
}

fn timers() -> u64 {
    // SAFETY: as in `ipis`.
    unsafe { (&raw const trapline_timers).read_volatile() }
}

/// Masks all lines of both PICs. KVM checks for a pending interrupt that is never accepted at each
/// entry to the guest, which takes 42 to 116 instructions per exit.
pub fn mask_pic() {
    for port in PIC_MASKS {
        out8(port, 0xff);
    }
}

/// Stops the PIT. In some VMMs it is periodic after a reset, and each period interrupts the host
/// kernel although its line is masked.
pub fn stop_pit() {
    out8(PIT_COMMAND, PIT_ONCE);
    out8(PIT_CHANNEL_0, 1);
    out8(PIT_CHANNEL_0, 0);
}

/// Enabled local APIC, with interrupts enabled.
pub struct Apic(());

impl Apic {
    /// Enables the APIC and interrupts. [`mask_pic`] has masked the PICs before.
    ///
    /// # Errors
    /// There is no local APIC.
    pub fn open() -> Result<Apic, Reason> {
        // SAFETY: the page of the APIC is identity-mapped and not allocated: boot.rs uses only RAM
        // of the memory map.
        let version = unsafe { mmio_read(VERSION) };
        if version == 0 || version == u32::MAX {
            return Err("the machine has no local APIC at 0xfee00000");
        }
        let apic = Apic(());
        apic.write(LINE_0, MASKED);
        apic.write(LINE_1, MASKED);
        apic.write(TIMER, MASKED);
        apic.write(TASK_PRIORITY, 0);
        apic.write(SPURIOUS, ENABLED | SPURIOUS_VECTOR);
        if ring() == 0 {
            // SAFETY: the interrupt table is loaded, and every possible vector has a handler and a
            // stack of its own.
            unsafe { asm!("sti", options(nomem, nostack)) };
        }
        Ok(apic)
    }

    /// Disables the APIC and interrupts, as after a reset.
    pub fn close(self) {
        if ring() == 0 {
            // SAFETY: no code waits for an interrupt.
            unsafe { asm!("cli", options(nomem, nostack)) };
        }
        self.write(INITIAL_COUNT, 0);
        self.write(TIMER, MASKED);
        self.write(SPURIOUS, SPURIOUS_VECTOR);
    }

    #[inline(always)]
    fn write(&self, register: u64, value: u32) {
        // SAFETY: `register` is one of the constants above, and `open` has found an APIC.
        unsafe { mmio_write(register, value) }
    }

    #[inline(always)]
    fn read(&self, register: u64) -> u32 {
        // SAFETY: as in `write`.
        unsafe { mmio_read(register) }
    }

    /// Configures the timer for a single interrupt with this vector at the end of its count.
    pub fn use_count(&self, vector: u32) {
        self.write(DIVIDER, DIVIDE_BY_1);
        self.write(TIMER, vector);
    }

    /// Configures the timer for an interrupt with this vector at the end of each count, which starts again.
    pub fn use_periodic_count(&self, vector: u32) {
        self.write(DIVIDER, DIVIDE_BY_1);
        self.write(TIMER, PERIODIC | vector);
    }

    /// Returns the count of the timer, which has started from that of [`Self::count`].
    #[inline(always)]
    pub fn remaining(&self) -> u32 {
        self.read(CURRENT_COUNT)
    }

    /// Configures the timer for an interrupt with this vector at the deadline of
    /// [`set_deadline`]. Requires [`has_deadline`].
    pub fn use_deadline(&self, vector: u32) {
        self.write(TIMER, BY_DEADLINE | vector);
        // The mode has to be set before the deadline register is written (Intel SDM volume 3,
        // 11.5.4.1).
        // SAFETY: orders memory accesses.
        unsafe { asm!("mfence", options(nostack, preserves_flags)) };
    }

    /// Starts the count.
    #[inline(always)]
    pub fn count(&self, counts: u32) {
        self.write(INITIAL_COUNT, counts);
    }

    /// Ends the interrupt in service.
    #[inline(always)]
    pub fn acknowledge(&self) {
        self.write(END_OF_INTERRUPT, 0);
    }

    /// Acknowledges interrupts until none of this vector is in service or requested. Their source is
    /// stopped before.
    pub fn drain(&self, vector: u32) {
        let has = |register| self.read(word_of(register, vector)) & 1 << (vector % 32) != 0;
        loop {
            match (has(IN_SERVICE), has(REQUESTED)) {
                (true, _) => self.acknowledge(),
                (false, true) => pause(),
                (false, false) => return,
            }
        }
    }

    /// Sends an interrupt to this CPU and waits until its handler has run.
    #[inline(always)]
    pub fn interrupt_self(&self) {
        let before = ipis();
        self.write(COMMAND, TO_SELF | IPI_VECTOR);
        while ipis() == before {
            pause();
        }
    }
}

/// Resets another CPU.
pub fn send_init(number: u32) {
    send(number, INIT);
}

/// Starts another CPU, after [`send_init`], at a page below 1 MiB.
pub fn send_startup(number: u32, page: u64) {
    send(number, STARTUP | (page >> 12) as u32);
}

/// Ends the halt of another CPU.
#[inline(always)]
pub fn send_wake(number: u32) {
    send(number, ASSERT | WAKE_VECTOR);
}

/// Has another CPU invalidate the translation of a page, and count that ([`crate::smp`]).
#[inline(always)]
pub fn send_invalidate(number: u32) {
    send(number, ASSERT | INVALIDATE_VECTOR);
}

#[inline(always)]
fn send(number: u32, command: u32) {
    // SAFETY: these registers belong to the local APIC, which `Apic::open` has found on the boot CPU.
    unsafe {
        mmio_write(DESTINATION, number << 24);
        mmio_write(COMMAND, command);
    }
}

/// Returns the register with the bit of a vector: 32 vectors per register, 16 bytes apart.
fn word_of(register: u64, vector: u32) -> u64 {
    register + u64::from(vector / 32) * 16
}

/// Returns true if the APIC timer supports deadlines and this ring may set them.
pub fn has_deadline() -> bool {
    ring() == 0 && __cpuid(1).ecx & HAS_TSC_DEADLINE != 0
}

/// Sets the deadline of the APIC timer, in ticks of the clock.
///
/// # Safety
/// [`has_deadline`] returns true.
pub unsafe fn set_deadline(at: u64) {
    // SAFETY: the CPU has the register, and this is ring 0, by contract.
    unsafe { wrmsr(DEADLINE, at) };
}

/// Counts of the timer per tick of the clock, as a fraction.
#[derive(Clone, Copy)]
struct Rate {
    counts: u64,
    ticks: u64,
}

/// Duration of one calibration, in ticks.
const CALIBRATION_TICKS: u64 = 1_000_000;

/// Number of calibrations. The one with the least uncertainty is used.
const CALIBRATIONS: u32 = 4;

/// APIC timer with a known rate.
pub struct Timer {
    rate: Rate,
    /// Rate times 2^32.
    counts_per_tick: u64,
}

impl Timer {
    /// Calibrates the timer.
    ///
    /// # Errors
    /// The timer does not run.
    pub fn calibrate(apic: &Apic) -> Result<Self, Reason> {
        apic.write(DIVIDER, DIVIDE_BY_1);
        let rates = (0..CALIBRATIONS).map(|_| measure_rate(apic));
        let best = rates.min_by_key(|(_, uncertainty)| *uncertainty);
        apic.write(INITIAL_COUNT, 0);
        apic.write(TIMER, TIMER_VECTOR);
        match best {
            Some((rate, _)) if rate.counts != 0 => Ok(Self {
                rate,
                counts_per_tick: (rate.counts << 32) / rate.ticks,
            }),
            _ => Err("the timer of the local APIC does not run"),
        }
    }

    /// Converts ticks to counts of the timer, rounded up. Without a division, because the timer is
    /// stopped meanwhile.
    #[inline(always)]
    pub fn counts(&self, ticks: u64) -> u64 {
        (u128::from(ticks) * u128::from(self.counts_per_tick) >> 32) as u64 + 1
    }

    /// Converts counts of the timer to ticks, rounded down.
    pub fn ticks(&self, counts: u32) -> u64 {
        u64::from(counts) * self.rate.ticks / self.rate.counts
    }

    /// Sets the timer at least `ahead` ticks ahead and sleeps until it expires.
    pub fn sleep(&self, apic: &Apic, ahead: u64) -> Wake {
        let counts = (ahead * self.rate.counts).div_ceil(self.rate.ticks);
        let span = counts * self.rate.ticks / self.rate.counts;
        let before = timers();
        let due = ticks() + span;
        apic.write(INITIAL_COUNT, counts as u32);
        while timers() == before {
            halt(timers, before);
        }
        let woke = ticks();
        Wake { due, woke }
    }
}

/// Checks that [`halt`] works: at ring 3 it needs the port [`IDLE`].
///
/// # Errors
/// The machine does not have the port.
pub fn can_halt(idle_port: bool) -> Result<(), Reason> {
    if ring() == 0 || idle_port {
        Ok(())
    } else {
        Err("ring 3 cannot halt, and the machine has no port for it")
    }
}

/// Halts until an interrupt, unless `count` differs from `before` already.
#[inline(always)]
pub fn halt(count: fn() -> u64, before: u64) {
    if ring() == 0 {
        return halt_at_ring_0(count, before);
    }
    // SAFETY: as in `ipis`.
    let seen = unsafe { (&raw const trapline_interrupts).read_volatile() };
    // An interrupt here changes the count in memory, so that the VMM does not halt.
    if count() == before {
        out32(IDLE, seen);
    }
}

/// Interrupts are disabled while the count is compared, and enabled only after the instruction that
/// follows `sti`, so that no interrupt is missed in between.
#[inline(always)]
fn halt_at_ring_0(count: fn() -> u64, before: u64) {
    // SAFETY: the interrupt table and its handlers are in place; interrupts are enabled at the end, as
    // before.
    unsafe {
        asm!("cli", options(nostack));
        if count() == before {
            asm!("sti", "hlt", options(nostack));
        } else {
            asm!("sti", options(nostack));
        }
    }
}

/// Measures the rate of the timer. Returns it with its uncertainty: the duration of reading both ends.
fn measure_rate(apic: &Apic) -> (Rate, u64) {
    apic.write(INITIAL_COUNT, u32::MAX);
    let (start, from, start_uncertainty) = read_both(apic);
    while ticks() - start < CALIBRATION_TICKS {
        pause();
    }
    let (end, to, end_uncertainty) = read_both(apic);
    let rate = Rate {
        counts: u64::from(from.saturating_sub(to)),
        ticks: end - start,
    };
    (rate, start_uncertainty + end_uncertainty)
}

/// Reads clock and timer. Returns the uncertainty of their simultaneity, in ticks.
fn read_both(apic: &Apic) -> (u64, u32, u64) {
    let before = ticks();
    let count = apic.read(CURRENT_COUNT);
    let uncertainty = ticks() - before;
    (before + uncertainty / 2, count, uncertainty)
}
