//! System calls and faults of programs.
//!
//! The kernel accesses memory of a program through its page tables and the identity map, one page at
//! a time, and only where the program itself may: no address that a program passes is used directly.

use super::address_space::{AddressSpace, CODE, PROGRAM, STACK};
use super::entries;
use super::isolated::Isolated;
use super::number::{self, EXCEPTION, FAILED, PROTECTION};
use super::resources::resources;
use super::ring::Ring;
use super::ring0::Ring0;
use super::ring3::Ring3;
use super::switch::{
    end, is_active, is_kernel_stack, reload_tables, start, table, wait_for, UserFrame,
};
use super::table::{Child, Event};
use crate::cpu::{exits, ring};
use crate::{console, devices};
use trapline_abi::frame::MAX_FRAME;
use trapline_abi::platform::PAGE;

/// Number of a page fault.
const PAGE_FAULT: u64 = 14;

/// Bits of its error code: the page is present, and a write.
const PRESENT: u64 = 1 << 0;
const WRITE_ACCESS: u64 = 1 << 1;

/// Performs a system call at ring 0. Called by entry.s; `frame` has the registers of the program.
#[no_mangle]
extern "C" fn trapline_system_call(
    number: u64,
    first: u64,
    second: u64,
    third: u64,
    frame: &mut UserFrame,
) -> u64 {
    perform::<Ring0>(number, first, second, third, frame)
}

/// Performs a system call of an isolated kernel. Called by isolated.s.
#[no_mangle]
extern "C" fn trapline_system_call_isolated(
    number: u64,
    first: u64,
    second: u64,
    third: u64,
    frame: &mut UserFrame,
) -> u64 {
    perform::<Isolated>(number, first, second, third, frame)
}

/// Performs a system call at ring 3. Called by entry3.s.
#[no_mangle]
extern "C" fn trapline_system_call3(
    number: u64,
    first: u64,
    second: u64,
    third: u64,
    frame: &mut UserFrame,
) -> u64 {
    perform::<Ring3>(number, first, second, third, frame)
}

#[inline(always)]
fn perform<R: Ring>(
    number: u64,
    first: u64,
    second: u64,
    third: u64,
    frame: &mut UserFrame,
) -> u64 {
    let result = match number {
        number::GETPID => Some(table().current() as u64),
        number::EXIT => end::<R>(first % EXCEPTION),
        number::FORK => fork::<R>(frame),
        number::EXEC => exec::<R>(first, second, frame),
        number::WAIT => wait::<R>(first as usize),
        number::PIPE => table().create_pipe().map(|pipe| pipe as u64),
        number::CLOSE => table().close(first as usize).map(|()| 0),
        number::READ if first == devices::NULL => {
            of_program(second, third).and_then(|()| devices::read(first, second, third))
        }
        number::WRITE if first == devices::NULL => {
            of_program(second, third).and_then(|()| devices::write(first, second, third))
        }
        number::READ => read::<R>(first as usize, second, third),
        number::WRITE => write::<R>(first as usize, second, third),
        number::ALLOCATE => allocate::<R>(first),
        number::RELEASE => release::<R>(first, second),
        number::PROTECT => protect::<R>(first, second != 0),
        number::MAP => map::<R>(),
        number::SWITCHES => Some(table().switches()),
        number::SEND => send::<R>(first, second),
        number::EXITS => exits(resources().has_ports),
        _ => None,
    };
    result.unwrap_or(FAILED)
}

/// Resolves a page fault of a program, or ends the program. Called by entry.s.
#[no_mangle]
extern "C" fn trapline_page_fault(address: u64, error: u64) {
    resolve::<Ring0>(address, error);
}

/// Does the same in an isolated kernel. Called by isolated.s.
#[no_mangle]
extern "C" fn trapline_page_fault_isolated(address: u64, error: u64) {
    resolve::<Isolated>(address, error);
}

