//! Interrupts: the local APIC sends them, to itself and by its timer, and
//! vectors.s counts them.
//!
//! Nothing here is done at boot. Before anything but a boot is measured, the older interrupt
//! controllers and timer are masked and stopped. The APIC is on only during an operation that
//! needs it, because exits cost more while it is; its timer is compared with the clock
//! when such an operation first wants to sleep.

use crate::cpu::{mmio_read, mmio_write, out32, out8, pause, ring, wrmsr};
use core::arch::asm;
use core::arch::x86_64::__cpuid;
use trapline_abi::platform::{IDLE, LOCAL_APIC};
use trapline_abi::ticker;
use trapline_workloads::{ticks, Reason, Wake};

/// Vector of an interrupt that the CPU sends to itself.
pub const IPI_VECTOR: u32 = 0x30;
/// Vector of the APIC's timer, in a higher class.
pub const TIMER_VECTOR: u32 = 0x31;
/// Vector of a timer that keeps time, see [`crate::ticks`].
pub const TICK_VECTOR: u32 = ticker::VECTOR as u32;
/// Vector of an interrupt that went away; its low bits are ones on every APIC.
pub const SPURIOUS_VECTOR: u32 = 0x3f;

/// Registers of the local APIC (Intel SDM volume 3, table 11-1).
const VERSION: u64 = LOCAL_APIC + 0x30;
const TASK_PRIORITY: u64 = LOCAL_APIC + 0x80;
pub const END_OF_INTERRUPT: u64 = LOCAL_APIC + 0xb0;
const SPURIOUS: u64 = LOCAL_APIC + 0xf0;
const IN_SERVICE: u64 = LOCAL_APIC + 0x100;
const REQUESTED: u64 = LOCAL_APIC + 0x200;
const COMMAND: u64 = LOCAL_APIC + 0x300;
const TIMER: u64 = LOCAL_APIC + 0x320;
const LINE_0: u64 = LOCAL_APIC + 0x350;
const LINE_1: u64 = LOCAL_APIC + 0x360;
const INITIAL_COUNT: u64 = LOCAL_APIC + 0x380;
const CURRENT_COUNT: u64 = LOCAL_APIC + 0x390;
const DIVIDER: u64 = LOCAL_APIC + 0x3e0;

const ENABLED: u32 = 1 << 8;
const MASKED: u32 = 1 << 16;
const TO_SELF: u32 = 1 << 18 | 1 << 14;
const DIVIDE_BY_1: u32 = 0b1011;
const BY_DEADLINE: u32 = 1 << 18;

/// `IA32_TSC_DEADLINE` (Intel SDM volume 4, table 2-2).
const DEADLINE: u32 = 0x6e0;

/// In leaf 1 of cpuid, `ecx`: the timer knows deadlines.
const KNOWS_DEADLINES: u32 = 1 << 24;

/// Data ports of the two 8259A interrupt controllers (PIC): their masks.
const PIC_MASKS: [u16; 2] = [0x21, 0xa1];

/// Channel 0 of the 8254 interval timer (PIT), and its command port.
const PIT_CHANNEL_0: u16 = 0x40;
const PIT_COMMAND: u16 = 0x43;

/// Channel 0, low byte first, mode 0: one interrupt when it has counted down, no more
/// (Intel 8254 data sheet, control word format).
const PIT_ONCE: u8 = 0x30;

extern "C" {
    /// Counters that only vectors.s moves.
    static trapline_ipis: u64;
    static trapline_timers: u64;
    static trapline_interrupts: u32;
}

/// How many interrupts the CPU has sent to itself and taken.
#[inline(always)]
pub fn ipis() -> u64 {
    // SAFETY: a counter that is always there, read as it is now.
    unsafe { (&raw const trapline_ipis).read_volatile() }
}

fn timers() -> u64 {
    // SAFETY: as in `ipis`.
    unsafe { (&raw const trapline_timers).read_volatile() }
}

/// Masks every line of both PICs. An interrupt that is pending there and never accepted
/// is checked for at each entry to the guest: KVM then executes 42 to 116 instructions more
/// an exit.
pub fn mask_pic() {
    for port in PIC_MASKS {
        out8(port, 0xff);
    }
}

/// Stops the PIT. After a reset it is periodic in some VMMs, and each period costs the
/// kernel below an interrupt although its line is masked.
pub fn stop_pit() {
    out8(PIT_COMMAND, PIT_ONCE);
    out8(PIT_CHANNEL_0, 1);
    out8(PIT_CHANNEL_0, 0);
}

/// The local APIC, switched on, with interrupts open.
pub struct Apic(());

