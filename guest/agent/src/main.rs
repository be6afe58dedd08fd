//! The Linux program with the same workloads.
//!
//! `trapline-agent trapline.run=...` runs a job and writes records to standard output;
//! `trapline.burn=...` is a load ([`stress`]), `trapline.guard=...` kills a process group with its
//! parent ([`guard`]), `trapline.peer` is the other side of a network ([`peer`]), `trapline.build=...` builds a
//! kernel ([`build`]). As process 1 it is the init
//! of a simulated machine and runs a script, or the init of a Linux guest and runs the job of the
//! kernel's command line ([`init`]).

mod arch;
mod block;
mod build;
mod clock;
mod cpu;
mod cpus;
mod datagrams;
mod device_page;
mod devices;
mod drivers;
mod files;
mod guard;
mod idle;
mod init;
mod interface;
mod isolation;
mod linux;
mod machine;
mod network;
mod packet_socket;
mod peer;
mod processes;
mod region;
mod requests;
mod second_thread;
mod shared_page;
mod stress;
mod sys;
mod ticking;
mod vsock;

use std::io::{self, Write};
use std::process::ExitCode;
use trapline_abi::{stamp, Job};

/// Exit status for an invalid command line.
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
        return report_error(status, &why);
    }
    if let Some(asked) = stress::parse(&words) {
        return run_load(asked);
    }
    if let Some(asked) = peer::parse(&words) {
        return match asked.map(|place| peer::run(&place)) {
            Ok(Ok(())) => ExitCode::SUCCESS,
            Ok(Err(why)) => report_error(1, &why),
            Err(bad) => report_error(USAGE, &bad),
        };
    }
    if let Some(built) = build::execute(&words, &mut write_frame) {
        return built.unwrap_or_else(|why| report_error(1, &why));
    }
    match Job::parse(words.iter().map(String::as_str)) {
        Ok(job) => match isolation::check(&job) {
            Ok(fact) => {
                fact.iter().for_each(|line| write_frame(line.as_bytes()));
                run(&job, main)
            }
            Err(why) => report_error(1, &why),
        },
        Err(bad) => report_error(USAGE, &bad.to_string()),
    }
}

/// Runs a load. Returns only if it fails.
fn run_load(asked: Result<(stress::Load<'_>, u32), String>) -> ExitCode {
    let (status, why) = match asked {
        Ok((load, seconds)) => (1, stress::run(&load, seconds).err()),
        Err(bad) => (USAGE, Some(bad)),
    };
    report_error(status, &why.unwrap_or_default())
}

fn report_error(status: u8, why: &str) -> ExitCode {
    eprintln!("trapline-agent: {why}");
    ExitCode::from(status)
}

/// Writes a frame to standard output. If it is closed, SIGPIPE ends the process.
fn write_frame(frame: &[u8]) {
    let mut output = io::stdout().lock();
    let _is_closed = output.write_all(frame).and_then(|()| output.flush());
}

/// Runs the job with standard output as the console. Fails if it is closed.
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
