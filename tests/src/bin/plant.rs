//! Slows down the agent on purpose: installs a seccomp filter that executes N redundant instructions
//! and allows every system call, then executes the agent in its own directory. N is the number after
//! the last `-` of its file name.
//!
//! Comparisons must detect this slowdown, which no source of the measured programs contains.

use std::env::{args_os, current_exe};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{exit, Command};

/// File name of the agent.
const AGENT: &str = "trapline-agent";

/// Offset of the first argument of a system call (`struct seccomp_data`, seccomp(2)). The kernel caches
/// the result of a filter that does not read arguments.
const FIRST_ARGUMENT: u32 = 16;

fn main() {
    if let Err(error) = become_agent() {
        eprintln!("plant: {error}");
        exit(1);
    }
}

fn become_agent() -> io::Result<()> {
    let own = current_exe()?;
    let name = own.to_string_lossy().into_owned();
    let number = name.rsplit('-').next().and_then(|text| text.parse().ok());
    let number: usize = number.ok_or_else(|| {
        io::Error::other(format!(
            "{name} does not end in -N, a number of instructions"
        ))
    })?;
    install(&filter(number))?;
    let agent = own.with_file_name(AGENT);
    Err(Command::new(agent).args(args_os().skip(1)).exec())
}

fn filter(instructions: usize) -> Vec<libc::sock_filter> {
    let statement = |code: u32, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let load = statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, FIRST_ARGUMENT);
    let turn = statement(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_K, 0x5555_5555);
    let allow = statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW);
    let mut filter = vec![load];
    filter.resize(1 + instructions, turn);
    filter.push(allow);
    filter
}

fn install(filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(io::Error::other)?,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: these arguments are numbers; the call changes this process's privileges only.
    let bound = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if bound != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `program` describes `filter`, which lives until the call returns; the kernel
    // copies it and checks it.
    let set = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
