//! Memory for hotplug of workload populate.

use trapline_model::expand::PlannedBoot;
use trapline_model::{populate, LeftOut};

/// Memory of this host reserved for other programs, in MiB.
const RESERVED_MIB: u64 = 512;

/// Returns a boot without the operations that need more memory than available.
pub fn without_unavailable(planned: &PlannedBoot, available_mib: Option<u64>) -> PlannedBoot {
    let mut planned = planned.clone();
    let window = u64::from(planned.guest.window_mib);
    let Some(available) = available_mib.filter(|mib| window > 0 && *mib < window + RESERVED_MIB)
    else {
        return planned;
    };
    planned.left_out.push(LeftOut::new(
        planned.job.run & populate::large(),
        format!(
            "{} MiB of memory are needed, {available} MiB are available: end a large program",
            window + RESERVED_MIB
        ),
    ));
    planned.job.run -= populate::large();
    planned.guest.window_mib = 0;
    planned
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use trapline_abi::Op;
    use trapline_model::{expand, EnvironmentId, Request};

    fn planned() -> PlannedBoot {
        let id = EnvironmentId::KVM;
        let plan = expand(&Request {
            configs: vec![id.into()],
            ready: vec![id.into()],
            operations: populate::operations() | Op::Getpid,
            boots: Some(1),
            seed: 1,
            ..Request::default()
        });
        plan.boots[0].clone()
    }

    #[test]
    fn operations_without_memory_are_left_out_with_a_reason() {
        let plan = planned();
        for enough in [None, Some(1536), Some(9999)] {
            assert_eq!(without_unavailable(&plan, enough), plan);
        }
        let fitted = without_unavailable(&plan, Some(1535));
        assert_eq!(fitted.job.run, plan.job.run - populate::large());
        assert_eq!(fitted.guest.window_mib, 0);
        let left_out = &fitted.left_out[0];
        assert_eq!(left_out.operations, populate::large());
        expect!["1536 MiB of memory are needed, 1535 MiB are available: end a large program"]
            .assert_eq(&left_out.reason);
    }
}
