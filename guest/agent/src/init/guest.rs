//! Runs one program and relays its output.
//!
//! The machine has one CPU, so work of this process while a guest runs would slow down the guest. So
//! the output of the program is buffered in large pipes, and this process sleeps until the program
//! exits. During long runs it wakes up periodically to empty the pipes.

use super::background::Background;
use super::script::{Launch, VmmKind};
use crate::devices::Devices;
use crate::sys::wait_readable;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use trapline_abi::frame::{encode, MAX_FRAME, MAX_RELAY};
use trapline_abi::record::Channel;
use trapline_abi::{stamp, Counter, Record};
use trapline_spawn::memory::own_memory;
use trapline_spawn::{ticks, Ended, Program, Started};

/// Capacity of a pipe, in bytes.
const PIPE: libc::c_int = 1 << 20;

/// Interval of emptying the pipes, in milliseconds of the machine's clock.
pub const RELAY_INTERVAL: u64 = 1000;

/// A count that init sends on behalf of a VMM.
pub type Count = (Counter, u64);

/// Running program and its output streams.
pub struct Guest {
    child: u16,
    pub started: Started,
    /// TSC at the start of the launch, in ticks.
    exec: u64,
    toolstack: Option<Toolstack>,
    streams: [(Channel, File); 3],
}

/// Running toolstack of the domain that a VMM serves. It exits after the domain.
pub struct Toolstack {
    pub started: Started,
    /// Its messages.
    pub errors: File,
    /// Destroys the domain.
    pub destroy: Box<dyn FnOnce() -> io::Result<()>>,
}

/// Part of the message of `xl` at the end of a domain, which has the reason code (Xen `public/sched.h`).
const DOMAIN_HAS_ENDED: &str = "has shut down";

/// Index of the console of the guest in the streams.
const CONSOLE: usize = 1;

/// Runs a program until it exits, and sends its records.
pub fn run(
    launch: &Launch<'_>,
    background: &mut Background,
    devices: &mut Devices,
) -> io::Result<()> {
    let guest = start(launch, &[], File::open("/dev/null")?.as_fd())?;
    background.begin(&guest.started)?;
    let counts = match launch.kind {
        VmmKind::Trapline => Vec::new(),
        _ => guest.wait_for_counts(launch)?,
    };
    let report = || background.report();
    guest
        .finish(&counts, launch.seconds, report, devices)
        .map(drop)
}

/// Starts a program with these environment variables and standard input `input`.
pub fn start(
    launch: &Launch<'_>,
    variables: &[(String, OsString)],
    input: BorrowedFd<'_>,
) -> io::Result<Guest> {
    let mut program = Program::new(Path::new(launch.program))?;
    for (name, value) in variables {
        program.environment(name, value)?;
    }
    for argument in launch.program_arguments() {
        program.argument(argument)?;
    }
    let (console, console_end) = stream()?;
    let (errors, errors_end) = stream()?;
    let (events, events_end) = stream()?;
    program.descriptor(input)?;
    for end in [&console_end, &errors_end, &events_end] {
        program.descriptor(end.as_fd())?;
    }
    let started = trapline_spawn::start(&program)?;
    Ok(Guest {
        child: launch.child,
        exec: started.exec,
        started,
        toolstack: None,
        streams: [
            (Channel::Events, events),
            (Channel::Console, console),
            (Channel::Errors, errors),
        ],
    })
}

/// Returns a pipe: its reader and its writer.
pub fn stream() -> io::Result<(File, File)> {
    let (reader, writer) = trapline_spawn::pipe()?;
    configure_pipe(&reader)?;
    Ok((reader, writer))
}

