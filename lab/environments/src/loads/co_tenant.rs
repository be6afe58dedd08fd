//! Co-tenant: a second guest that shares the CPU of the measured one and runs the same timer with the same
//! period and the same way of waiting. Guests that halt meet now and then; guests that keep the CPU, by
//! polling or halting without an exit, oversubscribe it.

use super::programs::{LoadCommand, WorkCounter};
use trapline_abi::{Job, OpSet};
use trapline_host::process::Command;
use trapline_model::irq;

/// Name of its load.
pub const CO_TENANT: &str = "neighbour";

/// Returns the job of a co-tenant of a guest that runs `job`: one of its timers, `expiries` times.
pub fn co_tenant_job(job: &Job, expiries: u32) -> Job {
    let timer = (job.run & irq::operations()).iter().next();
    Job {
        run: timer.map_or(OpSet::EMPTY, OpSet::from),
        expiries,
        ..*job
    }
}

/// Returns the load that runs `command`.
pub(super) fn load(command: Command) -> LoadCommand {
    LoadCommand {
        name: CO_TENANT,
        command,
        unit: "bytes of samples",
        counter: WorkCounter::Output,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_abi::Op;

    #[test]
    fn co_tenant_runs_one_timer_with_the_same_period() {
        let job = Job {
            run: irq::operations(),
            expiries: 10,
            period: 7,
            ..Job::EMPTY
        };
        let own = co_tenant_job(&job, 99);
        assert_eq!(
            (own.run, own.expiries, own.period),
            (Op::OwnTimer.into(), 99, 7)
        );
        let host = Job {
            run: Op::HostTimer.into(),
            ..job
        };
        assert_eq!(co_tenant_job(&host, 1).run, Op::HostTimer.into());
    }
}