impl Apic {
    /// Switches the APIC on and lets interrupts in. The PICs are masked before, by
    /// [`mask_pic`].
    ///
    /// # Errors
    /// Why there can be no interrupts.
    pub fn open() -> Result<Apic, Reason> {
        // SAFETY: the identity map has the APIC's page, and no RAM is given out
        // there (boot.rs takes what the memory map calls RAM).
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
            // SAFETY: the interrupt table is loaded, and every vector that can
            // come has a handler and a stack of its own.
            unsafe { asm!("sti", options(nomem, nostack)) };
        }
        Ok(apic)
    }

    /// Switches the APIC off and shuts interrupts out, as after a reset.
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
        // SAFETY: `register` is one of the constants above, and an APIC is there:
        // its version was read in `open`.
        unsafe { mmio_write(register, value) }
    }

    #[inline(always)]
    fn read(&self, register: u64) -> u32 {
        // SAFETY: as in `write`.
        unsafe { mmio_read(register) }
    }

    /// Lets the timer interrupt once when it has counted down, with this vector.
    pub fn use_count(&self, vector: u32) {
        self.write(DIVIDER, DIVIDE_BY_1);
        self.write(TIMER, vector);
    }

    /// Lets the timer interrupt with this vector when the clock reaches what
    /// [`set_deadline`] says. Only where [`has_deadline`].
    pub fn use_deadline(&self, vector: u32) {
        self.write(TIMER, BY_DEADLINE | vector);
        // The mode has to be in place before the register that it gives a meaning is
        // written (Intel SDM volume 3, 11.5.4.1).
        // SAFETY: orders memory accesses.
        unsafe { asm!("mfence", options(nostack, preserves_flags)) };
    }

    /// Begins to count down.
    #[inline(always)]
    pub fn count(&self, counts: u32) {
        self.write(INITIAL_COUNT, counts);
    }

    /// The interrupt being served is done.
    #[inline(always)]
    pub fn acknowledge(&self) {
        self.write(END_OF_INTERRUPT, 0);
    }

    /// Acknowledges until none of this vector is being served or asks for it. Whoever
    /// sends them sends no more.
    pub fn settle(&self, vector: u32) {
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

/// Where the bit of a vector stands: 32 to a register, registers 16 bytes apart.
fn word_of(register: u64, vector: u32) -> u64 {
    register + u64::from(vector / 32) * 16
}

/// Whether the APIC's timer can be set to a moment of the clock, and we may do it.
pub fn has_deadline() -> bool {
    ring() == 0 && __cpuid(1).ecx & KNOWS_DEADLINES != 0
}

/// Sets the APIC's timer to a moment of the clock.
///
/// # Safety
/// [`has_deadline`].
pub unsafe fn set_deadline(at: u64) {
    // SAFETY: the processor says that it has the register, and we are at ring 0.
    unsafe { wrmsr(DEADLINE, at) };
}

/// Turns of the timer per tick of the clock, as a fraction.
#[derive(Clone, Copy)]
struct Rate {
    counts: u64,
    ticks: u64,
}

/// How long the timer is watched to learn its rate, in ticks.
const WATCHED: u64 = 1_000_000;

/// How often: the watch that was least disturbed counts.
const WATCHES: u32 = 4;

/// A one-shot timer whose rate is known, and a way to sleep until it fires.
pub struct Timer {
    rate: Rate,
    /// The same, times 2^32.
    counts_per_tick: u64,
}

impl Timer {
    /// Learns the timer's rate.
    ///
    /// # Errors
    /// The timer does not run.
    pub fn learn(apic: &Apic) -> Result<Self, Reason> {
        apic.write(DIVIDER, DIVIDE_BY_1);
        let watches = (0..WATCHES).map(|_| watch(apic));
        let best = watches.min_by_key(|(_, doubt)| *doubt);
        apic.write(INITIAL_COUNT, 0);
        apic.write(TIMER, TIMER_VECTOR);
        match best {
            Some((rate, _)) if rate.counts != 0 => Ok(Self {
                rate,
                counts_per_tick: (rate.counts << 32) / rate.ticks,
            }),
            _ => Err("the local APIC's timer does not run"),
        }
    }

    /// How many counts of the timer pass in so many ticks, one more if need be. Quickly:
    /// the timer stands still meanwhile.
    #[inline(always)]
    pub fn counts(&self, ticks: u64) -> u64 {
        (u128::from(ticks) * u128::from(self.counts_per_tick) >> 32) as u64 + 1
    }

    /// Sets the timer `ahead` ticks ahead, never less, and sleeps until it fires.
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

/// Whether [`halt`] halts: at ring 3 it takes a port of the machine, [`IDLE`].
///
/// # Errors
/// Why not.
pub fn can_halt(idle_port: bool) -> Result<(), Reason> {
    match ring() == 0 || idle_port {
        true => Ok(()),
        false => Err("ring 3 cannot halt, and the machine offers no port for it"),
    }
}

/// Halts until an interrupt, unless what `count` counts has come already.
#[inline(always)]
pub fn halt(count: fn() -> u64, before: u64) {
    if ring() == 0 {
        return halt_at_ring_0(count, before);
    }
    // SAFETY: as in `ipis`.
    let seen = unsafe { (&raw const trapline_interrupts).read_volatile() };
    // An interrupt that comes here moves the count past `seen`, and the machine
    // below then does not halt.
    if count() == before {
        out32(IDLE, seen);
    }
}

/// Interrupts are shut while the count is looked at, and open only after the
/// instruction behind `sti`: none can come in between and be slept through.
#[inline(always)]
fn halt_at_ring_0(count: fn() -> u64, before: u64) {
    // SAFETY: the table and its handlers are in place; flags are as before in the
    // end.
    unsafe {
        asm!("cli", options(nostack));
        if count() == before {
            asm!("sti", "hlt", options(nostack));
        } else {
            asm!("sti", options(nostack));
        }
    }
}

/// Watches the timer run for a while. The doubt is how long it took to read the
/// two ends.
fn watch(apic: &Apic) -> (Rate, u64) {
    apic.write(INITIAL_COUNT, u32::MAX);
    let (start, from, doubt_at_start) = read_both(apic);
    while ticks() - start < WATCHED {
        pause();
    }
    let (end, to, doubt_at_end) = read_both(apic);
    let rate = Rate {
        counts: u64::from(from.saturating_sub(to)),
        ticks: end - start,
    };
    (rate, doubt_at_start + doubt_at_end)
}

/// Clock and timer at the same moment, and by how many ticks it was not.
fn read_both(apic: &Apic) -> (u64, u32, u64) {
    let before = ticks();
    let count = apic.read(CURRENT_COUNT);
    let doubt = ticks() - before;
    (before + doubt / 2, count, doubt)
}
