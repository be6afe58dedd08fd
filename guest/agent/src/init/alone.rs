//! Process 1 of a Linux guest: nothing else runs there, and nobody waits for it.
//!
//! The job stands among the words of the kernel's command line, what is measured is
//! what a process measures, and records leave where the job says: through the port on
//! which the image speaks, too, or by the serial line of a machine that has no ports. Then
//! the machine ends.

use super::line::Line;
use super::port::Port;
use crate::{build, linux};
use std::fs;
use std::io;
use std::path::Path;
use trapline_abi::frame::{clip, encode, MAX_FRAME};
use trapline_abi::job::{Console, CPUS};
use trapline_abi::platform::{EXIT_DONE, EXIT_PANIC};
use trapline_abi::{Job, Record};
use trapline_spawn::ticks;

/// The word that every job has.
const JOB: &str = "trapline.run=";

/// What the kernel was told.
pub struct Task {
    job: Job,
    /// How many CPUs the machine is to have, if somebody said.
    cpus: Option<usize>,
}

/// The task that the kernel was told, if it was told one.
///
/// # Errors
/// The command line cannot be read, or the job makes no sense.
pub fn task() -> io::Result<Option<Task>> {
    let words = fs::read_to_string("/proc/cmdline")?;
    parse(&words).map_err(io::Error::other)
}

fn parse(words: &str) -> Result<Option<Task>, String> {
    let words = || words.split_ascii_whitespace();
    if !words().any(|word| word.starts_with(JOB)) {
        return Ok(None);
    }
    let own = words().filter(|word| word.starts_with("trapline."));
    let job = Job::parse(own).map_err(|bad| bad.to_string())?;
    let cpus = words().find_map(|word| word.strip_prefix(CPUS));
    let number = |text: &str| text.parse().map_err(|_| format!("{CPUS}{text}: no number"));
    let cpus = cpus.map(number).transpose()?;
    Ok(Some(Task { job, cpus }))
}

/// Does it, and ends the machine. `main` is the clock at the program's beginning, in ticks.
pub fn run(task: &Task, main: u64) -> ! {
    let console = task.job.console;
    let mut way = match Way::open(console) {
        Ok(way) => way,
        // There is no way to say so but the kernel's, when its init ends.
        Err(error) => panic!("records have no way out of this machine: {error}"),
    };
    std::panic::set_hook(Box::new(move |info| {
        if let Ok(way) = Way::open(console) {
            way.last_words(&info.to_string());
        }
    }));
    if let Some(trouble) = task.cpus.and_then(missing_cpus) {
        way.last_words(&trouble);
    }
    let sink = &mut |frame: &[u8]| way.write(frame);
    match (task.job.build, console) {
        // In user-mode Linux there is no machine around it.
        (0, Console::Serial) => linux::run(&task.job, main, sink),
        (0, _) => linux::run_alone(&task.job, main, sink),
        (jobs, _) => {
            give_devices();
            build::run(jobs, sink);
        }
    }
    way.end(EXIT_DONE)
}

/// Programs expect a `/dev/null`. Where there is none, starting them will say so.
fn give_devices() {
    if !Path::new("/dev/null").exists() {
        let _told_later = super::mount("devtmpfs", "/dev");
    }
}

/// What there is to say if the kernel did not bring up as many CPUs as the machine has.
fn missing_cpus(wanted: usize) -> Option<String> {
    // SAFETY: only reads a configuration value.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    let fits = usize::try_from(online) == Ok(wanted);
    (!fits).then(|| format!("{online} CPUs are online in this machine, which has {wanted}"))
}

/// Where records leave, and how the machine ends.
enum Way {
    Port(Port),
    Line(Line),
}

impl Way {
    fn open(console: Console) -> io::Result<Self> {
        match console {
            Console::Serial => Line::open().map(Self::Line),
            _ => Port::open().map(Self::Port),
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        match self {
            Self::Port(port) => port.write(bytes),
            Self::Line(line) => line.write(bytes),
        }
    }

    fn last_words(mut self, message: &str) -> ! {
        let message = clip(message);
        let mut frame = [0; MAX_FRAME];
        if let Ok(length) = encode(&Record::Panic { message }, ticks(), &mut frame) {
            self.write(&frame[..length]);
        }
        self.end(EXIT_PANIC)
    }

    fn end(&mut self, code: u32) -> ! {
        match self {
            Self::Port(port) => port.end(code),
            Self::Line(line) => line.end(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_task_stands_among_the_kernels_words() {
        let words = "console=ttyS0 trapline-cpus=2 panic=-1 trapline.run=basic/getpid \
                     trapline.console=port\n";
        let task = parse(words).unwrap().unwrap();
        assert_eq!((task.cpus, task.job.console), (Some(2), Console::Port));
        assert!(parse("console=ttyS0 quiet").unwrap().is_none());
        let nobody_said = parse("trapline.run=basic").unwrap().unwrap();
        assert_eq!(nobody_said.cpus, None);
        for bad in ["trapline-cpus=two", "trapline.rum=basic"] {
            let told = parse(&format!("trapline.run=basic {bad}")).err().unwrap();
            assert!(told.contains(bad), "{told}");
        }
    }

    #[test]
    fn cpus_that_are_not_there_are_missed() {
        let online = std::thread::available_parallelism().unwrap().get();
        let told = missing_cpus(online + 1000).unwrap();
        assert!(told.ends_with(&format!("has {}", online + 1000)), "{told}");
    }
}
