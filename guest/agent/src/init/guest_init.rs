//! Process 1 of a Linux guest, the only process.
//!
//! The job is part of the kernel's command line. Records are sent through the console devices, or the
//! serial line of a machine without ports. Then the machine ends.

use super::line::Line;
use super::script;
use crate::devices::Devices;
use crate::drivers::mount_devices;
use crate::{build, isolation, linux, peer};
use std::fs;
use std::io;
use trapline_abi::frame::{encode, truncate, MAX_FRAME};
use trapline_abi::job::{Console, Shutdown, CPUS};
use trapline_abi::platform::{EXIT_DONE, EXIT_PANIC};
use trapline_abi::{Job, Record};
use trapline_spawn::ticks;

/// Prefix of a word that every job contains.
const JOB: &str = "trapline.run=";

/// Task of the kernel's command line.
pub enum Task {
    /// Measurements in this guest.
    Job(JobTask),
    /// A script that starts guests of this guest.
    Script(String),
}

/// Job of a guest that is measured.
pub struct JobTask {
    job: Job,
    /// Expected number of CPUs, if given.
    cpus: Option<usize>,
}

/// Parses the task of the kernel's command line, if it has one.
///
/// # Errors
/// The command line cannot be read, or the job or the script is invalid.
pub fn task() -> io::Result<Option<Task>> {
    let words = fs::read_to_string("/proc/cmdline")?;
    parse(&words).map_err(io::Error::other)
}

fn parse(words: &str) -> Result<Option<Task>, String> {
    if let Some(script) = script::from_command_line(words)? {
        return Ok(Some(Task::Script(script)));
    }
    let words = || words.split_ascii_whitespace();
    if !words().any(|word| word.starts_with(JOB)) {
        return Ok(None);
    }
    let own = words().filter(|word| word.starts_with("trapline."));
    let job = Job::parse(own).map_err(|bad| bad.to_string())?;
    let cpus = words().find_map(|word| word.strip_prefix(CPUS));
    let number = |text: &str| {
        text.parse()
            .map_err(|_| format!("{CPUS}{text}: not a number"))
    };
    let cpus = cpus.map(number).transpose()?;
    Ok(Some(Task::Job(JobTask { job, cpus })))
}

/// Runs the task and ends the machine. `main` is the clock at the start of the program, in ticks.
pub fn run(task: &JobTask, main: u64) -> ! {
    let (console, shutdown) = (task.job.console, task.job.shutdown);
    let mut output = match Output::open(console) {
        Ok(output) => output,
        // The only message is that of the kernel when its init exits.
        Err(error) => panic!("no console for records: {error}"),
    };
    std::panic::set_hook(Box::new(move |info| {
        if let Ok(output) = Output::open(console) {
            output.send_panic(&info.to_string(), shutdown);
        }
    }));
    if let Some(message) = task.cpus.and_then(missing_cpus) {
        output.send_panic(&message, shutdown);
    }
    match isolation::check(&task.job) {
        Ok(fact) => fact.iter().for_each(|line| output.write(line.as_bytes())),
        Err(message) => output.send_panic(&message, shutdown),
    }
    let sink = &mut |frame: &[u8]| output.write(frame);
    if task.job.receiver {
        let served = peer::serve_card(sink);
        panic!(
            "the other guest: {}",
            served.err().map_or_else(String::new, |it| it.to_string())
        );
    }
    match (task.job.build, console) {
        // User-mode Linux has no machine; of other VMMs its kernel has the serial devices.
        (0, Console::Serial) => linux::run(&task.job, main, sink),
        (0, _) => linux::run_as_init(&task.job, main, sink),
        (jobs, _) => {
            mount_devices();
            build::run(jobs, sink);
        }
    }
    output.end(EXIT_DONE, shutdown)
}

/// Returns a message if the number of online CPUs is not `wanted`.
fn missing_cpus(wanted: usize) -> Option<String> {
    // SAFETY: only reads a configuration value.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    let fits = usize::try_from(online) == Ok(wanted);
    (!fits).then(|| format!("{online} CPUs are online in this machine, which has {wanted}"))
}

/// Console for records, which also ends the machine.
enum Output {
    Devices(Devices),
    Line(Line),
}

impl Output {
    fn open(console: Console) -> io::Result<Self> {
        match console {
            Console::Serial => Line::open().map(Self::Line),
            _ => Devices::open().map(Self::Devices),
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        match self {
            Self::Devices(devices) => devices.write(bytes),
            Self::Line(line) => line.write(bytes),
        }
    }

    fn send_panic(mut self, message: &str, shutdown: Shutdown) -> ! {
        let message = truncate(message);
        let mut frame = [0; MAX_FRAME];
        if let Ok(length) = encode(&Record::Panic { message }, ticks(), &mut frame) {
            self.write(&frame[..length]);
        }
        self.end(EXIT_PANIC, shutdown)
    }

    fn end(&mut self, code: u32, shutdown: Shutdown) -> ! {
        match self {
            Self::Devices(devices) => devices.end(code),
            Self::Line(line) => line.end(shutdown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn the_task_is_parsed_from_the_kernel_command_line() {
        let words = "console=ttyS0 trapline-cpus=2 panic=-1 trapline.run=basic/getpid \
                     trapline.console=port\n";
        let Some(Task::Job(task)) = parse(words).unwrap() else {
            panic!("not a job");
        };
        assert_eq!((task.cpus, task.job.console), (Some(2), Console::Port));
        assert!(parse("console=ttyS0 quiet").unwrap().is_none());
        let without_cpus = parse("trapline.run=basic").unwrap();
        assert!(matches!(without_cpus, Some(Task::Job(task)) if task.cpus.is_none()));
        let script = parse("trapline-script=launch trapline.run=basic").unwrap();
        assert!(matches!(script, Some(Task::Script(script)) if script == "launch"));
        let errors = ["trapline-cpus=two", "trapline.rum=basic"]
            .map(|bad| parse(&format!("trapline.run=basic {bad}")).err().unwrap());
        expect![[r#"
            trapline-cpus=two: not a number
            invalid word of a job: 'trapline.rum=basic'"#]]
        .assert_eq(&errors.join("\n"));
    }

    #[test]
    fn missing_cpus_are_reported() {
        let online = std::thread::available_parallelism().unwrap().get();
        let message = missing_cpus(online + 1000).unwrap();
        assert!(
            message.ends_with(&format!("has {}", online + 1000)),
            "{message}"
        );
    }
}
