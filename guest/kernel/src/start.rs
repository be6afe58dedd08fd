//! The first instructions, and the tables they run on.
//!
//! `entry.s` has the two ways in; both end in [`trapline_main`], on the boot
//! stack, at ring 0 or ring 3, with the start info as argument. `tables.s` has
//! segments, task state and page tables, `vectors.s` what exceptions and
//! interrupts do; `image.ld` says where everything lies. All of it is assembly
//! and data: compiled code needs SSE, which not every ring 0 offers.

use crate::{boot, console, cpu, fault, interrupts, memory, panic, system, xen};
use core::arch::global_asm;
use trapline_abi::platform::{selector, StartInfo, NOTE_DIRECT};
use trapline_abi::record::Speaker;
use trapline_abi::{mark, stamp, Stage, VERSION};
use trapline_workloads::Origin;

/// The page below the boot stack, which image.ld leaves free.
const STACK_GUARD: u64 = 0x10_0000;

global_asm!(
    include_str!("start/entry.s"),
    CODE0 = const selector::CODE0,
    DATA0 = const selector::DATA0,
    CODE3 = const selector::CODE3,
    DATA3 = const selector::DATA3,
    TASK = const selector::TASK,
    NOTE_DIRECT = const NOTE_DIRECT,
    VERSION = const VERSION,
    STAGE = const mark::STAGE,
    GUEST_ENTRY = const Stage::GuestEntry as u8,
);

global_asm!(include_str!("start/tables.s"), STACK_GUARD = const STACK_GUARD);

global_asm!(
    include_str!("start/vectors.s"),
    CODE0 = const selector::CODE0,
    CODE3 = const selector::CODE3,
    IPI_VECTOR = const interrupts::IPI_VECTOR,
    TIMER_VECTOR = const interrupts::TIMER_VECTOR,
    EVENT_VECTOR = const xen::EVENT_VECTOR,
    TICK_VECTOR = const interrupts::TICK_VECTOR,
    SPURIOUS_VECTOR = const interrupts::SPURIOUS_VECTOR,
    END_OF_INTERRUPT = const interrupts::END_OF_INTERRUPT,
);

extern "C" {
    /// Clock at the image's first instruction, in ticks; see entry.s.
    static trapline_entry_clock: u64;
    /// The image ends here; see image.ld. Only its address means something.
    static trapline_image_end: u8;
}

/// From the entry to the end of the machine.
#[no_mangle]
extern "C" fn trapline_main(start: *const StartInfo) -> ! {
    let main = stamp!(GuestMain);
    // SAFETY: entry.s hands on the address that the VMM passed, and no memory has
    // been given out yet.
    let command_line = unsafe { boot::copy_command_line(start) };
    console::open(boot::console(command_line));
    panic::end_by(boot::end(command_line));
    let job = boot::job(command_line);
    // SAFETY: as above.
    let range = unsafe { boot::memory(start, &raw const trapline_image_end as u64, job.in_xen()) };
    memory::give(range.clone());
    // SAFETY: written by entry.s only, before this function.
    let entry = unsafe { trapline_entry_clock };
    let origin = Origin {
        speaker: Speaker::Image,
        ring: cpu::ring(),
        memory: range.end - range.start,
        entry,
        main,
    };
    if let Some(fault) = job.fault {
        fault::misbehave(fault);
    }
    trapline_workloads::run(&mut system::Kernel::new(&job), &job, &origin);
    panic::end(trapline_abi::platform::EXIT_DONE)
}
