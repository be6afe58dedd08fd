//! Process 1 of a Linux guest: nothing else runs there, and nobody waits for it.
//!
//! The job stands among the words of the kernel's command line, what is measured is
//! what a process measures, and records leave through the port on which the
//! image speaks, too. Then the machine ends.

use super::port::Port;
use crate::linux;
use std::fs;
use std::io;
use trapline_abi::platform::EXIT_DONE;
use trapline_abi::Job;

/// The word that every job has.
const JOB: &str = "trapline.run=";

/// The job that the kernel was told, if it was told one.
///
/// # Errors
/// The command line cannot be read, or the job makes no sense.
pub fn job() -> io::Result<Option<Job>> {
    let words = fs::read_to_string("/proc/cmdline")?;
    let words = || words.split_ascii_whitespace();
    if !words().any(|word| word.starts_with(JOB)) {
        return Ok(None);
    }
    let own = words().filter(|word| word.starts_with("trapline."));
    let job = Job::parse(own).map_err(|bad| io::Error::other(bad.to_string()))?;
    Ok(Some(job))
}

/// Does it, and ends the machine.
pub fn run(job: &Job, main: u64, mut port: Port) -> ! {
    linux::run(job, main, &mut |frame| port.write(frame));
    port.end(EXIT_DONE)
}
