//! Paths of recorded guest processes, see `replay`.

use std::path::{Path, PathBuf};
use trapline_abi::Job;

/// Returns the directory in which to record a process that starts with `job`, if recording is enabled.
pub fn record_path(job: &Job) -> Option<PathBuf> {
    let directory = std::env::var_os("TRAPLINE_RECORD")?;
    Some(Path::new(&directory).join(run_name(job)))
}

/// Returns the name of the recording of a process that starts with `job`: its set of operations in hexadecimal.
pub fn run_name(job: &Job) -> String {
    let words = job.run.words().into_iter().rev();
    let digits: String = words.map(|word| format!("{word:016x}")).collect();
    match digits.trim_start_matches('0') {
        "" => "0".to_owned(),
        significant => significant.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_abi::{Op, OpSet, Workload};

    #[test]
    fn recordings_are_named_by_the_numbers_of_operations() {
        let name = |run: OpSet| run_name(&Job { run, ..Job::EMPTY });
        assert_eq!(name(OpSet::EMPTY), "0");
        assert_eq!(name(Workload::Basic.set() - Op::FirstTouch2m), "31f");
        assert_eq!(name(Op::Getpid | Op::Attach0), "10000000000000001");
        let last = OpSet::from_words([0, 0, 0, 1 << 63]);
        assert_eq!(name(last), format!("8{}", "0".repeat(63)));
    }
}
