//! Start and end of process 1, and the memory of all processes.

use super::address_space::{kernel_part, AddressSpace, KernelPage, STACK};
use super::calls::wait;
use super::switch::{is_guard, start, table, UserFrame};
use super::{cpu, hostile, pool, user, Entry};
use crate::cpu::{ring, Global};
use crate::memory;
use trapline_abi::Job;
use trapline_workloads::system::MAPPED_PAGES;
use trapline_workloads::Reason;

extern "C" {
    /// First address of the code and constants of the image, and the first after them; see image.ld.
    static trapline_code_start: u8;
    static trapline_code_end: u8;
    /// Program of entry.s.
    static trapline_program: u8;
    static trapline_program_end: u8;
}

/// Resources that all processes share.
pub struct Resources {
    /// See [`kernel_part`].
    pub kernel_part: u64,
    /// Page of the program that `exec` executes.
    pub program: u64,
    /// Pages of the mapped file.
    pub file: [u64; MAPPED_PAGES as usize],
    /// The machine has Trapline's own ports.
    pub has_ports: bool,
}

static RESOURCES: Global<Resources> = Global::new(Resources {
    kernel_part: 0,
    program: 0,
    file: [0; MAPPED_PAGES as usize],
    has_ports: false,
});

/// Returns the shared resources.
pub fn resources() -> &'static Resources {
    // SAFETY: changed by `run` only, before there are processes.
    unsafe { RESOURCES.get() }
}

const NO_MEMORY: Reason = "not enough memory for processes";

/// Measures workload `system` in process 1.
///
/// # Errors
/// The reason why there are no processes.
pub fn measure(job: &Job, has_ports: bool) -> Result<(), Reason> {
    let status = run(user::measure, job, has_ports)?;
    assert!(
        status == 0,
        "the measured process ended with status {status}"
    );
    Ok(())
}

/// Runs programs that misbehave, and panics unless each is ended or refused as expected.
pub fn contain_programs(job: &Job) {
    match run(hostile::run, job, false) {
        Ok(0) => {}
        Ok(number) => panic!("misbehaviour {number} of a program is not contained"),
        Err(reason) => panic!("{reason}"),
    }
}

/// Runs `entry` as process 1, with a copy of `job`. Returns its status when it ends. Other processes
/// end with it.
fn run(entry: Entry, job: &Job, has_ports: bool) -> Result<u64, Reason> {
    if ring() != 0 {
        return Err("needs ring 0: at ring 3 the image cannot isolate processes");
    }
    let first = frames().ok_or(NO_MEMORY)?;
    table().clear();
    // SAFETY: the run is used for processes only, which do not exist yet, and RAM is identity-mapped.
    unsafe { table().pool.open(first) };
    cpu::enable_system_calls();
    let child = fill(has_ports).and_then(|()| add_first(entry, job));
    // A wait fails if all processes wait.
    let status = child.map(|child| loop {
        if let Some(status) = wait(child) {
            break status;
        }
    });
    cpu::disable_system_calls();
    table().clear();
    status.ok_or(NO_MEMORY)
}

/// Returns the frames of processes, allocated at the first call and never freed.
fn frames() -> Option<u64> {
    static FIRST: Global<Option<u64>> = Global::new(None);
    // SAFETY: no other reference.
    let first = unsafe { FIRST.get() };
    *first = first.or_else(|| memory::take_last_frames(pool::BYTES));
    *first
}

/// Allocates what all processes share.
fn fill(has_ports: bool) -> Option<()> {
    let table = table();
    table.zeros = table.pool.take_zeroed()?;
    // SAFETY: no process exists that could use the resources.
    let resources = unsafe { RESOURCES.get() };
    resources.has_ports = has_ports;
    // SAFETY: the kernel's tables are those of tables.s, and below them those of memory.rs.
    resources.kernel_part = unsafe { kernel_part(memory::top_table(), access, &mut table.pool)? };
    resources.program = table.pool.take_zeroed()?;
    let program = &raw const trapline_program;
    let length = &raw const trapline_program_end as usize - program as usize;
    // SAFETY: the bytes between two labels of entry.s, and a frame of the pool.
    unsafe { program.copy_to_nonoverlapping(resources.program as *mut u8, length) };
    for (page, index) in resources.file.iter_mut().zip(0..) {
        *page = table.pool.take_zeroed()?;
        // SAFETY: a frame of the pool.
        unsafe { (*page as *mut u64).write(index) };
    }
    Some(())
}

/// Returns the access of programs to a page of the first 2 MiB.
fn access(page: u64) -> KernelPage {
    let code = &raw const trapline_code_start as u64..&raw const trapline_code_end as u64;
    match page {
        page if code.contains(&page) => KernelPage::Readable,
        page if is_guard(page) => KernelPage::Guard,
        _ => KernelPage::Private,
    }
}

/// Adds process 1, with `job` at the end of its stack.
fn add_first(entry: Entry, job: &Job) -> Option<usize> {
    let table = table();
    let mut space = AddressSpace::new(resources().kernel_part, &mut table.pool)?;
    const { assert!(size_of::<Job>() <= 1024 && align_of::<Job>() <= 1024) };
    let at = STACK.end - 1024;
    let copy = space.translate(at, true, table.zeros, &mut table.pool)?;
    // SAFETY: the end of the stack has room for a job, by the assertion above.
    unsafe { (copy as *mut Job).write(*job) };
    let child = table.add(space).ok()?;
    start(child, &UserFrame::first(entry, at));
    Some(child)
}
