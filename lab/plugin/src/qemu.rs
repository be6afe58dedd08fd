//! Functions of QEMU's plugin API, as documented in `qemu-plugin.h`. Versions 1 (QEMU 7.2) to 6 are
//! supported: those functions that versions do not share are looked up when the plugin is loaded.

use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::mem::transmute;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use trapline_profile::MAX_LENGTH;

/// QEMU's identifier of this plugin.
pub type Id = u64;

/// Description of QEMU; its further fields are unused.
#[repr(C)]
pub struct Info {
    target: *const c_char,
    oldest_version: c_int,
    version: c_int,
}

/// A block in translation.
#[repr(C)]
pub struct Tb {
    _private: [u8; 0],
}

/// An instruction of a block in translation.
#[repr(C)]
pub struct Insn {
    _private: [u8; 0],
}

/// Description of a memory access.
pub type Access = u32;

/// Physical location of a memory access.
#[repr(C)]
pub struct Hwaddr {
    _private: [u8; 0],
}

/// Values by virtual CPU (version 2).
#[repr(C)]
struct Scoreboard {
    _private: [u8; 0],
}

/// A number in each entry of a [`Scoreboard`].
#[derive(Clone, Copy)]
#[repr(C)]
struct Field {
    scoreboard: *mut Scoreboard,
    offset: usize,
}

/// Loads and stores. QEMU 7.2 confuses the filters for only one of them.
pub const LOADS_AND_STORES: c_int = 3;

/// Flag of callbacks that read no registers.
pub const NO_REGS: c_int = 0;

/// Inline operation: add to a number.
const ADD: c_int = 0;

extern "C" {
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(
        id: Id,
        callback: unsafe extern "C" fn(Id, *mut Tb),
    );
    pub fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Tb,
        callback: unsafe extern "C" fn(c_uint, *mut c_void),
        flags: c_int,
        shared: *mut c_void,
    );
    pub fn qemu_plugin_tb_n_insns(block: *const Tb) -> usize;
    pub fn qemu_plugin_tb_get_insn(block: *const Tb, index: usize) -> *mut Insn;
    pub fn qemu_plugin_insn_size(insn: *const Insn) -> usize;
    pub fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;
    pub fn qemu_plugin_insn_haddr(insn: *const Insn) -> *mut c_void;
    pub fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut Insn,
        callback: unsafe extern "C" fn(c_uint, *mut c_void),
        flags: c_int,
        shared: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut Insn,
        callback: unsafe extern "C" fn(c_uint, Access, u64, *mut c_void),
        flags: c_int,
        accesses: c_int,
        shared: *mut c_void,
    );
    pub fn qemu_plugin_mem_is_store(access: Access) -> bool;
    pub fn qemu_plugin_get_hwaddr(access: Access, address: u64) -> *mut Hwaddr;
    pub fn qemu_plugin_hwaddr_phys_addr(place: *const Hwaddr) -> u64;
    /// [`ReturnData`] or [`CopyData`].
    fn qemu_plugin_insn_data();
}

/// Returns the machine code of an instruction (versions 1 and 2).
type ReturnData = unsafe extern "C" fn(*const Insn) -> *const c_void;
/// Copies it to memory (version 3).
type CopyData = unsafe extern "C" fn(*const Insn, *mut c_void, usize) -> usize;
/// Adds to a number whenever an instruction, or a block, is executed (version 1).
type AddInline<T> = unsafe extern "C" fn(*mut T, c_int, *mut c_void, u64);
/// The same for a number of the executing CPU (version 2), and what makes such numbers.
type AddPerVcpu<T> = unsafe extern "C" fn(*mut T, c_int, Field, u64);
type NewScoreboard = unsafe extern "C" fn(usize) -> *mut Scoreboard;
type FindEntry = unsafe extern "C" fn(*mut Scoreboard, c_uint) -> *mut c_void;

/// Functions that versions of the API added, the newest first.
const ADDED: [(&CStr, c_int); 4] = [
    (c"qemu_plugin_set_pc", 6),
    (c"qemu_plugin_write_memory_vaddr", 5),
    (c"qemu_plugin_read_memory_vaddr", 4),
    (ADD_PER_VCPU, 2),
];

const ADD_INLINE: &CStr = c"qemu_plugin_register_vcpu_insn_exec_inline";
const ADD_INLINE_OF_BLOCK: &CStr = c"qemu_plugin_register_vcpu_tb_exec_inline";
const ADD_PER_VCPU: &CStr = c"qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu";
const ADD_PER_VCPU_OF_BLOCK: &CStr = c"qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu";
const NEW_SCOREBOARD: &CStr = c"qemu_plugin_scoreboard_new";
const FIND_ENTRY: &CStr = c"qemu_plugin_scoreboard_find";

