//! The functions of QEMU that the plugin calls, as `qemu-plugin.h` of QEMU 7.2
//! documents them (API version 1).

use std::ffi::{c_int, c_uint, c_void};

/// What QEMU calls this plugin.
pub type Id = u64;

/// What QEMU is; not looked at.
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

/// A callback that looks at no registers.
pub const NO_REGS: c_int = 0;

extern "C" {
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(
        id: Id,
        callback: unsafe extern "C" fn(Id, *mut Tb),
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
}
