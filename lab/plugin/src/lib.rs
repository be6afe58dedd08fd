//! The watcher of the simulated machine: a plugin for QEMU that counts, between
//! the marks that a guest executes, how often each instruction runs, on which
//! side of the world switch, and if asked, called by whom.
//!
//! It is loaded only to explain a figure. What is measured does not depend on it:
//! QEMU's clock counts the machine's instructions, not those of a plugin. The
//! functions of QEMU that it needs are declared in [`qemu`], after
//! `qemu-plugin.h` of QEMU 7.2, API version 1. One CPU is assumed, and
//! `-icount` gives it one thread.

mod qemu;

use qemu::{Id, Info, Insn, Tb};
use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::fs::File;
use trapline_profile::follow::{Block, Follower, Stop};
use trapline_profile::tally::{Flow, Insn as Translated, Place, Slot, Tally};
use trapline_profile::way::{self, Way};
use trapline_profile::{page, wire, Machine};

/// The version of QEMU's plugin API that this is written for.
#[no_mangle]
pub static qemu_plugin_version: c_int = 1;

static TALLY: Tally = Tally::new();

static FOLLOWER: Follower = Follower::new();

/// QEMU calls this when it has loaded the plugin. Arguments: `out=FILE`, where the
/// windows go; [`wire::STACKS`], if they are to tell call paths; [`wire::XEN`], if there is
/// one; [`way::WAY`], if interrupts are to be followed in place of that; or `probe`, which
/// refuses with [`wire::ready`], so that one can know that it would have worked.
///
/// # Safety
/// QEMU calls it, with what its API promises: `argc` strings at `argv`.
#[no_mangle]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    _info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    for index in 0..usize::try_from(argc).unwrap_or(0) {
        // SAFETY: `index` is below the number of strings at `argv`, each of which
        // ends with a zero and lives until this returns.
        let word = unsafe { CStr::from_ptr(*argv.add(index)) };
        if let Err(why) = obey(&word.to_string_lossy()) {
            complain(&why);
            return 1;
        }
    }
    // SAFETY: `id` is ours, and the callback lives as long as this library, which
    // QEMU never unloads while its machine runs.
    unsafe { qemu::qemu_plugin_register_vcpu_tb_trans_cb(id, translated) };
    0
}

fn obey(word: &str) -> Result<(), String> {
    if let Some(path) = word.strip_prefix("out=") {
        let file = File::create(path).map_err(|error| format!("{path}: {error}"))?;
        TALLY.write_to(file);
        return Ok(());
    }
    if word == wire::STACKS {
        TALLY.keep_stacks();
        return Ok(());
    }
    if word == wire::XEN {
        TALLY.expect_xen();
        FOLLOWER.expect(Machine::Xen);
        return Ok(());
    }
    if let Some(way) = Way::from_word(word) {
        FOLLOWER.follow(way);
        return Ok(());
    }
    match word.split('=').next() {
        Some("probe") => Err(wire::ready()),
        _ => Err(format!("unknown argument '{word}'")),
    }
}

fn complain(what: &str) {
    eprintln!("trapline-profile: {what}");
}

/// QEMU has translated a block: every instruction of it is to be counted.
unsafe extern "C" fn translated(_: Id, block: *mut Tb) {
    // SAFETY: QEMU's block, valid until this returns; so are its instructions.
    let length = unsafe { qemu::qemu_plugin_tb_n_insns(block) };
    // SAFETY: the block is not empty, and its last instruction lives as long.
    let spills =
        length != 0 && unsafe { may_spill(qemu::qemu_plugin_tb_get_insn(block, length - 1)) };
    let insns = (0..length).map(|index| {
        // SAFETY: `index` is below the block's number of instructions.
        let insn = unsafe { qemu::qemu_plugin_tb_get_insn(block, index) };
        (insn, index + 1 == length || (index + 2 == length && spills))
    });
    if FOLLOWER.follows() {
        // SAFETY: the block that is being translated, and its instructions.
        return unsafe { follow(block, insns) };
    }
    for (insn, ends) in insns {
        // SAFETY: an instruction of the block that is being translated.
        unsafe { watch(insn, ends) };
    }
}

/// # Safety
/// `block` is what QEMU translates at the moment, and `insns` are its instructions, each
/// with whether it is the last.
unsafe fn follow(block: *mut Tb, insns: impl Iterator<Item = (*mut Insn, bool)> + Clone) {
    // SAFETY: by the contract above, which outlives this iterator.
    let known = insns
        .clone()
        .map(|(insn, ends)| unsafe { read(insn, ends) });
    let known: &'static Block = FOLLOWER.block(known);
    // SAFETY: the block is QEMU's of the moment; what is shared is never freed, and the
    // callback only reads it.
    unsafe {
        qemu::qemu_plugin_register_vcpu_tb_exec_cb(block, begun, qemu::NO_REGS, shared(known));
    }
    let number = FOLLOWER.executed().cast::<c_void>();
    for (index, (insn, _)) in insns.enumerate() {
        // SAFETY: an instruction of that block, and a number that is always there and that
        // one thread changes.
        unsafe { qemu::qemu_plugin_register_vcpu_insn_exec_inline(insn, qemu::ADD, number, 1) };
        if let Some(stop) = known.stop(index) {
            let stop = shared(stop);
            // SAFETY: as above; a stop is part of its block.
            unsafe {
                qemu::qemu_plugin_register_vcpu_insn_exec_cb(insn, passed, qemu::NO_REGS, stop);
            }
        }
    }
}

