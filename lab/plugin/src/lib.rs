//! QEMU plugin that counts how often each instruction runs between the markers of a guest, in
//! host and guest mode, and on request by call path.
//!
//! QEMU loads it only to explain a figure. The figure does not depend on it: QEMU's clock counts
//! the instructions of the machine, not of plugins. Module [`qemu`] declares QEMU's functions.
//! The machine has one CPU, and `-icount` executes it on one thread.

mod qemu;

use qemu::{Code, Id, Info, InlineCounter, Insn, Tb};
use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::fs::File;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::OnceLock;
use trapline_profile::counter::{self, Counter, Flow, StackSlot, Translation};
use trapline_profile::irq_path::{self, IrqPath};
use trapline_profile::irq_tracer::{self, IrqTracer, TracePoint};
use trapline_profile::{format, page, AddressLayout, MAX_LENGTH, MAX_LEVELS};

/// Version of QEMU's plugin API that this plugin declares to use: that of the QEMU that loads it.
#[no_mangle]
pub static qemu_plugin_version: AtomicI32 = AtomicI32::new(1);

/// Called by the loader, before QEMU reads the version.
#[used]
#[link_section = ".init_array"]
static ON_LOAD: extern "C" fn() = declare_version;

extern "C" fn declare_version() {
    qemu_plugin_version.store(qemu::version(), Relaxed);
}

static COUNTER: Counter = Counter::new();

static IRQ_TRACER: IrqTracer = IrqTracer::new();

/// Number of instructions that began, of all blocks for the tracer, and of those that the counter counts as a whole.
static EXECUTED: OnceLock<Option<InlineCounter>> = OnceLock::new();

/// Number of instructions of kernels and hypervisors that began, for [`counter::Lengths`].
static PRIVILEGED: OnceLock<Option<InlineCounter>> = OnceLock::new();

/// Initializes the plugin. Arguments: `out=FILE` names the output; [`format::STACKS`] counts
/// call paths; [`format::LENGTHS`] and [`format::LENGTHS_ALONE`] count what finds the length of instructions; [`format::XEN`] and [`format::LEVELS`] set the address layout; [`irq_path::PATH_ARGUMENT`] traces
/// interrupts instead of counting; `probe` prints [`format::ready`] and fails, to test whether
/// QEMU can load the plugin.
///
/// # Safety
/// QEMU calls it with the guarantees of its API: `argc` strings at `argv`.
#[no_mangle]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU's argument.
    unsafe { qemu::select(info) };
    for index in 0..usize::try_from(argc).unwrap_or(0) {
        // SAFETY: `index` is below the number of strings at `argv`, each of which
        // ends with a zero and lives until this returns.
        let argument = unsafe { CStr::from_ptr(*argv.add(index)) };
        if let Err(message) = set_argument(&argument.to_string_lossy()) {
            print_error(&message);
            return 1;
        }
    }
    // SAFETY: `id` is ours, and the callback lives as long as this library, which
    // QEMU never unloads while its machine runs.
    unsafe { qemu::qemu_plugin_register_vcpu_tb_trans_cb(id, block_translated) };
    0
}

fn set_argument(argument: &str) -> Result<(), String> {
    if let Some(path) = argument.strip_prefix("out=") {
        let file = File::create(path).map_err(|error| format!("{path}: {error}"))?;
        COUNTER.set_output(file);
    } else if argument == format::STACKS {
        COUNTER.enable_paths();
    } else if argument == format::XEN {
        COUNTER.set_xen();
        IRQ_TRACER.set_layout(AddressLayout::Xen);
    } else if argument == format::LENGTHS {
        COUNTER.count_lengths(false);
    } else if argument == format::LENGTHS_ALONE {
        COUNTER.count_lengths(true);
    } else if argument == format::RESET {
        COUNTER.start_launch();
    } else if let Some(levels) = argument.strip_prefix(format::LEVELS) {
        let levels = levels.parse().ok();
        let levels = levels.filter(|levels| (2..MAX_LEVELS as u8).contains(levels));
        COUNTER.set_nested(levels.ok_or_else(|| format!("{argument}: not a number of levels"))?);
    } else if let Some(path) = IrqPath::parse_argument(argument) {
        IRQ_TRACER.set_path(path);
    } else if argument.split('=').next() == Some("probe") {
        return Err(format::ready());
    } else {
        return Err(format!("unknown argument '{argument}'"));
    }
    Ok(())
}

