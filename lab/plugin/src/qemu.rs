//! Functions of QEMU's plugin API, version 1, as documented in `qemu-plugin.h` of QEMU 7.2.

use std::ffi::{c_int, c_uint, c_void};

/// QEMU's identifier of this plugin.
pub type Id = u64;

/// Description of QEMU, unused.
#[repr(C)]
pub struct Info {
    _private: [u8; 0],
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

/// Loads and stores. QEMU 7.2 confuses the filters for only one of them.
pub const LOADS_AND_STORES: c_int = 3;

/// Flag of callbacks that read no registers.
pub const NO_REGS: c_int = 0;

/// Inline operation: add to a number.
pub const ADD: c_int = 0;

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
    pub fn qemu_plugin_register_vcpu_insn_exec_inline(
        insn: *mut Insn,
        operation: c_int,
        number: *mut c_void,
        by: u64,
    );
    pub fn qemu_plugin_tb_n_insns(block: *const Tb) -> usize;
    pub fn qemu_plugin_tb_get_insn(block: *const Tb, index: usize) -> *mut Insn;
    pub fn qemu_plugin_insn_data(insn: *const Insn) -> *const c_void;
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
}
