//! Kernel at ring 0 that is isolated from its programs.
//!
//! Programs run on tables ([`super::user_tables`]) that map the image's code and constants, which programs execute,
//! and one page of the kernel's data ([`super::entries`]). `isolated.s` loads CR3 at each entry and at each exit.
//!
//! With process-context identifiers (Intel SDM volume 3, 4.10.1) these loads keep translations: identifier 0 is the
//! kernel's, [`USER_PCID`] that of programs. A switch to another process removes the translations of both, as without
//! isolation.

use super::address_space::KernelPage;
use super::cpu;
use super::entries::{self, entries, GATES};
use super::resources;
use super::ring::{Code, Ring};
use super::ring0::Ring0;
use super::switch::{reload_tables, table};
use super::user_tables;
use crate::console;
use crate::memory::{self, FRAME};
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::arch::{asm, global_asm};
use core::fmt::Write;
use core::ops::Range;
use trapline_abi::platform::ISOLATION_FACT_PREFIX;
use trapline_workloads::Reason;

global_asm!(include_str!("isolated.s"), GATES = const GATES);

extern "C" {
    fn trapline_system_call_entry_isolated();
    fn trapline_return_to_child_isolated();
}

const NO_MEMORY: Reason = "not enough memory for page tables of programs";

/// Identifier of the translations of programs.
const USER_PCID: u64 = 1;
/// Bit of a value of CR3: the load keeps translations.
const KEEP: u64 = 1 << 63;
/// Bit of CR4: process-context identifiers are enabled.
const PCID_ENABLED: u64 = 1 << 17;
/// Bits of `ecx` of cpuid leaf 1, and of `ebx` of leaf 7.
const HAS_PCID: u32 = 1 << 17;
const HAS_INVPCID: u32 = 1 << 10;

/// Types of `invpcid`: one address, and all of an identifier.
const ONE_ADDRESS: u64 = 0;
const ONE_CONTEXT: u64 = 1;

/// Returns true if the CPU has identifiers, and the instruction that removes translations of one that is not current.
fn has_pcid() -> bool {
    let has_leaf_7 = __cpuid(0).eax >= 7;
    has_leaf_7 && __cpuid(1).ecx & HAS_PCID != 0 && __cpuid_count(7, 0).ebx & HAS_INVPCID != 0
}

/// Enables or disables process-context identifiers. The current one is 0.
fn set_pcid(enabled: bool) {
    // SAFETY: the CPU has them; translations are the same with and without them.
    unsafe {
        let mut control: u64;
        asm!("mov {0}, cr4", out(reg) control, options(nomem, nostack, preserves_flags));
        control = control & !PCID_ENABLED | u64::from(enabled) * PCID_ENABLED;
        asm!("mov cr4, {0}", in(reg) control, options(nostack, preserves_flags));
    }
}

/// Removes translations of programs. Without identifiers the next load of CR3 removes them.
#[inline(always)]
fn invalidate(kind: u64, address: u64) {
    if entries().user_tables & KEEP != 0 {
        let descriptor = [USER_PCID, address];
        // SAFETY: only removes translations; `KEEP` is set if the CPU has the instruction.
        unsafe {
            asm!("invpcid {0}, [{1}]", in(reg) kind, in(reg) &descriptor,
                 options(nostack, preserves_flags));
        }
    }
}

/// Prepares entries and exits of the process whose top-level table is `top`.
#[inline(always)]
fn use_tables(top: u64) {
    let entries = entries();
    entries.kernel_tables = top | entries.user_tables & KEEP;
    // SAFETY: the kernel has its own tables loaded.
    unsafe { user_tables::set_program(entries.user_tables, top) };
    invalidate(ONE_CONTEXT, 0);
}

/// Returns the access of programs to a page of the first 2 MiB.
fn access(page: u64) -> KernelPage {
    match resources::access(page) {
        KernelPage::Readable => KernelPage::Readable,
        _ if page == entries::address() => KernelPage::Private,
        _ => KernelPage::Guard,
    }
}

/// Ring 0, isolated.
#[derive(Default)]
pub struct Isolated;

impl Ring for Isolated {
    const IS_PROTECTED: bool = Ring0::IS_PROTECTED;

    fn open(_: bool) -> Result<(), Reason> {
        let kernel = memory::top_table();
        // SAFETY: the kernel's tables are those of tables.s.
        let top = unsafe { user_tables::create(kernel, access, &mut table().pool) };
        let top = top.ok_or(NO_MEMORY)?;
        let has_pcid = has_pcid();
        set_pcid(has_pcid);
        let entries = entries();
        entries.user_tables = if has_pcid {
            top | USER_PCID | KEEP
        } else {
            top
        };
        entries.load();
        use_tables(kernel as u64);
        cpu::enable_system_calls(trapline_system_call_entry_isolated);
        let yes_no = if has_pcid { "yes" } else { "no" };
        // The console takes everything.
        let _ = writeln!(console::Text, "{ISOLATION_FACT_PREFIX}pcid {yes_no}");
        Ok(())
    }

    fn close() {
        cpu::disable_system_calls();
        entries().unload();
        set_pcid(false);
    }

    #[inline(always)]
    unsafe fn call(number: u64, first: u64, second: u64, third: u64) -> u64 {
        // SAFETY: same contract.
        unsafe { Ring0::call(number, first, second, third) }
    }

    #[inline(always)]
    fn load_tables(top: u64) {
        use_tables(top);
        Ring0::load_tables(top);
    }

    #[inline(always)]
    fn flush(address: u64) {
        Ring0::flush(address);
        invalidate(ONE_ADDRESS, address);
    }

    #[inline(always)]
    fn flush_range(_: Range<u64>) {
        reload_tables::<Self>();
    }

    /// Loads the tables of the kernel's thread, which are never freed.
    #[inline(always)]
    fn leave(_: u64) {
        Self::load_tables(memory::top_table() as u64);
    }

    #[inline(always)]
    fn discard(_: u64) {}

    #[inline(always)]
    unsafe fn switch(from: *mut *mut u64, to: *mut u64, tables: u64) {
        use_tables(tables);
        // SAFETY: same contract.
        unsafe { Ring0::switch(from, to, tables) }
    }

    fn exception_stack() -> *const u64 {
        (entries::address() + FRAME) as *const u64
    }

    fn programs() -> [(u64, Code); 2] {
        Ring0::programs()
    }

    fn start() -> u64 {
        Ring0::start()
    }

    fn return_to_child() -> u64 {
        trapline_return_to_child_isolated as *const () as u64
    }
}