/// A block is about to be executed.
unsafe extern "C" fn begun(_: c_uint, block: *mut c_void) {
    // SAFETY: what `follow` gave QEMU: a block that is never freed.
    FOLLOWER.begin(unsafe { &*block.cast::<Block>() });
}

/// An instruction that the way of interrupts leads over is about to be executed.
unsafe extern "C" fn passed(_: c_uint, stop: *mut c_void) {
    // SAFETY: what `follow` gave QEMU: part of a block that is never freed.
    let passage = FOLLOWER.stop(unsafe { &*stop.cast::<Stop>() });
    let told = passage.map_or(Ok(()), |passage| TALLY.write(&way::write(&passage)));
    if let Err(why) = told {
        complain(&why);
    }
}

/// What is given to callbacks, which only read it.
fn shared<T>(what: &'static T) -> *mut c_void {
    std::ptr::from_ref(what).cast_mut().cast()
}

/// What is known of an instruction.
///
/// # Safety
/// It is one of the block that QEMU translates at the moment, and what is given back is
/// used no longer.
unsafe fn read<'a>(insn: *const Insn, ends: bool) -> Translated<'a> {
    // SAFETY: by the contract above; the bytes live as long as the instruction.
    unsafe {
        let length = qemu::qemu_plugin_insn_size(insn);
        let data = qemu::qemu_plugin_insn_data(insn).cast::<u8>();
        Translated {
            address: qemu::qemu_plugin_insn_vaddr(insn),
            physical: qemu::qemu_plugin_insn_haddr(insn) as usize,
            bytes: std::slice::from_raw_parts(data, length),
            ends,
            page: None,
        }
    }
}

/// Whether an instruction may reach into the next page. Then QEMU leaves it out of
/// its block in the end, but still lists it.
///
/// # Safety
/// `insn` is an instruction of the block that QEMU translates at the moment.
unsafe fn may_spill(insn: *const Insn) -> bool {
    // SAFETY: by the contract above.
    let address = unsafe { qemu::qemu_plugin_insn_vaddr(insn) };
    address % PAGE > PAGE - LONGEST
}

/// Bytes of a page, and of the longest instruction (Intel SDM volume 3, 4.3; volume
/// 2, 2.3.11).
const PAGE: u64 = 4096;
const LONGEST: u64 = 15;

/// # Safety
/// `insn` is an instruction of the block that QEMU translates at the moment; `ends`
/// if it is the last.
unsafe fn watch(insn: *mut Insn, ends: bool) {
    // SAFETY: by the contract above; the bytes live as long as the instruction.
    let known = unsafe { read(insn, ends) };
    let physical = known.physical;
    let page = TALLY.asks_page(known.address) && physical != 0;
    let place: &'static Place = TALLY.place(&Translated {
        // SAFETY: where QEMU says that the instruction's first byte is, in memory of the
        // machine, which is mapped in whole pages.
        page: page.then(|| unsafe { page_around(physical) }),
        ..known
    });
    let shared = shared(place);
    // SAFETY: as above; the place is never freed, and the callback only reads it
    // and its atomics.
    unsafe { qemu::qemu_plugin_register_vcpu_insn_exec_cb(insn, executed, qemu::NO_REGS, shared) };
    if TALLY.keeps_stacks() && place.flow().is_some() {
        let (flags, accesses) = (qemu::NO_REGS, qemu::LOADS_AND_STORES);
        // SAFETY: as above.
        unsafe { qemu::qemu_plugin_register_vcpu_mem_cb(insn, touched, flags, accesses, shared) };
    }
}

/// The fingerprint of a page of the machine's memory.
///
/// # Safety
/// `physical` is the address of a byte of that memory here.
unsafe fn page_around(physical: usize) -> u64 {
    let start = (physical & !(page::SIZE - 1)) as *const [u8; page::SIZE];
    // SAFETY: by the contract above; the machine does not run while its code is
    // translated, and a copy is taken, so nothing changes what is hashed.
    page::fingerprint(&unsafe { start.read() })
}

/// A call has stored its return address, or a return has loaded one. Calls may load
/// the address of what they call, too.
unsafe extern "C" fn touched(_: c_uint, access: qemu::Access, address: u64, place: *mut c_void) {
    // SAFETY: what `watch` gave QEMU: a place that is never freed.
    let place = unsafe { &*place.cast::<Place>() };
    // SAFETY: looks only at its argument.
    let stores = unsafe { qemu::qemu_plugin_mem_is_store(access) };
    if stores != (place.flow() == Some(Flow::Call)) {
        return;
    }
    // SAFETY: this is the callback of this very access; what is given back is
    // QEMU's, and valid until it returns. It may be null, which the second
    // function answers with 0.
    let physical = unsafe {
        let hwaddr = qemu::qemu_plugin_get_hwaddr(access, address);
        qemu::qemu_plugin_hwaddr_phys_addr(hwaddr)
    };
    TALLY.touch(place, Slot { address, physical });
}

/// An instruction is about to be executed.
unsafe extern "C" fn executed(_: c_uint, place: *mut c_void) {
    // SAFETY: what `watch` gave QEMU: a place that is never freed.
    let place = unsafe { &*place.cast::<Place>() };
    if let Err(why) = TALLY.count(place) {
        complain(&why);
    }
}