/// Does the same where the kernel is at ring 3. `stack` is the interrupted stack pointer.
#[no_mangle]
extern "C" fn trapline_page_fault3(address: u64, error: u64, stack: u64) {
    if is_kernel_stack(stack) {
        panic!(
            "page fault of the kernel, error {error:#x}, stack {stack:#x}, address {address:#x}"
        );
    }
    resolve::<Ring3>(address, error);
}

#[inline(always)]
fn resolve<R: Ring>(address: u64, error: u64) {
    let write = error & WRITE_ACCESS != 0;
    let space = table().space();
    let resolved = space.and_then(|(space, zeros, pool)| space.fault(address, write, zeros, pool));
    match resolved {
        // The CPU has removed the translation of the address (Intel SDM volume 3, 4.10.4.1).
        Some(()) => {}
        None => {
            // Read again, so that `error` occupies no register while a fault is resolved.
            // SAFETY: the frame of this page fault is on the stack of exceptions, which nothing else uses meanwhile.
            let error = unsafe { error_code(R::exception_stack()).read() };
            end::<R>(EXCEPTION + PAGE_FAULT + (error & PRESENT) * PROTECTION)
        }
    }
}

/// Returns the address of the error code of an exception, as pushed by the CPU on a stack with this end.
fn error_code(stack: *const u64) -> *const u64 {
    const WORDS: usize = 6;
    stack.wrapping_sub(WORDS)
}

/// Ends the current program because of an exception at ring 3, with this stack pointer. Returns if there is no
/// program.
pub fn end_on_exception(vector: u64, stack: u64) {
    match ring() {
        _ if !is_active() => {}
        0 if entries::are_loaded() => end::<Isolated>(EXCEPTION + vector),
        0 => end::<Ring0>(EXCEPTION + vector),
        _ if is_kernel_stack(stack) => {}
        _ => end::<Ring3>(EXCEPTION + vector),
    }
}

fn fork<R: Ring>(frame: &UserFrame) -> Option<u64> {
    let child = table().fork::<R>()?;
    start::<R>(child, frame);
    reload_tables::<R>();
    Some(child as u64)
}

/// Words at the end of the stack of an executed program: number and address of its argument, the end
/// of the list, the argument.
const ARGUMENTS: u64 = 4 * 8;

fn exec<R: Ring>(argument: u64, program: u64, frame: &mut UserFrame) -> Option<u64> {
    // SAFETY: a readable byte of the program.
    let argument = unsafe { byte::<R>(argument, false)?.read() };
    let new = AddressSpace::new(resources().kernel_part, &mut table().pool)?;
    let (space, ..) = table().space()?;
    let old = core::mem::replace(space, new);
    let loaded = load_program::<R>(argument);
    reload_tables::<R>();
    R::discard(old.top());
    old.free(&mut table().pool);
    if loaded.is_none() {
        end::<R>(EXCEPTION + PAGE_FAULT);
    }
    *frame = UserFrame::new(CODE + program % PAGE, STACK.end - ARGUMENTS);
    Some(0)
}

/// Maps the programs in the new address space, and writes its argument.
fn load_program<R: Ring>(argument: u8) -> Option<()> {
    let (space, zeros, pool) = table().space()?;
    space.map_code(resources().programs, pool)?;
    let (at, _) = space.translate(STACK.end - ARGUMENTS, true, zeros, pool)?;
    let at = at as *mut u64;
    // SAFETY: the last words of the stack, in a frame of this space.
    unsafe {
        at.cast::<[u64; 4]>()
            .write([1, STACK.end - 8, 0, argument.into()])
    };
    Some(())
}

/// Waits for the end of a child. Returns its status.
pub fn wait<R: Ring>(child: usize) -> Option<u64> {
    loop {
        match table().reap(child) {
            Child::None => return None,
            Child::Ended(status) => return Some(status),
            Child::Alive => {}
        }
        if !wait_for::<R>(Event::Child(child)) {
            return None;
        }
    }
}

