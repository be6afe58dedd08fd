//! MTRRs as left by firmware: all memory write-back. Linux disables PAT if the MTRRs are off.

use kvm_bindings::{kvm_msr_entry, Msrs};
use kvm_ioctls::VcpuFd;
use std::io;
use trapline_interface::{Error, Result};

/// IA32_MTRR_DEF_TYPE (Intel SDM volume 3, 12.11.2.1): enabled, write-back.
const DEFAULT_TYPE: u32 = 0x2ff;
const ENABLED: u64 = 1 << 11;
const WRITE_BACK: u64 = 6;

/// Enables the MTRRs of `vcpu`.
pub(crate) fn set_up(vcpu: &VcpuFd) -> Result<()> {
    let entry = kvm_msr_entry {
        index: DEFAULT_TYPE,
        data: ENABLED | WRITE_BACK,
        ..Default::default()
    };
    let what = "set the virtual CPU's memory types";
    let registers = Msrs::from_entries(&[entry])
        .map_err(|error| Error::refused(what)(io::Error::other(format!("{error:?}"))))?;
    let set = vcpu.set_msrs(&registers).map_err(Error::refused(what))?;
    match set {
        1 => Ok(()),
        _ => Err(Error::refused(what)(io::Error::from(
            io::ErrorKind::Unsupported,
        ))),
    }
}
