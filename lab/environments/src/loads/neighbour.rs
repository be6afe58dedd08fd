//! A second guest for the measured one's CPU: the same program with the same timer, the
//! same period and the same way to wait for it. So with a guest that halts the two meet
//! now and then, and with one that keeps its CPU - it polls, or halts without leaving -
//! they share it: the oversubscribed case.

use super::crew::{Task, Telling};
use trapline_abi::{Job, Op};
use trapline_host::process::Command;

/// Its name among loads.
pub const NEIGHBOUR: &str = "neighbour";

/// What a second guest does while `job` is measured: one of its timers, so many times.
pub fn neighbourly(job: &Job, expiries: u32) -> Job {
    let timer = match job.selects(Op::OwnTimer) {
        true => Op::OwnTimer,
        false => Op::HostTimer,
    };
    Job {
        run: timer.bit(),
        expiries,
        ..*job
    }
}

/// The process that runs it.
pub(super) fn task(command: Command) -> Task {
    Task {
        name: NEIGHBOUR,
        command,
        unit: "bytes of samples",
        telling: Telling::Output,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_model::irq;

    #[test]
    fn it_does_the_same_with_one_timer() {
        let job = Job {
            run: irq::operations(),
            expiries: 10,
            period: 7,
            ..Job::EMPTY
        };
        let own = neighbourly(&job, 99);
        assert_eq!(
            (own.run, own.expiries, own.period),
            (Op::OwnTimer.bit(), 99, 7)
        );
        let host = Job {
            run: Op::HostTimer.bit(),
            ..job
        };
        assert_eq!(neighbourly(&host, 1).run, Op::HostTimer.bit());
    }
}
