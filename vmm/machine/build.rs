//! Compiles the seccomp filter, so that starting a machine does not have to.

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

/// What a machine may ask of the kernel once its guest runs. By number only: a
/// filter that looks at arguments costs several hundred instructions at each exit.
const ALLOWED: [i64; 13] = [
    libc::SYS_ioctl,         // the vCPU and its machine
    libc::SYS_write,         // console, events, messages
    libc::SYS_read,          // console input
    libc::SYS_poll,          // whether there is any, and room for output
    libc::SYS_pread64,       // the kernel's counts
    libc::SYS_clock_gettime, // CPU time
    libc::SYS_close,
    libc::SYS_munmap,
    libc::SYS_brk, // small allocations, for messages
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    let rules = ALLOWED.iter().map(|&number| (number, Vec::new())).collect();
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::KillProcess,
        SeccompAction::Allow,
        TargetArch::x86_64,
    )?;
    let program: BpfProgram = filter.try_into()?;
    let directory = env::var_os("OUT_DIR").ok_or("no OUT_DIR")?;
    fs::write(Path::new(&directory).join("filter.rs"), source(&program)?)?;
    Ok(())
}

fn source(program: &BpfProgram) -> Result<String, std::fmt::Error> {
    let mut text = String::from("[\n");
    for step in program {
        let (code, jt, jf, k) = (step.code, step.jt, step.jf, step.k);
        writeln!(
            text,
            "    libc::sock_filter {{ code: {code}, jt: {jt}, jf: {jf}, k: {k} }},"
        )?;
    }
    text.push_str("]\n");
    Ok(text)
}
