//! The Linux program with the same workloads: `trapline-agent trapline.run=…`
//! writes its records to standard output. Started as process 1 it is the init
//! of a simulated machine and runs the script it finds there, or that of a Linux guest and
//! does the job that the kernel was told; with
//! `trapline.burn=…` it disturbs others, with `trapline.guard=…` it ends others, and with
//! `trapline.build=…` it builds a kernel.

mod block;
mod build;
mod burn;
mod clock;
mod cpu;
mod guard;
mod init;
mod linux;
mod machine;
mod processes;
mod region;
mod ticking;

use std::io::{self, Write};
use std::process::ExitCode;
use trapline_abi::{stamp, Job};

/// Exit status for a command line that is not understood.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let main = stamp!(GuestMain);
    if std::process::id() == 1 {
        init::main(main)
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(asked) = guard::parse(&words) {
        let (status, why) = match asked {
            Ok(group) => (1, guard::guard(group)),
            Err(bad) => (USAGE, bad),
        };
        return complain(status, &why);
    }
    if let Some(asked) = burn::parse(&words) {
        return burn_as(asked);
    }
    if let Some(built) = build::obey(&words, &mut tell) {
        return built.unwrap_or_else(|why| complain(1, &why));
    }
    match Job::parse(words.iter().map(String::as_str)) {
        Ok(job) => run(&job, main),
        Err(bad) => complain(USAGE, &bad.to_string()),
    }
}

/// Disturbs others; comes back only if that cannot be done.
fn burn_as(asked: Result<(burn::Burn<'_>, u32), String>) -> ExitCode {
    let (status, why) = match asked {
        Ok((what, seconds)) => (1, burn::burn(&what, seconds).err()),
        Err(bad) => (USAGE, Some(bad)),
    };
    complain(status, &why.unwrap_or_default())
}

fn complain(status: u8, why: &str) -> ExitCode {
    eprintln!("trapline-agent: {why}");
    ExitCode::from(status)
}

/// Sends what is said to standard output. If nobody listens any more, the kernel ends us.
fn tell(frame: &[u8]) {
    let mut output = io::stdout().lock();
    let _nobody_listens = output.write_all(frame).and_then(|()| output.flush());
}

/// Runs the job with standard output as the console. If nobody listens any
/// more, there is nothing left to do.
fn run(job: &Job, main: u64) -> ExitCode {
    let mut output = io::stdout().lock();
    let mut broken = false;
    linux::run(job, main, &mut |frame| {
        broken |= output
            .write_all(frame)
            .and_then(|()| output.flush())
            .is_err();
    });
    ExitCode::from(u8::from(broken))
}
