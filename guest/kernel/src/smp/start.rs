//! Start of secondary CPUs by INIT and startup IPIs (Intel SDM volume 3, 9.4.4).

use super::area::Area;
use super::run_queue;
use crate::cpu::{control, pause, ring};
use crate::interrupts::{self, send_init, send_startup, send_wake, Apic};
use crate::memory;
use core::arch::global_asm;
use core::mem::size_of;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst};
use trapline_abi::platform::selector::{CODE0, DATA0, TASK};
use trapline_workloads::{ticks, Reason};

global_asm!(
    include_str!("start.s"),
    CR0_PROTECTED_PAGED = const control::CR0_PROTECTED_PAGED,
    CR4_PAE_SSE = const control::CR4_PAE_SSE,
    EFER = const control::EFER,
    EFER_LONG_MODE = const control::EFER_LONG_MODE,
    CODE0 = const CODE0,
    DATA0 = const DATA0,
    END_OF_INTERRUPT = const interrupts::END_OF_INTERRUPT,
);

/// Page of the first instructions, below 1 MiB. Nothing else is there after the boot (boot.rs).
const TRAMPOLINE: u64 = 0x8000;

/// Maximum duration of one attempt to start a CPU, in ticks.
const LONGEST_START: u64 = 1 << 27;

/// Number of startup IPIs that a CPU gets: processors may miss the first one.
const ATTEMPTS: u32 = 2;

/// Turns that other CPUs get after a reset where CPUs are simulated one after the other: with icount, QEMU counts the whole turn
/// in which a CPU is reset as executed.
const RESET_PAUSES: u32 = 16;

const MISSING: Reason =
    "a CPU did not start after two startup IPIs: the machine has fewer CPUs than --cpus";

extern "C" {
    /// First and last byte of the trampoline; see start.s.
    static trapline_trampoline: u8;
    static trapline_trampoline_end: u8;
    /// Descriptors of the boot CPU; see tables.s.
    static trapline_gdt: [u64; TASK as usize / 8 + 2];
}

/// Memory of the CPU that starts; read by start.s.
#[no_mangle]
static trapline_starting: AtomicPtr<Area> = AtomicPtr::new(ptr::null_mut());

/// Number of secondary CPUs that run.
pub static RUNNING: AtomicU32 = AtomicU32::new(0);

/// Starts the secondary CPUs of a machine with `cpus` CPUs, one after the other, unless they run. `_apic` is that of
/// this CPU.
///
/// # Errors
/// There are none, or one does not start.
pub fn start_all(_apic: &Apic, cpus: u32) -> Result<(), Reason> {
    if ring() != 0 {
        return Err("ring 3 cannot start a second CPU");
    }
    if cpus < 2 {
        return Err("the image has one CPU: choose --cpus 2");
    }
    copy_trampoline()?;
    run_queue::COUNT.store(cpus, SeqCst);
    while RUNNING.load(SeqCst) < cpus - 1 {
        let number = RUNNING.load(SeqCst) + 1;
        start(number)?;
    }
    Ok(())
}

fn copy_trampoline() -> Result<(), Reason> {
    let first = &raw const trapline_trampoline;
    let length = (&raw const trapline_trampoline_end as usize) - first as usize;
    for offset in 0..length {
        let to = (TRAMPOLINE as usize + offset) as *mut u8;
        // SAFETY: the trampoline, and a page below 1 MiB, which is identity-mapped and not used after the boot.
        let is_memory = unsafe {
            let byte = first.add(offset).read();
            to.write_volatile(byte);
            to.read_volatile() == byte
        };
        if !is_memory {
            return Err("the machine has no memory at 0x8000 for the start of a second CPU");
        }
    }
    Ok(())
}

fn start(number: u32) -> Result<(), Reason> {
    let block = memory::allocate_guarded(size_of::<Area>());
    let block = block.ok_or("not enough memory for the stacks of a second CPU")?;
    let area = block.start.as_ptr().cast::<Area>();
    // SAFETY: the block is exclusive, page-aligned and long enough; it is never released.
    unsafe { area.write_bytes(0, 1) };
    trapline_starting.store(area, SeqCst);
    prepare(area, number);
    await_start(number)
}

/// Resets the last CPU, whose thread waits for a task. It is woken first, because QEMU resets no CPU that halts.
pub fn reset_last() {
    let number = RUNNING.load(SeqCst);
    send_wake(number);
    prepare(trapline_starting.load(SeqCst), number);
    (0..RESET_PAUSES).for_each(|_| pause());
}

/// Starts the last CPU after [`reset_last`].
///
/// # Errors
/// It does not start.
#[inline(always)]
pub fn restart_last() -> Result<(), Reason> {
    let number = RUNNING.load(SeqCst);
    RUNNING.store(number - 1, SeqCst);
    await_start(number)
}

/// Resets a CPU with this memory, which is zero, or was initialised for the same CPU: then a CPU that executes its last
/// instructions before the reset finds the same values.
fn prepare(area: *mut Area, number: u32) {
    // SAFETY: memory of `start`. The table of the boot CPU does not change. Initialising it again makes the task state
    // available again, which the first start has made busy.
    unsafe { Area::initialise(area, number, &*(&raw const trapline_gdt)) };
    send_init(number);
}

/// Sends startup IPIs to a CPU that was reset until it runs.
#[inline(always)]
fn await_start(number: u32) -> Result<(), Reason> {
    for _ in 0..ATTEMPTS {
        send_startup(number, TRAMPOLINE);
        let begun = ticks();
        while ticks() - begun < LONGEST_START {
            if RUNNING.load(SeqCst) == number {
                return Ok(());
            }
            pause();
        }
    }
    Err(MISSING)
}
