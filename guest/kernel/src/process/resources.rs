//! Memory that all processes share.

use super::address_space::{kernel_part, KernelPage};
use super::ring::{Code, Ring};
use super::switch::{is_guard, table};
use crate::cpu::Global;
use crate::memory;
use trapline_workloads::system::MAPPED_PAGES;

extern "C" {
    /// First address of the code and constants of the image, and the first after them; see image.ld.
    static trapline_code_start: u8;
    static trapline_code_end: u8;
}

/// Resources that all processes share.
pub struct Resources {
    /// See [`kernel_part`].
    pub kernel_part: u64,
    /// Page of the programs that `exec` executes.
    pub programs: u64,
    /// Pages of the mapped file.
    pub file: [u64; MAPPED_PAGES as usize],
    /// The machine has Trapline's own ports.
    pub has_ports: bool,
}

static RESOURCES: Global<Resources> = Global::new(Resources {
    kernel_part: 0,
    programs: 0,
    file: [0; MAPPED_PAGES as usize],
    has_ports: false,
});

/// Returns the shared resources.
pub fn resources() -> &'static Resources {
    // SAFETY: changed by `allocate_resources` only, before there are processes.
    unsafe { RESOURCES.get() }
}

/// Allocates the resources. `None` if the pool is exhausted.
pub fn allocate_resources<R: Ring>(has_ports: bool) -> Option<()> {
    let table = table();
    table.zeros = table.pool.take_zeroed()?;
    // SAFETY: no process exists that could use the resources.
    let resources = unsafe { RESOURCES.get() };
    resources.has_ports = has_ports;
    // SAFETY: the kernel's tables are those of tables.s, and below them those of memory.rs.
    resources.kernel_part = unsafe {
        kernel_part(
            memory::top_table(),
            R::IS_PROTECTED,
            access,
            &mut table.pool,
        )?
    };
    resources.programs = table.pool.take_zeroed()?;
    for (offset, Code { start, length }) in R::programs() {
        let to = (resources.programs + offset) as *mut u8;
        // SAFETY: the bytes between two labels, and a part of a frame of the pool.
        unsafe { start.copy_to_nonoverlapping(to, length) };
    }
    for (page, index) in resources.file.iter_mut().zip(0..) {
        *page = table.pool.take_zeroed()?;
        // SAFETY: a frame of the pool.
        unsafe { (*page as *mut u64).write(index) };
    }
    Some(())
}

/// Returns the access of programs to a page of the first 2 MiB.
pub fn access(page: u64) -> KernelPage {
    let code = &raw const trapline_code_start as u64..&raw const trapline_code_end as u64;
    match page {
        page if code.contains(&page) => KernelPage::Readable,
        page if is_guard(page) => KernelPage::Guard,
        _ => KernelPage::Private,
    }
}
