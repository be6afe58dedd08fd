//! Start of the root task: exception portals, ports, memory and modules.

use crate::heap;
use crate::hip::{Hip, Module, Range};
use crate::hypercall::{
    create_handler, create_portal, create_semaphore, create_thread, delegate, delegate_pages,
    schedule, send, set_portal_number, wait, Destination, Rights, Selector, Source, Space,
    HANDLER_UTCB, OWN, USER_END,
};
use crate::hypervisor::HANDLER;
use crate::machine::fail;
use crate::ports::PORTS;
use crate::timer::{self, HALT_SEMAPHORE, SEMAPHORE as TIMER_SEMAPHORE};
use crate::utcb::{Parts, Utcb};
use crate::vcpu::{Svm, Technology, Vmx};
use crate::{conformance, events, linux, machine};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use core::arch::global_asm;
use core::panic::PanicInfo;
use core::ptr::NonNull;
use trapline_abi::stamp;
use trapline_interface::{Region, PAGE};

global_asm!(include_str!("entry.s"), options(att_syntax));

extern "C" {
    static trapline_handler_stack: u8;
    static trapline_exception_stack: u8;
    static trapline_timer_stack: u8;
    fn trapline_handler_portal();
    fn trapline_exception_portal();
}

/// Portal by which the main thread starts the handler of exits, which does everything else.
const HANDLER_START: Selector = 66;

/// Handler of this program's exceptions, and its UTCB.
const EXCEPTIONS: Selector = 65;
const EXCEPTIONS_UTCB: u64 = 0x2000_1000;
/// Portals of exceptions are the first selectors; a thread starts by the last but one.
const EXCEPTION_PORTALS: u64 = 31;
const THREAD_START: u64 = 30;

/// The timer's thread, its UTCB and scheduling context, and a priority above the vCPU's.
const TIMER: Selector = 80;
const TIMER_CONTEXT: Selector = 82;
const TIMER_UTCB: u64 = 0x2000_2000;
const TIMER_PRIORITY: u64 = 3;

/// Semaphore on which the main thread waits for ever.
const NEVER: Selector = 89;

/// Virtual addresses of heap, image or kernel, guest memory, and initramfs.
const HEAP: u64 = 0x3000_0000;
const MODULES: u64 = 0x3800_0000;
/// Command lines of this program and of the image.
const OWN_WORDS: u64 = 0x3f00_0000;
const WORDS: u64 = 0x3f10_0000;
const GUEST_MEMORY: u64 = 0x4000_0000;
const INITRD: u64 = 0x1_0000_0000;

const HEAP_SIZE: u64 = 1 << 20;
const MIB: u64 = 1 << 20;

/// Word of the module's command line with the size of guest memory, in MiB; words behind it are the image's.
const MEMORY: &str = "memory=";

/// Word of this program's command line with the part of the conformance suite.
const CONFORMANCE: &str = "conformance=";

/// Mappings for this program.
const TO_OWN: Destination = Destination {
    domain: OWN,
    is_guest: false,
    rights: Rights::All,
};

/// Physical memory above this address is not used.
const PHYSICAL_LIMIT: u64 = 1 << 32;

/// Entry from the assembly code.
///
/// # Safety
/// `hip` is the hypervisor information page, and NOVA has just started this program.
#[no_mangle]
unsafe extern "C" fn trapline_root_main(hip: *const [u8; PAGE]) -> ! {
    events::started(stamp!(VmmMain));
    debug_assert_eq!(hip as u64, USER_END - PAGE as u64);
    // Errors have no place to be reported before the handler has its ports.
    let _unreported = start_handler();
    loop {
        wait(NEVER, 0);
    }
}

fn start_handler() -> trapline_interface::Result<()> {
    handle_exceptions()?;
    let stack = &raw const trapline_handler_stack as u64;
    create_handler(HANDLER, OWN, HANDLER_UTCB, stack)?;
    let entry = trapline_handler_portal as *const () as u64;
    create_portal(HANDLER_START, OWN, HANDLER, Parts::NONE, entry)?;
    send(HANDLER_START)
}

