//! The conformance suite of the VM interface, a part in each start of the machine.

use crate::hypervisor::Nova;
use crate::ports::{exit, Console};
use crate::timer;
use crate::vcpu::{now, Technology};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use core::cell::Cell;
use core::ptr::NonNull;
use trapline_abi::platform::EXIT_DONE;
use trapline_interface::conformance::{run_part, Host, DELAY};
use trapline_interface::{Hypervisor, Region, PAGE};
use trapline_monitor::devices::Shell;

/// This program: hands out mapped memory, and has a timer.
struct RootTask {
    memory: Cell<(u64, usize)>,
}

impl Host for RootTask {
    fn memory(&self, length: usize) -> Result<Region, String> {
        let length = length.next_multiple_of(PAGE);
        let (start, size) = self.memory.get();
        let left = size.checked_sub(length).ok_or("no memory is left")?;
        self.memory.set((start + length as u64, left));
        let start = NonNull::new(start as *mut u8).ok_or("no memory")?;
        // SAFETY: a part of the guest's memory, which is filled with zeros and handed out once.
        Ok(unsafe { Region::from_raw(start, length) })
    }

    fn later(&self, action: Box<dyn FnOnce() + Send>) {
        timer::call_at(now() + DELAY.as_nanos() as u64, action);
    }
}

/// Runs a part of the suite, and prints its trace to the console.
///
/// # Errors
/// The first difference.
pub fn run<T: Technology>(part: &str, memory: &Region) -> Result<(), String> {
    let host = RootTask {
        memory: Cell::new((memory.address().as_ptr() as u64, memory.len())),
    };
    let missing = |error| format!("{error}");
    let caps = Nova::<T>::probe().map_err(missing)?;
    let nova = Nova::<T>::open().map_err(missing)?;
    let report = run_part(&nova, &caps, &host, part).map_err(|failure| failure.to_string())?;
    Console::default().print_all(report.to_string().as_bytes());
    exit(EXIT_DONE)
}
