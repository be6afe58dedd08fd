//! Times of exec, traced by the kernel: a command may begin with a wrapper, such as a script, which starts the VMM. The
//! boot of its guest begins with the VMM's own exec.

use std::fs;
use std::io;
use std::path::Path;

/// The kernel's event tracing (Linux, Documentation/trace/kprobetrace.rst).
const TRACING: &str = "/sys/kernel/debug/tracing";

/// The traced event: a process calls execve(2).
const EVENT: &str = "trapline_exec";

/// Its definition, a probe of the function that begins this system call.
const DEFINITION: &str = "p:trapline/trapline_exec __x64_sys_execve";

/// Directory with an entry `PID-DESCRIPTOR` for each virtual machine.
const MACHINES: &str = "/sys/kernel/debug/kvm";

/// Starts tracing, on the clock of records.
pub fn start() -> io::Result<()> {
    let write = |name: &str, text: &str| fs::write(Path::new(TRACING).join(name), text);
    write("trace_clock", "x86-tsc")?;
    // One of an earlier launch is replaced, which also empties the trace.
    write("events/trapline/enable", "0").or_else(ignore_missing)?;
    write("kprobe_events", DEFINITION)?;
    write("events/trapline/enable", "1")
}

fn ignore_missing(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}

/// Returns the time at which the process with a virtual machine was executed, in ticks; `None` if there is none.
pub fn vmm_exec() -> Option<u64> {
    let mut machines = fs::read_dir(MACHINES).ok()?.flatten();
    let creator = machines.find_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.split_once('-').map(|(thread, _)| thread.to_owned())
    });
    // A thread of the VMM may have created the machine.
    let status = fs::read_to_string(format!("/proc/{}/status", creator?)).ok()?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    let trace = fs::read_to_string(Path::new(TRACING).join("trace")).ok()?;
    last_exec(&trace, process.trim())
}

/// Returns the time of the last exec of `process` in a trace, whose lines have the name and the number of the process
/// first.
fn last_exec(trace: &str, process: &str) -> Option<u64> {
    let of_process = |line: &&str| {
        let task = line
            .rsplit_once(" [")
            .map_or("", |(task, _)| task.trim_end());
        task.rsplit_once('-').is_some_and(|(_, pid)| pid == process)
    };
    let line = trace.lines().rev().find(of_process)?;
    let (before, _) = line.split_once(&format!(": {EVENT}:"))?;
    before.split_ascii_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_exec_of_the_process_is_found() {
        let trace = "# tracer: nop\n\
             init-70      [000] .....  1000: trapline_exec: (__x64_sys_execve+0x0/0x40)\n\
             a [b] c-71      [000] .....  2000: trapline_exec: (__x64_sys_execve+0x0/0x40)\n\
             vmm-70      [000] .....  30000000000: trapline_exec: (__x64_sys_execve+0x0/0x40)\n";
        assert_eq!(last_exec(trace, "70"), Some(30_000_000_000));
        assert_eq!(last_exec(trace, "71"), Some(2000));
        assert_eq!(last_exec(trace, "7"), None);
    }
}