/// The handler of exits: runs the machine until it stops.
#[no_mangle]
extern "C" fn trapline_run() -> ! {
    let hip = (USER_END - PAGE as u64) as *const [u8; PAGE];
    // SAFETY: NOVA maps the page, read-only.
    let run = match Hip::new(unsafe { &*hip }) {
        Some(hip) => run(&hip),
        None => Err("NOVA's information page has another format".to_owned()),
    };
    match run {
        Ok(()) => fail(&"the machine has stopped"),
        Err(error) => fail(&error),
    }
}

fn run(hip: &Hip<'_>) -> Result<(), String> {
    for (port, order) in PORTS {
        let (source, to) = ((Source::Kernel, port.into()), port.into());
        // SAFETY: ports are no memory.
        let mapped = unsafe { delegate(OWN, TO_OWN, Space::Ports, source, to, order) };
        mapped.map_err(|error| error.to_string())?;
    }
    let heap = hip.free(HEAP_SIZE, HEAP_SIZE, PHYSICAL_LIMIT);
    let heap = heap.ok_or("no free memory for the heap")?;
    map_range(heap, HEAP)?;
    // SAFETY: mapped above, for nothing else.
    unsafe { heap::set(HEAP as usize, HEAP_SIZE as usize) };
    let mut modules = hip.modules();
    let (Some(own), Some(image)) = (modules.next(), modules.next()) else {
        return Err(
            "no module with the image: QEMU -initrd \"trapline-nova,IMAGE memory=MIB WORDS\" or \
             -initrd \"trapline-nova,KERNEL memory=MIB WORDS,INITRAMFS\""
                .to_owned(),
        );
    };
    let own_words = command_line(&own, OWN_WORDS)?;
    let words = command_line(&image, WORDS)?;
    let (mib, words) = memory_size(&words)?;
    let memory = hip.free(mib * MIB, 4 * MIB, heap.address);
    let memory = memory.ok_or_else(|| format!("no {mib} MiB of free memory for the guest"))?;
    map_range(memory, GUEST_MEMORY)?;
    let region = clear(memory.size)?;
    start_timer().map_err(|error| error.to_string())?;
    let guest = Guest {
        conformance: own_words.strip_prefix(CONFORMANCE),
        image: contents(&image, MODULES)?,
        initrd: match modules.next() {
            Some(module) => Some(contents(&module, INITRD)?),
            None => None,
        },
        words,
    };
    match hip.is_svm() {
        Some(true) => guest.run::<Svm>(region),
        Some(false) => guest.run::<Vmx>(region),
        None => Err("NOVA offers no virtualization on this CPU: firmware disables it".to_owned()),
    }
}

/// Guest of the virtual machine.
struct Guest<'a> {
    /// Part of the conformance suite, in place of the others.
    conformance: Option<&'a str>,
    /// The image, or with an initramfs a Linux kernel.
    image: &'a [u8],
    initrd: Option<&'a [u8]>,
    words: &'a str,
}

impl Guest<'_> {
    fn run<T: Technology>(&self, memory: Region) -> Result<(), String> {
        match (self.conformance, self.initrd) {
            (Some(part), _) => conformance::run::<T>(part, &memory),
            (None, None) => machine::run::<T>(self.image, self.words, memory),
            (None, Some(initrd)) => linux::run::<T>(self.image, initrd, self.words, memory),
        }
    }
}

fn handle_exceptions() -> trapline_interface::Result<()> {
    let stack = &raw const trapline_exception_stack as u64;
    create_handler(EXCEPTIONS, OWN, EXCEPTIONS_UTCB, stack)?;
    let parts = Parts::RIP.with(Parts::RSP).with(Parts::QUALIFICATION);
    let entry = trapline_exception_portal as *const () as u64;
    for portal in (0..EXCEPTION_PORTALS).filter(|it| ![2, 8].contains(it)) {
        create_portal(portal, OWN, EXCEPTIONS, parts, entry)?;
        set_portal_number(portal, portal)?;
    }
    create_semaphore(NEVER, OWN)
}

