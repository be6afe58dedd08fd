//! Address spaces of a guest at ring 3 ([`trapline_abi::spaces`]), where the hypervisor delivers page faults itself.

use alloc::boxed::Box;
use trapline_abi::spaces::{SpaceRequest, FAULT, FAULT_ADDRESS, FLUSH, LOAD};
use trapline_interface::{Error, RegSet, Region, System, Vcpu, VcpuState, PAGE};

/// Performs the request at a guest-physical address. Invalid ones are ignored.
///
/// # Errors
/// The hypervisor refuses.
pub(crate) fn perform(
    vcpu: &mut impl Vcpu,
    memory: &Region,
    address: u64,
) -> Result<(), Box<Error>> {
    let mut bytes = [0; SpaceRequest::BYTES];
    if memory.read(address, &mut bytes).is_err() {
        return Ok(());
    }
    let request = SpaceRequest::from_bytes(&bytes);
    let Some(system) = vcpu.state(RegSet::SYSTEM)?.system else {
        return Ok(());
    };
    match request.operation {
        LOAD if is_table(memory, request.first) => load(vcpu, system, request.first),
        FLUSH => load(vcpu, system, system.cr3),
        FAULT => {
            let fault = system.cr2.to_le_bytes();
            let _ignored = memory.write(address + FAULT_ADDRESS, &fault);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Returns true if a page of memory is at this address.
fn is_table(memory: &Region, address: u64) -> bool {
    address.is_multiple_of(PAGE as u64) && memory.contains(address, PAGE)
}

/// Loads a top-level page table. KVM keeps translations if the table is the current one, so another one is loaded before.
fn load(vcpu: &mut impl Vcpu, system: System, top: u64) -> Result<(), Box<Error>> {
    if system.cr3 == top {
        set_table(vcpu, system, 0)?;
    }
    set_table(vcpu, system, top)
}

fn set_table(vcpu: &mut impl Vcpu, system: System, cr3: u64) -> Result<(), Box<Error>> {
    let changed = VcpuState {
        system: Some(System { cr3, ..system }),
        ..VcpuState::default()
    };
    Ok(vcpu.set_state(&changed)?)
}
