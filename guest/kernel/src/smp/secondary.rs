//! First function of a secondary CPU, after start.s.

use super::area::Area;
use super::group;
use super::start::RUNNING;
use crate::interrupts::Apic;
use core::arch::asm;
use core::sync::atomic::Ordering::SeqCst;
use trapline_abi::platform::selector::TASK;

/// First function of a secondary CPU, on its stack.
#[no_mangle]
extern "C" fn trapline_secondary(area: &'static Area) -> ! {
    let (base, limit) = area.descriptor_table();
    let pointer = [u64::from(limit) << 48, base];
    // SAFETY: the table has the same segments as the loaded one, and the task state of this CPU. The pointer begins
    // with the last two bytes of the first word.
    unsafe {
        asm!("lgdt [{}]", in(reg) pointer.as_ptr().byte_add(6), options(readonly, nostack));
        asm!("ltr {:x}", in(reg) TASK, options(nostack));
    }
    match Apic::open() {
        Ok(_enabled) => {
            RUNNING.store(area.number, SeqCst);
            group::serve(area.number)
        }
        Err(reason) => panic!("{reason}"),
    }
}
