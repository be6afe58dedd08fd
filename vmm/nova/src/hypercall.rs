//! Hypercalls (`include/syscall.hpp`). Kernel objects are named by selectors.

use crate::utcb::Parts;
use core::arch::asm;
use trapline_interface::{Errno, Error, Result};

/// A capability selector.
pub type Selector = u64;

/// Protection domain of this program.
pub const OWN: Selector = 32;

/// Numbers of hypercalls.
#[derive(Clone, Copy)]
enum Call {
    Ipc = 0,
    CreatePd = 2,
    CreateEc = 3,
    CreateSc = 4,
    CreatePt = 5,
    CreateSm = 6,
    Revoke = 7,
    Misc = 8,
    EcCtrl = 9,
    PtCtrl = 11,
    SmCtrl = 12,
}

/// Status of a timeout.
const TIMEOUT: u8 = 1;

/// Lowest address that is not the user's. The information page and the main thread's UTCB are below it.
pub const USER_END: u64 = 0x7fff_c000_0000;
/// UTCB of the handler of exits.
pub const HANDLER_UTCB: u64 = 0x2000_0000;

/// Types of capability ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Memory = 1,
    Ports = 2,
    Objects = 3,
}

/// Rights to memory or other items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    All = 0x1f,
    /// Read and execute.
    ReadOnly = 0b101,
}

/// A capability range descriptor (`include/crd.hpp`): 2^order items from `base`.
const fn range(space: Space, base: u64, order: u64, rights: Rights) -> u64 {
    base << 12 | order << 7 | (rights as u64) << 2 | space as u64
}

/// Destination of delegated memory.
const TO_GUEST: u64 = 1 << 9;
/// The source is the kernel's own: physical memory, and ports of the machine.
const FROM_KERNEL: u64 = 1 << 11;

/// Makes a hypercall. Returns its status, 0 for success.
///
/// # Safety
/// A hypercall that changes memory may only change memory that nothing uses.
unsafe fn call(call: Call, flags: u64, selector: Selector, arguments: [u64; 4]) -> u8 {
    let [a, b, c, d] = arguments;
    let status: u64;
    // SAFETY: the kernel preserves all other registers.
    unsafe {
        asm!("syscall", inout("rdi") selector << 8 | flags << 4 | call as u64 => status,
             inout("rsi") a => _, inout("rdx") b => _, inout("rax") c => _, inout("r8") d => _,
             out("rcx") _, out("r11") _, options(nostack));
    }
    status as u8
}

fn check(what: &'static str, status: u8) -> Result<()> {
    match status {
        0 => Ok(()),
        status => Err(Error::Refused {
            what,
            source: Errno(status.into()),
        }),
    }
}

/// Calls that create objects or change no memory of this program.
fn checked(
    what: &'static str,
    it: Call,
    flags: u64,
    selector: Selector,
    arguments: [u64; 4],
) -> Result<()> {
    // SAFETY: none of the calls below maps or unmaps memory of this program, but UTCBs at unused addresses.
    check(what, unsafe { call(it, flags, selector, arguments) })
}

/// Creates a protection domain with the 256 exit portals from `portals`.
pub fn create_domain(domain: Selector, parent: Selector, portals: Selector) -> Result<()> {
    const QUOTA_PAGES: u64 = 0x200;
    let given = range(Space::Objects, portals, 8, Rights::All);
    let quota = QUOTA_PAGES | QUOTA_PAGES << 32;
    checked(
        "create a protection domain",
        Call::CreatePd,
        0,
        domain,
        [parent, given, quota, 0],
    )
}

/// Creates a thread that handles messages, with its UTCB at an unused address.
pub fn create_handler(thread: Selector, domain: Selector, utcb: u64, stack: u64) -> Result<()> {
    checked(
        "create a handler",
        Call::CreateEc,
        0,
        thread,
        [domain, utcb, stack, 0],
    )
}

/// Creates a thread that starts with an exception, or without UTCB a vCPU that starts with an exit.
pub fn create_thread(thread: Selector, domain: Selector, utcb: u64) -> Result<()> {
    checked(
        "create a thread",
        Call::CreateEc,
        1,
        thread,
        [domain, utcb, 0, 0],
    )
}

/// Gives a thread CPU time: it starts.
pub fn schedule(
    context: Selector,
    domain: Selector,
    thread: Selector,
    priority: u64,
) -> Result<()> {
    const QUANTUM_US: u64 = 1_000_000;
    let parameters = priority | QUANTUM_US << 12;
    checked(
        "schedule a thread",
        Call::CreateSc,
        0,
        context,
        [domain, thread, parameters, 0],
    )
}

/// Creates a portal: messages with `parts` of the state go to `handler` at `entry`.
pub fn create_portal(
    portal: Selector,
    domain: Selector,
    handler: Selector,
    parts: Parts,
    entry: u64,
) -> Result<()> {
    checked(
        "create a portal",
        Call::CreatePt,
        0,
        portal,
        [domain, handler, parts.0, entry],
    )
}

/// Sets the number that a portal passes to its handler.
pub fn set_portal_number(portal: Selector, number: u64) -> Result<()> {
    checked(
        "set the number of a portal",
        Call::PtCtrl,
        0,
        portal,
        [number, 0, 0, 0],
    )
}

