//! Entry points and their tables.
//!
//! `entry.s` has the two entry points, which both jump to [`trapline_main`], on the boot stack, at
//! ring 0 or ring 3, with the start info as argument. `tables.s` has segments, task state and page
//! tables, `vectors.s` the handlers of exceptions and interrupts; `image.ld` has the layout. The entries of
//! processes are in `process/entry.s`. All of
//! it is assembly and data, because compiled code needs SSE, which some hosts do not offer at
//! ring 0.

use crate::{boot, console, cpu, fault, interrupts, memory, panic, process, system, virtio, xen};
use core::arch::global_asm;
use trapline_abi::job::Transport;
use trapline_abi::platform::{selector, StartInfo, NOTE_DIRECT};
use trapline_abi::record::Sender;
use trapline_abi::{marker, stamp, Stage, VERSION};
use trapline_workloads::GuestInfo;

/// Page below the boot stack, which image.ld leaves unmapped.
const STACK_GUARD: u64 = 0x10_0000;

global_asm!(
    include_str!("start/entry.s"),
    CR0_PROTECTED_PAGED = const cpu::control::CR0_PROTECTED_PAGED,
    CR4_PAE_SSE = const cpu::control::CR4_PAE_SSE,
    EFER = const cpu::control::EFER,
    EFER_LONG_MODE = const cpu::control::EFER_LONG_MODE,
    CODE0 = const selector::CODE0,
    DATA0 = const selector::DATA0,
    CODE3 = const selector::CODE3,
    DATA3 = const selector::DATA3,
    TASK = const selector::TASK,
    NOTE_DIRECT = const NOTE_DIRECT,
    VERSION = const VERSION,
    STAGE = const marker::STAGE,
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
    VIRTIO_VECTOR = const virtio::VECTOR,
    WAKE_VECTOR = const interrupts::WAKE_VECTOR,
    INVALIDATE_VECTOR = const interrupts::INVALIDATE_VECTOR,
    SPURIOUS_VECTOR = const interrupts::SPURIOUS_VECTOR,
    END_OF_INTERRUPT = const interrupts::END_OF_INTERRUPT,
);

global_asm!(include_str!("process/entry.s"), EXIT = const process::EXIT);

extern "C" {
    /// Clock at the first instruction of the image, in ticks; see entry.s.
    static trapline_entry_clock: u64;
    /// Symbol at the end of the image; see image.ld.
    static trapline_image_end: u8;
}

/// Runs the job of the command line and ends the machine.
#[no_mangle]
extern "C" fn trapline_main(start: *const StartInfo) -> ! {
    let main = stamp!(GuestMain);
    // SAFETY: entry.s passes the address from the VMM, and no memory is allocated yet.
    let command_line = unsafe { boot::copy_command_line(start) };
    console::open(boot::console(command_line));
    // SAFETY: as above.
    panic::set_shutdown(unsafe { boot::shutdown(command_line, start) });
    let job = boot::job(command_line);
    // SAFETY: as above.
    let range = unsafe {
        boot::memory(
            start,
            &raw const trapline_image_end as u64,
            job.is_xen_domain(),
        )
    };
    if job.transport == Transport::Pci {
        // SAFETY: as above.
        virtio::set_gap(unsafe { boot::device_gap(start) });
    }
    memory::add(range.clone());
    // SAFETY: written by entry.s only, before this function.
    let entry = unsafe { trapline_entry_clock };
    let info = GuestInfo {
        sender: Sender::Image,
        ring: cpu::ring(),
        memory: range.end - range.start,
        entry,
        main,
    };
    if let Some(fault) = job.fault {
        fault::inject(fault, &job, &info);
    }
    if job.receiver {
        panic!("{}", virtio::receive_packets(job.ports));
    }
    trapline_workloads::run(&mut system::Kernel::new(&job), &job, &info);
    panic::end(trapline_abi::platform::EXIT_DONE)
}
