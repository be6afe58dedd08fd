//! Whether there is memory for what a guest is given while it runs.

use trapline_model::expand::PlannedBoot;
use trapline_model::{populate, LeftOut};

/// Of the memory of this host, what is left to others, in MiB.
const LEFT_MIB: u64 = 512;

/// A boot without what this host has no memory for, with the reason.
pub fn fit(planned: &PlannedBoot, available_mib: Option<u64>) -> PlannedBoot {
    let mut planned = planned.clone();
    let window = u64::from(planned.guest.window_mib);
    let Some(available) = available_mib.filter(|mib| window > 0 && *mib < window + LEFT_MIB) else {
        return planned;
    };
    planned.left_out.push(LeftOut {
        operations: planned.job.run & populate::large(),
        reason: format!(
            "{} MiB of memory are needed, {available} MiB are available: end something large",
            window + LEFT_MIB
        ),
    });
    planned.job.run &= !populate::large();
    planned.guest.window_mib = 0;
    planned
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_abi::Op;
    use trapline_model::{expand, EnvironmentId, Request};

    fn planned() -> PlannedBoot {
        let id = EnvironmentId::KVM;
        let plan = expand(&Request {
            configs: vec![id.into()],
            ready: vec![id.into()],
            operations: populate::operations() | Op::Getpid.bit(),
            boots: Some(1),
            seed: 1,
            ..Request::default()
        });
        plan.boots[0].clone()
    }

    #[test]
    fn what_there_is_no_memory_for_is_left_out_and_told() {
        let plan = planned();
        for enough in [None, Some(1536), Some(9999)] {
            assert_eq!(fit(&plan, enough), plan);
        }
        let fitted = fit(&plan, Some(1535));
        assert_eq!(fitted.job.run, plan.job.run & !populate::large());
        assert_eq!(fitted.guest.window_mib, 0);
        let told = &fitted.left_out[0];
        assert_eq!(told.operations, populate::large());
        assert!(told
            .reason
            .starts_with("1536 MiB of memory are needed, 1535"));
    }
}