/// Creates a semaphore with the count 0.
pub fn create_semaphore(semaphore: Selector, domain: Selector) -> Result<()> {
    checked(
        "create a semaphore",
        Call::CreateSm,
        0,
        semaphore,
        [domain, 0, 0, 0],
    )
}

/// Increments a semaphore.
pub fn up(semaphore: Selector) {
    // SAFETY: changes no memory. A semaphore of this program is valid.
    let _valid = unsafe { call(Call::SmCtrl, 0, semaphore, [0; 4]) };
}

/// Waits until a semaphore is not 0 and sets it to 0, at most until `deadline` in ticks of the TSC; 0 is no
/// deadline. Returns true at the deadline.
pub fn wait(semaphore: Selector, deadline: u64) -> bool {
    const DOWN_AND_CLEAR: u64 = 3;
    let time = [deadline >> 32, deadline & 0xffff_ffff, 0, 0];
    // SAFETY: as in `up`.
    (unsafe { call(Call::SmCtrl, DOWN_AND_CLEAR, semaphore, time) }) == TIMEOUT
}

/// Makes a vCPU exit to its recall portal.
pub fn recall(thread: Selector) {
    // SAFETY: changes no memory. The thread of this program is valid.
    let _valid = unsafe { call(Call::EcCtrl, 0, thread, [0; 4]) };
}

/// Sends a message to the handler of `portal`, and waits for its reply.
pub fn send(portal: Selector) -> Result<()> {
    checked("start the handler", Call::Ipc, 0, portal, [0; 4])
}

/// Reads `parts` of the state of a vCPU that waits for the reply to its exit, into the handler's UTCB. The vCPU then
/// exits to its recall portal.
pub fn read_state(vcpu: Selector, parts: Parts) -> Result<()> {
    const READ_STATE: u64 = 6;
    checked(
        "read the state of a vCPU",
        Call::EcCtrl,
        READ_STATE,
        vcpu,
        [parts.0, 0, 0, 0],
    )
}

/// Kernel and ports of the machine, or this program's memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Kernel,
    Own,
}

/// Destination of a mapping: a domain, and its rights.
#[derive(Clone, Copy)]
pub struct Destination {
    pub domain: Selector,
    /// The destination is guest memory.
    pub is_guest: bool,
    pub rights: Rights,
}

/// Maps 2^order pages or ports from `from` to `to`. Only the handler calls it.
///
/// # Safety
/// Nothing uses the destination.
pub unsafe fn delegate(
    own: Selector,
    destination: Destination,
    space: Space,
    (source, from): (Source, u64),
    to: u64,
    order: u64,
) -> Result<()> {
    const DELEGATE: u64 = 1;
    const TYPED_ITEM: u64 = 1 << 16;
    let from_kernel = if source == Source::Kernel {
        FROM_KERNEL
    } else {
        0
    };
    let to_guest = if destination.is_guest { TO_GUEST } else { 0 };
    let hotspot = to << 12 | 1 | from_kernel | to_guest;
    let head = HANDLER_UTCB as *mut u64;
    // SAFETY: the UTCB of the handler is mapped, and only its kernel reads it. Typed items are at its end, behind the
    // message of an exit.
    unsafe {
        let item = (HANDLER_UTCB + 4096 - 16) as *mut u64;
        item.write_volatile(range(space, from, order, destination.rights));
        item.add(1).write_volatile(hotspot);
        head.write_volatile(TYPED_ITEM);
    }
    let everything = space as u64 | 0x1f << 7 | 0x1f << 2;
    let arguments = [everything, destination.domain, 0, 0];
    // SAFETY: by this function's contract.
    let status = unsafe { call(Call::Misc, DELEGATE, own, arguments) };
    // SAFETY: as above. The reply to an exit has no items.
    unsafe { head.write_volatile(0) };
    check("map memory or ports", status)
}

/// Splits a range of pages into the largest blocks that both addresses allow: the first pages and the order of each.
fn blocks(mut from: u64, mut to: u64, mut pages: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    core::iter::from_fn(move || {
        let order = (from | to)
            .trailing_zeros()
            .min(pages.checked_ilog2()?)
            .into();
        let block = (from, to, order);
        from += 1_u64 << order;
        to += 1_u64 << order;
        pages -= 1_u64 << order;
        Some(block)
    })
}

/// Maps `pages` pages as [`delegate`] does.
///
/// # Safety
/// Nothing uses the destination.
pub unsafe fn delegate_pages(
    own: Selector,
    destination: Destination,
    (source, from): (Source, u64),
    to: u64,
    pages: u64,
) -> Result<()> {
    for (from, to, order) in blocks(from, to, pages) {
        let source = (source, from);
        // SAFETY: by this function's contract.
        unsafe { delegate(own, destination, Space::Memory, source, to, order)? };
    }
    Ok(())
}

/// Unmaps `pages` pages of guest memory.
pub fn revoke_pages(domain: Selector, at: u64, pages: u64) -> Result<()> {
    const SELF_AND_REMOTE: u64 = 3;
    for (_, at, order) in blocks(at, at, pages) {
        let pages = range(Space::Memory, at, order, Rights::All);
        let arguments = [pages, domain, 0, 0];
        checked("unmap memory", Call::Revoke, SELF_AND_REMOTE, 0, arguments)?;
    }
    Ok(())
}
