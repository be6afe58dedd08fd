//! What of a request an environment cannot measure, known before anything is started: it
//! is never asked for it.

use crate::block;
use crate::environment::EnvironmentId;
use crate::populate;
use crate::preset::Preset;
use trapline_abi::{Need, OpSet};

/// Operations that are not measured, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Which.
    pub operations: OpSet,
    /// Why, and what mends it if anything does.
    pub reason: String,
}

/// What of `operations` an environment does not measure. Those that were `named` one by
/// one are measured even where they take long.
pub fn of(
    environment: EnvironmentId,
    preset: Preset,
    operations: OpSet,
    named: OpSet,
) -> Vec<LeftOut> {
    let memory = populate::left_out(environment, preset, operations, named);
    let processes = without_processes(environment, operations);
    let disk = block::left_out(environment, operations);
    memory.into_iter().chain(processes).chain(disk).collect()
}

/// The operations of all these.
pub fn union(left_out: &[LeftOut]) -> OpSet {
    left_out
        .iter()
        .fold(0, |set, left_out| set | left_out.operations)
}

/// What the image cannot do: it is one program, and nothing is between it and its machine.
fn without_processes(environment: EnvironmentId, operations: OpSet) -> Option<LeftOut> {
    let operations = operations & Need::Processes.operations();
    (operations != 0 && !environment.has_processes()).then(|| LeftOut {
        operations,
        reason: NO_PROCESSES.to_owned(),
    })
}

const NO_PROCESSES: &str = "this needs an operating system, and the image is one program \
                            without processes: measure host or an environment of a Linux";

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_abi::Op;

    #[test]
    fn processes_are_measured_where_there_are_some() {
        let asked = Op::Fork.bit() | Op::PortOut.bit();
        let out = |id| of(id, Preset::Quick, asked, asked);
        for id in [
            EnvironmentId::HOST,
            EnvironmentId::SIM_LINUX,
            EnvironmentId::SIM_VMX_LINUX,
            EnvironmentId::SIM_KVM_LINUX,
        ] {
            assert_eq!(out(id), [], "{id}");
        }
        for id in [EnvironmentId::KVM, EnvironmentId::SIM] {
            let told = out(id);
            assert_eq!(union(&told), Op::Fork.bit(), "{id}");
            assert!(told[0].reason.contains("operating system"));
        }
        assert_eq!(
            of(EnvironmentId::KVM, Preset::Quick, Op::PortOut.bit(), 0),
            []
        );
    }

    #[test]
    fn reasons_add_up() {
        let asked = Op::Fork.bit() | Op::Attach0.bit() | Op::PortOut.bit();
        let told = of(EnvironmentId::QEMU_KVM, Preset::Quick, asked, 0);
        assert_eq!(told.len(), 2);
        assert_eq!(union(&told), asked & !Op::PortOut.bit());
    }
}
