//! Which disk is measured by workload `block`, how much of it, and where there is none.

use crate::environment::EnvironmentId;
use crate::left_out::LeftOut;
use trapline_abi::{block, Job, OpSet};

/// How much of a disk is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How much of it is used, in MiB.
    pub mib: u32,
    /// Small requests at depth 32; of the others there are fewer.
    pub requests: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mib: Job::EMPTY.disk_mib,
            requests: Job::EMPTY.requests,
        }
    }
}

/// What of `operations` an environment does not measure, for want of a disk.
pub fn left_out(environment: EnvironmentId, operations: OpSet) -> Option<LeftOut> {
    let operations = operations & block::operations();
    let reason = without_disk(environment).filter(|_| operations != 0)?;
    Some(LeftOut {
        operations,
        reason: reason.to_owned(),
    })
}

/// Why there is no disk that could be measured.
fn without_disk(environment: EnvironmentId) -> Option<&'static str> {
    match environment {
        id if id.has_processes() && !id.clock().is_exact() => None,
        id if id.clock().is_exact() => Some(
            "the simulated machine has no disk, and one would be as fast as the host's: \
             measure host",
        ),
        _ => Some(
            "the image has no driver for disks: measure host or a Linux guest, such as \
             qemu-tcg/linux",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_abi::Op;

    #[test]
    fn where_there_is_no_disk_there_is_a_reason() {
        let asked = Op::Read4k1.bit() | Op::PortOut.bit();
        for id in EnvironmentId::ALL {
            let told = left_out(id, asked);
            let has_disk = id.has_processes() && !id.clock().is_exact();
            assert_eq!(told.is_none(), has_disk, "{id}");
            let only_disk = told.is_none_or(|told| told.operations == Op::Read4k1.bit());
            assert!(only_disk, "{id}");
            assert_eq!(left_out(id, Op::PortOut.bit()), None);
        }
    }
}