fn start_timer() -> trapline_interface::Result<()> {
    create_semaphore(TIMER_SEMAPHORE, OWN)?;
    create_semaphore(HALT_SEMAPHORE, OWN)?;
    create_thread(TIMER, OWN, TIMER_UTCB)?;
    schedule(TIMER_CONTEXT, OWN, TIMER, TIMER_PRIORITY)
}

/// Maps physical memory at an address of this program that is reserved for it.
fn map_range(range: Range, to: u64) -> Result<(), String> {
    let page = PAGE as u64;
    let source = (Source::Kernel, range.address / page);
    let pages = range.size.div_ceil(page);
    // SAFETY: the addresses are reserved by the constants above, each for one range.
    let mapped = unsafe { delegate_pages(OWN, TO_OWN, source, to / page, pages) };
    mapped.map_err(|error| error.to_string())
}

/// Returns the contents of a module, which are mapped at `at`.
fn contents(module: &Module, at: u64) -> Result<&'static [u8], String> {
    let offset = module.range.address % PAGE as u64;
    let range = Range {
        address: module.range.address - offset,
        size: module.range.size + offset,
    };
    if at == MODULES && range.size > OWN_WORDS - MODULES {
        return Err("the image is too large".to_owned());
    }
    map_range(range, at)?;
    // SAFETY: mapped above, and nothing writes there.
    Ok(unsafe {
        core::slice::from_raw_parts((at + offset) as *const u8, module.range.size as usize)
    })
}

/// Returns the command line of a module without its first word, the file. It is mapped at `to`.
fn command_line(module: &Module, to: u64) -> Result<String, String> {
    const PAGES: u64 = 2;
    let offset = module.command_line % PAGE as u64;
    let range = Range {
        address: module.command_line - offset,
        size: PAGES * PAGE as u64,
    };
    map_range(range, to)?;
    // SAFETY: mapped above, and nothing writes there.
    let bytes = unsafe {
        core::slice::from_raw_parts((to + offset) as *const u8, (range.size - offset) as usize)
    };
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let text =
        core::str::from_utf8(bytes).map_err(|_| "the command line is not UTF-8".to_owned())?;
    let rest = text.split_once(' ').map_or("", |(_, rest)| rest);
    Ok(rest.to_owned())
}

/// Splits the size of guest memory, in MiB, from the words for the image.
fn memory_size(words: &str) -> Result<(u64, &str), String> {
    let (first, rest) = words.split_once(' ').unwrap_or((words, ""));
    let size = first
        .strip_prefix(MEMORY)
        .and_then(|size| size.parse().ok());
    let size = size.filter(|size| (1..=2048).contains(size));
    size.map(|size| (size, rest))
        .ok_or_else(|| format!("command line '{words}': it does not begin with memory=MIB"))
}

/// Returns the guest's memory, filled with zeros.
fn clear(length: u64) -> Result<Region, String> {
    let start = NonNull::new(GUEST_MEMORY as *mut u8).ok_or("no memory")?;
    // SAFETY: mapped above for the guest only. A boot loader may have left data there.
    unsafe {
        start.as_ptr().write_bytes(0, length as usize);
        Ok(Region::from_raw(start, length as usize))
    }
}

/// Starts a thread, or reports an exception of this program.
#[no_mangle]
extern "C" fn trapline_root_exception(number: u64) {
    // SAFETY: NOVA has written the message there, and only this handler uses it.
    let utcb = unsafe { &mut *(EXCEPTIONS_UTCB as *mut Utcb) };
    if number != THREAD_START {
        let [_, address] = utcb.qualification;
        fail(&format_args!(
            "exception {number} at {:#x}, address {address:#x}",
            utcb.rip
        ));
    }
    utcb.rip = timer::run as *const () as u64;
    utcb.set_stack(&raw const trapline_timer_stack as u64 - 8);
    utcb.parts = Parts::RIP.with(Parts::RSP).0;
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    fail(info)
}