fn read<R: Ring>(pipe: usize, address: u64, length: u64) -> Option<u64> {
    loop {
        let source = table().pipe(pipe)?;
        match (source.used(), source.users()) {
            (0, 1) => return Some(0),
            (0, _) => {}
            (used, _) => return drain::<R>(pipe, address, length.min(used as u64)),
        }
        if !wait_for::<R>(Event::Pipe(pipe)) {
            return None;
        }
    }
}

/// Moves bytes of a pipe, which has them, to a program.
fn drain<R: Ring>(pipe: usize, address: u64, length: u64) -> Option<u64> {
    check::<R>(address, length, true)?;
    for at in address..address + length {
        let target = byte::<R>(at, true)?;
        // SAFETY: a writable byte of the program.
        unsafe { target.write(table().pipe(pipe)?.pop()) };
    }
    table().wake(Event::Pipe(pipe));
    Some(length)
}

fn write<R: Ring>(pipe: usize, address: u64, length: u64) -> Option<u64> {
    check::<R>(address, length, false)?;
    while table().pipe(pipe)?.room() < length as usize {
        let is_readable = table().pipe(pipe)?.users() > 1;
        if !is_readable || !wait_for::<R>(Event::Pipe(pipe)) {
            return None;
        }
    }
    for at in address..address + length {
        // SAFETY: a readable byte of the program.
        let byte = unsafe { byte::<R>(at, false)?.read() };
        table().pipe(pipe)?.push(byte);
    }
    table().wake(Event::Pipe(pipe));
    Some(length)
}

/// Checks that a program may access `length` bytes at `address`, at most [`MAX_FRAME`], which lie in
/// two pages at most.
fn check<R: Ring>(address: u64, length: u64, write: bool) -> Option<()> {
    const { assert!(MAX_FRAME <= PAGE as usize) };
    if length > MAX_FRAME as u64 {
        return None;
    }
    byte::<R>(address, write)?;
    let last = address.checked_add(length.max(1) - 1)?;
    if last / PAGE != address / PAGE {
        byte::<R>(last, write)?;
    }
    Some(())
}

/// Returns the identity-mapped address of a byte that the program may access.
fn byte<R: Ring>(address: u64, write: bool) -> Option<*mut u8> {
    let (space, zeros, pool) = table().space()?;
    let (at, is_changed) = space.translate(address, write, zeros, pool)?;
    if is_changed {
        R::flush(address);
    }
    Some(at as *mut u8)
}

/// Checks that the addresses are those of programs, for a device that does not access them.
fn of_program(address: u64, length: u64) -> Option<()> {
    (PROGRAM.contains(&address) && length <= PROGRAM.end - address).then_some(())
}

fn allocate<R: Ring>(bytes: u64) -> Option<u64> {
    let (space, _, pool) = table().space()?;
    space.allocate::<R>(bytes, pool)
}

fn release<R: Ring>(start: u64, length: u64) -> Option<u64> {
    let (space, _, pool) = table().space()?;
    let range = space.heap_range(start, length)?;
    space.release(range.clone(), pool);
    R::flush_range(range);
    Some(0)
}

fn protect<R: Ring>(address: u64, writable: bool) -> Option<u64> {
    let (space, _, pool) = table().space()?;
    space.heap_range(address, PAGE)?;
    space.protect(address, writable, pool)?;
    R::flush(address);
    Some(0)
}

fn map<R: Ring>() -> Option<u64> {
    let (space, _, pool) = table().space()?;
    space.map::<R>(&resources().file, pool)
}

fn send<R: Ring>(address: u64, length: u64) -> Option<u64> {
    check::<R>(address, length, false)?;
    console::send_encoded(length as usize, |at| {
        // SAFETY: checked above.
        byte::<R>(address + at as u64, false).map_or(0, |byte| unsafe { byte.read() })
    });
    Some(0)
}