fn print_error(message: &str) {
    eprintln!("trapline-profile: {message}");
}

/// QEMU has translated a block: registers the callbacks of its instructions.
unsafe extern "C" fn block_translated(_: Id, block: *mut Tb) {
    // SAFETY: QEMU's block, valid until this returns; so are its instructions.
    let length = unsafe { qemu::qemu_plugin_tb_n_insns(block) };
    // SAFETY: the block is not empty, and its last instruction lives as long.
    let may_drop_last =
        length != 0 && unsafe { may_cross_page(qemu::qemu_plugin_tb_get_insn(block, length - 1)) };
    let insns = (0..length).map(|index| {
        // SAFETY: `index` is below the block's number of instructions.
        let insn = unsafe { qemu::qemu_plugin_tb_get_insn(block, index) };
        let ends_block = index + 1 == length || (index + 2 == length && may_drop_last);
        (insn, ends_block)
    });
    if IRQ_TRACER.is_enabled() {
        // SAFETY: the block that is being translated, and its instructions.
        return unsafe { trace_block(block, insns) };
    }
    let sure = length - usize::from(may_drop_last);
    // SAFETY: as above.
    unsafe {
        count_block(block, sure, insns.clone());
        count_privileged(block, sure, insns.map(|(insn, _)| insn));
    }
}

/// Returns the number of instructions that began, if this QEMU can count them.
fn executed_insns() -> Option<&'static InlineCounter> {
    inline_counter(&EXECUTED)
}

/// Returns an inline counter, if this QEMU has any.
fn inline_counter(
    counter: &'static OnceLock<Option<InlineCounter>>,
) -> Option<&'static InlineCounter> {
    // SAFETY: called while a block is translated, so the CPU exists, and is the only one.
    let counter = counter.get_or_init(|| unsafe { InlineCounter::new() });
    counter.as_ref()
}

/// Counts the instructions of a block of a kernel or hypervisor for [`counter::Lengths`]: the first `sure` ones when the
/// block begins, a last one that may not belong to it alone. Called when callbacks of instructions have been registered: some
/// versions of QEMU run callbacks before they count, the others keep the order of registration.
///
/// # Safety
/// `block` is being translated by QEMU, and `insns` are its instructions.
unsafe fn count_privileged(
    block: *mut Tb,
    sure: usize,
    mut insns: impl Iterator<Item = *mut Insn>,
) {
    let Some(first) = insns.next() else {
        return;
    };
    // SAFETY: by the contract above, here and below.
    let address = unsafe { qemu::qemu_plugin_insn_vaddr(first) };
    let Some(lengths) = COUNTER.lengths_at(address) else {
        return;
    };
    let Some(privileged) = inline_counter(&PRIVILEGED) else {
        return print_error("this QEMU has no function to count instructions inline");
    };
    lengths.set_executed(privileged.value());
    // SAFETY: the block and an instruction of it, as above.
    unsafe {
        privileged.count_block(block, sure as u64);
        let last = std::iter::once(first).chain(insns).nth(sure);
        last.into_iter().for_each(|insn| privileged.count(insn));
    }
}

