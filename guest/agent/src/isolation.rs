//! Page-table isolation of the kernel that runs this program (Linux, Documentation/x86/pti.rst).

use std::fs;
use trapline_abi::job::Isolation;
use trapline_abi::platform::ISOLATION_FACT_PREFIX;
use trapline_abi::Job;

/// Flags of each CPU, among other lines.
const PATH: &str = "/proc/cpuinfo";

/// Returns a line with a fact about the isolation that `job` requires; none if it requires none.
///
/// # Errors
/// The kernel does not isolate programs.
pub fn check(job: &Job) -> Result<Option<String>, String> {
    if job.isolation == Isolation::None {
        return Ok(None);
    }
    let text = fs::read_to_string(PATH).map_err(|error| format!("{PATH}: {error}"))?;
    fact(&text).map(Some)
}

fn fact(cpuinfo: &str) -> Result<String, String> {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    let has = |flag| flags.is_some_and(|flags| flags.split_ascii_whitespace().any(|it| it == flag));
    if !has("pti") {
        return Err(format!(
            "the kernel does not isolate its page tables from programs: {PATH} has no flag pti"
        ));
    }
    let yes_no = if has("pcid") { "yes" } else { "no" };
    Ok(format!("{ISOLATION_FACT_PREFIX}pcid {yes_no}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn isolation_is_a_flag_of_the_processor() {
        let [with, both, without] = ["fpu pti", "pcid fpu pti", "fpu pcid ptinot"].map(|flags| {
            fact(&format!(
                "processor\t: 0\nflags\t\t: {flags}\nbugs\t\t: pti\n"
            ))
        });
        assert_eq!(with.unwrap(), "trapline-isolation-pcid no\n");
        assert_eq!(both.unwrap(), "trapline-isolation-pcid yes\n");
        expect!["the kernel does not isolate its page tables from programs: /proc/cpuinfo has no flag pti"]
            .assert_eq(&without.unwrap_err());
        assert_eq!(check(&Job::EMPTY), Ok(None));
    }
}