/// Returns the address of a function of the program that loaded this library, or null.
fn function(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends with a zero.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Returns the version of the API that this QEMU has; one that added nothing counts as the one before.
pub fn version() -> c_int {
    let mut added = ADDED.into_iter();
    let newest = added.find(|(name, _)| !function(name).is_null());
    newest.map_or(1, |(_, version)| version)
}

/// True if [`CopyData`] is the type of `qemu_plugin_insn_data`.
static COPIES_DATA: AtomicBool = AtomicBool::new(false);

/// Selects the functions of this QEMU's version.
///
/// # Safety
/// `info` is the argument of `qemu_plugin_install`.
pub unsafe fn select(info: *const Info) {
    // SAFETY: by the contract above it can be read.
    COPIES_DATA.store(unsafe { (*info).version } >= 3, Relaxed);
}

/// Machine code of an instruction.
pub struct Code {
    bytes: [u8; MAX_LENGTH],
    length: usize,
}

impl Code {
    /// Reads the machine code of an instruction.
    ///
    /// # Safety
    /// `insn` belongs to the block that QEMU is translating.
    pub unsafe fn of(insn: *const Insn) -> Self {
        let mut bytes = [0; MAX_LENGTH];
        // SAFETY: by the contract above.
        let length = unsafe { qemu_plugin_insn_size(insn) }.min(MAX_LENGTH);
        let function = qemu_plugin_insn_data as *const ();
        if COPIES_DATA.load(Relaxed) {
            // SAFETY: versions since 3 have this type, and `bytes` has space for `length` bytes.
            unsafe {
                let copy: CopyData = transmute(function);
                copy(insn, bytes.as_mut_ptr().cast(), length);
            }
        } else {
            // SAFETY: older versions have this type; the result has the instruction's length.
            unsafe {
                let data: ReturnData = transmute(function);
                let data = data(insn).cast::<u8>();
                bytes.as_mut_ptr().copy_from_nonoverlapping(data, length);
            }
        }
        Self { bytes, length }
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// A number that QEMU increments before instructions or blocks, without a callback.
pub struct InlineCounter {
    value: &'static AtomicU64,
    add: Add,
}

/// The functions of this QEMU that add to a number.
enum Add {
    Inline(AddInline<Insn>, AddInline<Tb>),
    PerVcpu(AddPerVcpu<Insn>, AddPerVcpu<Tb>, Field),
}

// SAFETY: QEMU's functions may be called from any thread, and the number is atomic.
unsafe impl Send for InlineCounter {}
// SAFETY: as above.
unsafe impl Sync for InlineCounter {}

impl InlineCounter {
    /// Creates a counter of the first CPU. Returns `None` if this QEMU has no functions for it.
    ///
    /// # Safety
    /// The CPU exists, as in callbacks of translation; no further one is added.
    pub unsafe fn new() -> Option<Self> {
        // SAFETY: these are the functions' types. The entry has the requested size, starts as zero and
        // stays where it is, as no CPU is added; the scoreboard is never freed.
        unsafe {
            let add: Option<AddInline<Insn>> = transmute(function(ADD_INLINE));
            let add_of_block: Option<AddInline<Tb>> = transmute(function(ADD_INLINE_OF_BLOCK));
            if let (Some(add), Some(of_block)) = (add, add_of_block) {
                let value = Box::leak(Box::default());
                let add = Add::Inline(add, of_block);
                return Some(Self { value, add });
            }
            let add: Option<AddPerVcpu<Insn>> = transmute(function(ADD_PER_VCPU));
            let add_of_block: Option<AddPerVcpu<Tb>> = transmute(function(ADD_PER_VCPU_OF_BLOCK));
            let new: Option<NewScoreboard> = transmute(function(NEW_SCOREBOARD));
            let find: Option<FindEntry> = transmute(function(FIND_ENTRY));
            let scoreboard = new?(size_of::<u64>());
            let offset = 0;
            Some(Self {
                value: AtomicU64::from_ptr(find?(scoreboard, 0).cast()),
                add: Add::PerVcpu(add?, add_of_block?, Field { scoreboard, offset }),
            })
        }
    }

    /// Returns the number.
    pub fn value(&self) -> &'static AtomicU64 {
        self.value
    }

    /// Counts the executions of an instruction.
    ///
    /// # Safety
    /// `insn` belongs to the block that QEMU is translating.
    pub unsafe fn count(&self, insn: *mut Insn) {
        // SAFETY: by the contract above; the number is never freed, and only the CPU's thread changes it.
        unsafe {
            match self.add {
                Add::Inline(add, _) => add(insn, ADD, self.value.as_ptr().cast(), 1),
                Add::PerVcpu(add, _, field) => add(insn, ADD, field, 1),
            }
        }
    }

    /// Counts `insns` instructions whenever a block begins, before callbacks of its instructions.
    ///
    /// # Safety
    /// QEMU is translating `block`.
    pub unsafe fn count_block(&self, block: *mut Tb, insns: u64) {
        // SAFETY: by the contract above; the number as in `count`.
        unsafe {
            match self.add {
                Add::Inline(_, add) => add(block, ADD, self.value.as_ptr().cast(), insns),
                Add::PerVcpu(_, add, field) => add(block, ADD, field, insns),
            }
        }
    }
}