/// Registers the interrupt tracer's callbacks.
///
/// # Safety
/// `block` is being translated by QEMU, and `insns` are its instructions, each with whether it
/// ends the block.
unsafe fn trace_block(block: *mut Tb, insns: impl Iterator<Item = (*mut Insn, bool)> + Clone) {
    // SAFETY: instructions of the block that is being translated, in this callback and these closures.
    let codes: Vec<_> = insns
        .clone()
        .map(|(insn, _)| unsafe { Code::of(insn) })
        .collect();
    let decoded = insns
        .clone()
        .zip(&codes)
        // SAFETY: as above.
        .map(|((insn, ends_block), code)| unsafe { decode(insn, code, ends_block) });
    let Some(executed) = executed_insns() else {
        return print_error("this QEMU has no function to count instructions inline");
    };
    IRQ_TRACER.set_executed(executed.value());
    let traced: &'static irq_tracer::Block = IRQ_TRACER.block(decoded);
    // SAFETY: the block is being translated; the user data is never freed, and the
    // callback only reads it.
    unsafe {
        qemu::qemu_plugin_register_vcpu_tb_exec_cb(
            block,
            block_executed,
            qemu::NO_REGS,
            user_data(traced),
        );
    }
    for (index, (insn, _)) in insns.enumerate() {
        // SAFETY: an instruction of that block.
        unsafe { executed.count(insn) };
        if let Some(point) = traced.trace_point(index) {
            let point = user_data(point);
            // SAFETY: as above; a trace point is part of its block.
            unsafe {
                qemu::qemu_plugin_register_vcpu_insn_exec_cb(
                    insn,
                    trace_point_executed,
                    qemu::NO_REGS,
                    point,
                );
            }
        }
    }
}

/// A block is about to be executed.
unsafe extern "C" fn block_executed(_: c_uint, block: *mut c_void) {
    // SAFETY: the user data of `trace_block`: a block that is never freed.
    IRQ_TRACER.begin_block(unsafe { &*block.cast::<irq_tracer::Block>() });
}

/// An instruction on the interrupt path is about to be executed.
unsafe extern "C" fn trace_point_executed(_: c_uint, point: *mut c_void) {
    // SAFETY: the user data of `trace_block`: part of a block that is never freed.
    let timestamps = IRQ_TRACER.trace(unsafe { &*point.cast::<TracePoint>() });
    let written = timestamps.map_or(Ok(()), |timestamps| {
        COUNTER.write(&irq_path::write(&timestamps))
    });
    if let Err(message) = written {
        print_error(&message);
    }
}

/// Returns the pointer that QEMU passes to callbacks, which only read it.
fn user_data<T>(value: &'static T) -> *mut c_void {
    std::ptr::from_ref(value).cast_mut().cast()
}

/// Reads an instruction with this machine code, without its page.
///
/// # Safety
/// It belongs to the block that QEMU is translating.
unsafe fn decode(insn: *const Insn, code: &Code, ends_block: bool) -> counter::Insn<'_> {
    // SAFETY: by the contract above.
    unsafe {
        counter::Insn {
            address: qemu::qemu_plugin_insn_vaddr(insn),
            physical: qemu::qemu_plugin_insn_haddr(insn) as usize,
            bytes: code.bytes(),
            ends_block,
            page: None,
            counted_ahead: 0,
        }
    }
}

/// Returns true if an instruction may extend into the next page. Then QEMU lists it, but may not
/// include it in the block.
///
/// # Safety
/// `insn` belongs to the block that QEMU is translating.
unsafe fn may_cross_page(insn: *const Insn) -> bool {
    // SAFETY: by the contract above.
    let address = unsafe { qemu::qemu_plugin_insn_vaddr(insn) };
    address as usize % page::SIZE > page::SIZE - MAX_LENGTH
}