/// Makes a pipe large and its reader non-blocking.
pub fn configure_pipe(reader: &File) -> io::Result<()> {
    for (command, value) in [
        (libc::F_SETPIPE_SZ, PIPE),
        (libc::F_SETFL, libc::O_NONBLOCK),
    ] {
        // SAFETY: the reader's descriptor is open, and both commands take a number.
        if unsafe { libc::fcntl(reader.as_raw_fd(), command, value) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

impl Guest {
    /// Start of the launch, in ticks.
    pub fn exec(&self) -> u64 {
        self.exec
    }

    /// Makes the launch begin at another time, in ticks.
    pub fn begin_at(&mut self, exec: u64) {
        self.exec = exec;
    }

    /// Uses `console` as the console of the guest; standard output of the program is relayed as
    /// errors.
    pub fn with_console(self, console: File) -> Self {
        let [_, (_, output), errors] = self.streams;
        Self {
            streams: [
                (Channel::Errors, output),
                (Channel::Console, console),
                errors,
            ],
            ..self
        }
    }

    /// Makes the launch begin with that of `toolstack` and end with it.
    pub fn with_toolstack(self, toolstack: Toolstack) -> Self {
        Self {
            exec: toolstack.started.exec,
            toolstack: Some(toolstack),
            ..self
        }
    }

    /// Waits for one interval until the program exits. Terminates it if the domain that it serves has ended.
    fn wait(&self) -> io::Result<bool> {
        let program = self.started.pidfd.as_fd();
        let toolstack = self.toolstack.as_ref();
        let ends = toolstack.map(|toolstack| toolstack.started.pidfd.as_fd());
        let any: Vec<_> = ends.into_iter().chain([program]).collect();
        let is_over = wait_readable(&any, RELAY_INTERVAL)?;
        if !is_over || toolstack.is_none() || wait_readable(&[program], 0)? {
            return Ok(is_over);
        }
        self.started.signal(libc::SIGTERM);
        wait_readable(&[program], RELAY_INTERVAL)
    }

    /// Waits until the toolstack exits, for one interval after a VMM that has ended the domain, and destroys the domain
    /// then. Returns the messages of the toolstack.
    fn finish_toolstack(&mut self, has_ended: bool) -> io::Result<String> {
        let Some(mut toolstack) = self.toolstack.take() else {
            return Ok(String::new());
        };
        let limit = if has_ended { RELAY_INTERVAL } else { 0 };
        if !wait_readable(&[toolstack.started.pidfd.as_fd()], limit)? {
            (toolstack.destroy)()?;
        }
        toolstack.started.reap()?;
        let mut messages = String::new();
        // The pipe does not block, and has no more writers.
        let _incomplete = toolstack.errors.read_to_string(&mut messages);
        // The other lines are about the cleanup.
        let mut lines = messages.lines();
        let end = lines.find(|line| line.contains(DOMAIN_HAS_ENDED));
        Ok(end.map_or_else(|| messages.clone(), |line| format!("{line}\n")))
    }

    /// Waits until the program exits, for at most `seconds`, and sends its records and the report
    /// of the loads. Returns true if it was killed.
    pub fn finish(
        mut self,
        counts: &[Count],
        seconds: u32,
        report_loads: impl FnOnce() -> io::Result<String>,
        devices: &mut Devices,
    ) -> io::Result<bool> {
        let mut started = false;
        let mut over = false;
        for _ in 0..seconds {
            over = self.wait()?;
            if over {
                break;
            }
            self.send_start(&mut started, counts, devices);
            self.relay_streams(devices)?;
        }
        // No effect on a program that has exited.
        self.started.signal(libc::SIGKILL);
        let ended = self.started.reap()?;
        let toolstack_errors = self.finish_toolstack(over)?;
        let at = stamp!(Reaped);
        self.send_start(&mut started, counts, devices);
        self.relay_streams(devices)?;
        for piece in toolstack_errors.as_bytes().chunks(MAX_RELAY) {
            devices.send(&self.relay(Channel::Errors, piece), ticks());
        }
        for piece in report_loads()?.as_bytes().chunks(MAX_RELAY) {
            devices.send(&self.relay(Channel::Errors, piece), ticks());
        }
        devices.send(&self.reaped(&ended), at);
        Ok(!over)
    }

    /// Waits for the first output of the guest and reads what the kernel reports only while the guest exists.
    fn wait_for_counts(&self, launch: &Launch<'_>) -> io::Result<Vec<Count>> {
        let descriptors = [self.started.pidfd.as_fd(), self.console().as_fd()];
        wait_readable(&descriptors, u64::from(launch.seconds) * 1000)?;
        Ok(self.counts(launch, |creator| self.has_thread(creator)))
    }

    /// Returns whether the program has this thread.
    pub fn has_thread(&self, number: &str) -> bool {
        Path::new(&format!("/proc/{}/task/{number}", self.started.pid)).exists()
    }

    /// Returns the TSC offset of the guest that one of the threads which `is_creator` selects has created, and the memory of
    /// its VMM if that is wanted.
    pub fn counts(&self, launch: &Launch<'_>, is_creator: impl Fn(&str) -> bool) -> Vec<Count> {
        let offset = offset_of(is_creator).map(|offset| (Counter::TscOffset, offset as u64));
        let memory = launch.reports_memory.then(|| own_memory(self.started.pid));
        let memory = memory.flatten().map(|bytes| (Counter::OwnMemory, bytes));
        offset.into_iter().chain(memory).collect()
    }

    /// Returns the console of the guest.
    pub fn console(&self) -> &File {
        &self.streams[CONSOLE].1
    }

    pub fn send_start(&self, is_sent: &mut bool, counts: &[Count], devices: &mut Devices) {
        if !std::mem::replace(is_sent, true) {
            devices.send(&Record::Launch { child: self.child }, self.exec);
            self.send_counts(counts, devices);
        }
    }

    /// Sends counts on behalf of the VMM.
    pub fn send_counts(&self, counts: &[Count], devices: &mut Devices) {
        for &(counter, value) in counts {
            let mut frame = [0; MAX_FRAME];
            if let Ok(length) = encode(&Record::Count { counter, value }, ticks(), &mut frame) {
                devices.send(&self.relay(Channel::Events, &frame[..length]), ticks());
            }
        }
    }

    pub fn relay_streams(&mut self, devices: &mut Devices) -> io::Result<()> {
        let mut piece = [0; MAX_RELAY];
        for stream in 0..self.streams.len() {
            let channel = self.streams[stream].0;
            loop {
                match self.streams[stream].1.read(&mut piece) {
                    Ok(0) => break,
                    Ok(length) => devices.send(&self.relay(channel, &piece[..length]), ticks()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Sends output of the guest that was read before.
    pub fn relay_console(&self, bytes: &[u8], devices: &mut Devices) {
        for piece in bytes.chunks(MAX_RELAY) {
            devices.send(&self.relay(Channel::Console, piece), ticks());
        }
    }

    pub fn relay<'a>(&self, channel: Channel, bytes: &'a [u8]) -> Record<'a> {
        Record::Relay {
            child: self.child,
            channel,
            bytes,
        }
    }

    pub fn reaped(&self, ended: &Ended) -> Record<'static> {
        Record::Reaped {
            child: self.child,
            status: ended.status as u32,
            peak_kib: ended.peak_kib,
        }
    }
}

/// Reads the TSC offset of the first vCPU from KVM's debugfs, in ticks. The directory of a guest begins with the number of
/// the thread that has created it, and a hyphen.
fn offset_of(is_creator: impl Fn(&str) -> bool) -> Option<i64> {
    let machines = fs::read_dir("/sys/kernel/debug/kvm").ok()?;
    let machine = machines.flatten().find(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.split_once('-')
            .is_some_and(|(creator, _)| is_creator(creator))
    })?;
    let text = fs::read_to_string(machine.path().join("vcpu0/tsc-offset")).ok()?;
    text.trim().parse().ok()
}
