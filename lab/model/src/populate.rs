//! Which memory is given to guests of workload `populate`, and where nobody can give any.
//!
//! What is not measured is left out of a plan with its reason, before anything is started:
//! a guest that is asked for it would have to be told who runs it.

use crate::clock::Clock;
use crate::environment::EnvironmentId;
use crate::left_out::LeftOut;
use crate::preset::Preset;
use trapline_abi::populate::{MemoryRequest, LARGE};
use trapline_abi::{Need, OpSet};

/// The set of all operations of workload `populate`.
pub fn operations() -> OpSet {
    Need::Hotplug.operations()
}

/// Those of these orders.
pub fn of_orders(orders: &[u8]) -> OpSet {
    set(|wish| orders.contains(&wish.order))
}

/// Those of large regions.
pub fn large() -> OpSet {
    set(|wish| wish.order > LARGE)
}

fn set(wanted: impl Fn(&MemoryRequest) -> bool) -> OpSet {
    let wishes = MemoryRequest::ALL.into_iter().filter(wanted);
    wishes.fold(0, |set, wish| {
        set | wish.attach_op().bit() | wish.touch_op().bit()
    })
}

/// Memory for a guest that measures `operations`, beside what it starts with, in MiB. Of
/// regions that are not large nobody takes notice.
pub fn window_mib(operations: OpSet) -> u32 {
    let wished = MemoryRequest::ALL.into_iter().filter(|wish| {
        let wanted = wish.attach_op().bit() | wish.touch_op().bit();
        wish.order > LARGE && operations & wanted != 0
    });
    let most = wished.map(|wish| wish.bytes() >> 20).max().unwrap_or(0);
    most as u32
}

/// What of `operations` an environment does not measure. Those that were `named` one by
/// one are measured even where they take long.
pub fn left_out(
    environment: EnvironmentId,
    preset: Preset,
    operations: OpSet,
    named: OpSet,
) -> Option<LeftOut> {
    let of = |set: OpSet, reason: &str| LeftOut {
        operations: operations & set,
        reason: reason.to_owned(),
    };
    let left_out = match (nobody_gives(environment), environment.clock(), preset) {
        (Some(reason), ..) => of(self::operations(), reason),
        (None, Clock::InsnVmx, _) => of(large(), NO_ROOM),
        (None, Clock::Insn, Preset::Quick) => of(large() & !named, TOO_LONG),
        _ => return None,
    };
    (left_out.operations != 0).then_some(left_out)
}

const TOO_LONG: &str = "a GiB takes minutes where instructions are counted: --preset full \
                        measures it, or its name (trapline populate --order 18)";
const NO_ROOM: &str = "the machine with Intel's virtualization has no room for a GiB: measure \
                       sim/kvm";

/// Why nobody gives memory to a running guest there.
fn nobody_gives(environment: EnvironmentId) -> Option<&'static str> {
    if environment.supports_memory_hotplug() {
        return None;
    }
    Some(match environment {
        id if id.is_native() => {
            "a bare machine has the memory that it starts with: nobody gives it more"
        }
        id if id.is_linux_guest() => {
            "a Linux guest has the memory that it starts with, and gets no more: measure kvm or \
             sim/kvm"
        }
        id if id.is_custom() => {
            "how a VMM given with --vmm gives a running guest memory is not known: measure kvm \
             or sim/kvm"
        }
        id if id.is_xen() => {
            "a domain of Xen is populated before it starts, and gets no more: boot/exit has that \
             in it"
        }
        _ => {
            "QEMU gives a running guest memory by ACPI hotplug, which the image does not speak: \
             measure kvm or sim/kvm"
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_abi::Op;

    #[test]
    fn sets_are_by_order_and_large_ones_need_room() {
        assert_eq!(of_orders(&[0, 3, 9, 18]), operations());
        assert_eq!(of_orders(&[18]), large());
        assert_eq!(large().count_ones(), 8);
        assert_eq!(window_mib(operations()), 1024);
        assert_eq!(window_mib(operations() & !large()), 0);
        assert_eq!(window_mib(Op::Touch18Huge.bit() | Op::Getpid.bit()), 1024);
    }

    #[test]
    fn what_is_left_out_has_a_reason_and_naming_it_helps() {
        let all = operations() | Op::PortOut.bit();
        let out = |id, preset, named| left_out(id, preset, all, named);
        assert_eq!(out(EnvironmentId::KVM, Preset::Quick, 0), None);
        assert_eq!(out(EnvironmentId::SIM_KVM, Preset::Full, 0), None);
        let quick = out(EnvironmentId::SIM_KVM, Preset::Quick, 0).unwrap();
        assert_eq!(quick.operations, large());
        assert!(quick.reason.contains("--preset full"));
        let named = Op::Attach18.bit();
        let rest = out(EnvironmentId::SIM_KVM, Preset::Quick, named).unwrap();
        assert_eq!(rest.operations, large() & !named);
        let qemu = out(EnvironmentId::QEMU_KVM, Preset::Full, all).unwrap();
        assert_eq!(qemu.operations, operations());
        assert_eq!(
            out(EnvironmentId::SIM_VMX_KVM, Preset::Full, all)
                .unwrap()
                .operations,
            large()
        );
        let others = Op::PortOut.bit();
        assert_eq!(
            left_out(EnvironmentId::QEMU_KVM, Preset::Quick, others, 0),
            None
        );
    }
}