/// Registers the counter's callbacks.
///
/// # Safety
/// `block` is being translated by QEMU, and `insns` are its instructions, each with whether it
/// ends the block. The first `sure` ones belong to it.
unsafe fn count_block(
    block: *mut Tb,
    sure: usize,
    insns: impl Iterator<Item = (*mut Insn, bool)> + Clone,
) {
    let executed = executed_insns();
    if let Some(executed) = executed {
        COUNTER.set_executed(executed.value());
    }
    let codes: Vec<_> = insns
        .clone()
        // SAFETY: instructions of the block that is being translated, in all closures.
        .map(|(insn, _)| unsafe { Code::of(insn) })
        .collect();
    let numbered = insns.clone().zip(&codes).enumerate();
    let decoded = numbered.map(|(index, ((insn, ends_block), code))| {
        // SAFETY: as above.
        let decoded = unsafe { decode(insn, code, ends_block) };
        let physical = decoded.physical;
        let needs_page = COUNTER.needs_page(decoded.address) && physical != 0;
        counter::Insn {
            // SAFETY: QEMU's pointer to the first byte, in memory of the machine, which is
            // mapped in whole pages.
            page: needs_page.then(|| unsafe { fingerprint_around(physical) }),
            counted_ahead: sure.saturating_sub(index) as u64,
            ..decoded
        }
    });
    match (COUNTER.translate(decoded), executed) {
        (Translation::Whole(whole), Some(executed)) => {
            let (callback, flags) = (counted_block_executed, qemu::NO_REGS);
            // SAFETY: the block and its instructions are being translated; the user data is never freed, and the
            // callback only reads it and its atomics.
            unsafe {
                qemu::qemu_plugin_register_vcpu_tb_exec_cb(
                    block,
                    callback,
                    flags,
                    user_data(whole),
                );
                insns.for_each(|(insn, _)| executed.count(insn));
            }
        }
        (Translation::Single(singles), _) => {
            for ((insn, _), single) in insns.zip(singles) {
                if let Some(single) = single {
                    // SAFETY: as above.
                    unsafe { count_insn(insn, single) };
                }
            }
        }
        (Translation::Whole(_), None) => {
            print_error("a block is counted as a whole without a number of instructions");
        }
    }
}

/// Registers the counter's callbacks of an instruction.
///
/// # Safety
/// `insn` belongs to the block that QEMU is translating.
unsafe fn count_insn(insn: *mut Insn, single: &'static counter::Block) {
    let data = user_data(single);
    // SAFETY: by the contract above; the user data is never freed, and the callbacks only read it and its atomics.
    unsafe { qemu::qemu_plugin_register_vcpu_insn_exec_cb(insn, executed, qemu::NO_REGS, data) };
    if COUNTER.counts_paths() && single.first().flow().is_some() {
        let (flags, accesses) = (qemu::NO_REGS, qemu::LOADS_AND_STORES);
        // SAFETY: as above.
        unsafe { qemu::qemu_plugin_register_vcpu_mem_cb(insn, accessed, flags, accesses, data) };
    }
}

/// Returns the fingerprint of the page around a byte of the machine's memory.
///
/// # Safety
/// `physical` points to a byte of that memory.
unsafe fn fingerprint_around(physical: usize) -> u64 {
    let start = (physical & !(page::SIZE - 1)) as *const [u8; page::SIZE];
    // SAFETY: by the contract above; the machine does not run while its code is
    // translated, and a copy is taken, so nothing changes what is hashed.
    page::fingerprint(&unsafe { start.read() })
}

/// A call has stored its return address, or a return has loaded one. An indirect call may also
/// load its target.
unsafe extern "C" fn accessed(_: c_uint, access: qemu::Access, address: u64, block: *mut c_void) {
    // SAFETY: the user data of `count_insn`: a block that is never freed.
    let site = unsafe { &*block.cast::<counter::Block>() }.first();
    // SAFETY: reads only its argument.
    let is_store = unsafe { qemu::qemu_plugin_mem_is_store(access) };
    if is_store != (site.flow() == Some(Flow::Call)) {
        return;
    }
    // SAFETY: this is the callback of this very access; the result is QEMU's, and
    // valid until it returns. It may be null, for which the second function returns 0.
    let physical = unsafe {
        let hwaddr = qemu::qemu_plugin_get_hwaddr(access, address);
        qemu::qemu_plugin_hwaddr_phys_addr(hwaddr)
    };
    COUNTER.access_slot(site, StackSlot { address, physical });
}

/// A block is about to be executed that is counted as a whole.
unsafe extern "C" fn counted_block_executed(_: c_uint, block: *mut c_void) {
    // SAFETY: the user data of `count_block`: a block that is never freed.
    COUNTER.begin_block(unsafe { &*block.cast::<counter::Block>() });
}

/// An instruction is about to be executed that is watched.
unsafe extern "C" fn executed(_: c_uint, block: *mut c_void) {
    // SAFETY: the user data of `count_insn`: a block that is never freed.
    let block = unsafe { &*block.cast::<counter::Block>() };
    if let Err(message) = COUNTER.execute(block) {
        print_error(&message);
    }
}
