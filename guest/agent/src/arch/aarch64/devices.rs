//! Devices of the machine, with registers in memory. They are mapped once, before anything is measured.

use crate::device_page::{device_page, page_of};
use std::fs::{self, File};
use std::io;
use std::ptr::NonNull;
use std::sync::OnceLock;
use trapline_abi::platform::{
    FW_CFG, FW_CFG_DATA, FW_CFG_SELECTOR, PAUSE_DEVICE, PAUSE_NOW, SERIAL,
};

/// Mapped page of a device.
struct Page(NonNull<u8>);

// SAFETY: the address of registers, which only this module accesses, from the one thread of init.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// Returns the address of a register.
    fn register<T>(&self, offset: u64) -> NonNull<T> {
        // SAFETY: registers are within the page.
        unsafe { self.0.add(offset as usize) }.cast()
    }
}

static CONSOLE: OnceLock<Page> = OnceLock::new();
static CONFIGURATION: OnceLock<Page> = OnceLock::new();

/// Maps the registers. Without a file of the kernel's devices, their file is created.
///
/// # Errors
/// The kernel refuses.
pub fn check() -> io::Result<()> {
    for (device, address) in [(&CONSOLE, SERIAL), (&CONFIGURATION, FW_CFG)] {
        if device.get().is_none() {
            let _is_set = device.set(Page(device_page(address)?));
        }
    }
    Ok(())
}

/// Writes frames.
pub fn write(bytes: &[u8]) {
    let Some(console) = CONSOLE.get() else {
        return;
    };
    for byte in bytes {
        // SAFETY: the data register, which takes a byte at any time.
        unsafe { console.register::<u32>(0).write_volatile((*byte).into()) };
    }
}

/// Directory of PCI devices.
const PCI: &str = "/sys/bus/pci/devices";

/// Pauses the machine until the lab resumes it, possibly in another process from a snapshot.
pub fn pause() {
    // Without the device the machine goes on, and the lab notices that it does not pause.
    if let Some(page) = pause_register() {
        // SAFETY: the register of the device; registers and memory are unchanged when the machine resumes.
        unsafe { page.register::<u8>(0).write_volatile(PAUSE_NOW) };
    }
}

fn pause_register() -> Option<Page> {
    let devices = fs::read_dir(PCI).ok()?.flatten();
    let mut places = devices.map(|device| device.path());
    let place = places.find(|place| {
        let number = fs::read_to_string(place.join("device"));
        number.is_ok_and(|number| number.trim() == PAUSE_DEVICE)
    })?;
    fs::write(place.join("enable"), "1").ok()?;
    let registers = File::options()
        .read(true)
        .write(true)
        .open(place.join("resource0"));
    page_of(&registers.ok()?, 0).ok().map(Page)
}

/// Selects an item of the firmware configuration device, from its beginning.
pub fn select(item: u16) {
    if let Some(device) = CONFIGURATION.get() {
        // SAFETY: a register of the mapped page; it only sets a position.
        unsafe {
            device
                .register::<u16>(FW_CFG_SELECTOR)
                .write_volatile(item.to_be())
        };
    }
}

/// Reads the next bytes of the selected item, zeros after its end.
pub fn read(bytes: &mut [u8]) {
    if let Some(device) = CONFIGURATION.get() {
        for byte in bytes {
            // SAFETY: a register of the mapped page.
            *byte = unsafe { device.register::<u8>(FW_CFG_DATA).read_volatile() };
        }
    }
}

/// Ends the machine. Its status is in the records: the machine has no device for it.
pub fn end(_code: u32) -> ! {
    // SAFETY: a valid command.
    unsafe { libc::reboot(libc::RB_POWER_OFF) };
    std::process::exit(1)
}
