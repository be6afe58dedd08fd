//! Running one program and telling what it said.
//!
//! The machine has one CPU, so whatever this process does while a guest runs is
//! taken from the guest. It therefore lets the program's streams fill large pipes
//! and sleeps until the program has ended. Only where that takes long it wakes up
//! now and then to empty the pipes.

use super::beside::Beside;
use super::port::Port;
use super::script::{Kind, Launch};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use trapline_abi::frame::{encode, MAX_FRAME, MAX_RELAY};
use trapline_abi::record::Channel;
use trapline_abi::{stamp, Counter, Record};
use trapline_spawn::{ticks, Ended, Program, Started};

/// What a pipe holds before its writer has to wait, in bytes.
const PIPE: libc::c_int = 1 << 20;

/// How long to sleep before emptying the pipes, in milliseconds of the
/// machine's clock.
pub const PATIENCE: u64 = 1000;

/// A running program and the ends of its streams.
pub struct Guest {
    child: u16,
    pub started: Started,
    streams: [(Channel, File); 3],
}

/// Which of the streams its guest speaks on.
const CONSOLE: usize = 1;

/// Runs a program from its start to its end and tells about it.
pub fn run(launch: &Launch<'_>, beside: &mut Beside, port: &mut Port) -> io::Result<()> {
    let guest = start(launch, File::open("/dev/null")?.as_fd())?;
    beside.begin(&guest.started)?;
    let offset = match launch.kind {
        Kind::Ours => None,
        _ => guest.offset_once_it_speaks(u64::from(launch.seconds) * 1000)?,
    };
    let told = || beside.told();
    guest.finish(offset, launch.seconds, told, port).map(drop)
}

/// Starts a program that reads from `input`.
pub fn start(launch: &Launch<'_>, input: BorrowedFd<'_>) -> io::Result<Guest> {
    let mut program = Program::new(Path::new(launch.program))?;
    for argument in launch.of_program() {
        program.argument(argument)?;
    }
    let (console, console_end) = stream()?;
    let (errors, errors_end) = stream()?;
    let (events, events_end) = stream()?;
    program.descriptor(input)?;
    for end in [&console_end, &errors_end, &events_end] {
        program.descriptor(end.as_fd())?;
    }
    Ok(Guest {
        child: launch.child,
        started: trapline_spawn::start(&program)?,
        streams: [
            (Channel::Events, events),
            (Channel::Console, console),
            (Channel::Errors, errors),
        ],
    })
}

fn stream() -> io::Result<(File, File)> {
    let (reader, writer) = trapline_spawn::pipe()?;
    set_up(&reader)?;
    Ok((reader, writer))
}

/// Makes a pipe hold much, and its reader never wait.
pub fn set_up(reader: &File) -> io::Result<()> {
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

/// Sleeps until one of `descriptors` is readable, at most `milliseconds`.
pub fn ready(descriptors: &[BorrowedFd<'_>], milliseconds: u64) -> io::Result<bool> {
    let wanted = |descriptor: &BorrowedFd<'_>| libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut wanted: Vec<_> = descriptors.iter().map(wanted).collect();
    let patience = i32::try_from(milliseconds).unwrap_or(i32::MAX);
    // SAFETY: an array of as many entries as is said, of open descriptors.
    match unsafe { libc::poll(wanted.as_mut_ptr(), wanted.len() as u64, patience) } {
        -1 => Err(io::Error::last_os_error()),
        count => Ok(count > 0),
    }
}

impl Guest {
    /// The same, but its guest speaks through `console`, and what the program itself
    /// prints is about the program.
    pub fn speaking_through(self, console: File) -> Self {
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

    /// Waits for the program's end, at most so many seconds, and tells about it and
    /// about what ran beside it; whether it had to be killed.
    pub fn finish(
        mut self,
        offset: Option<i64>,
        seconds: u32,
        told_beside: impl FnOnce() -> io::Result<String>,
        port: &mut Port,
    ) -> io::Result<bool> {
        let mut told = false;
        let mut over = false;
        for _ in 0..seconds {
            over = ready(&[self.started.pidfd.as_fd()], PATIENCE)?;
            if over {
                break;
            }
            self.tell_start(&mut told, offset, port);
            self.tell_streams(port)?;
        }
        // Does nothing to a program that has ended by itself.
        self.started.signal(libc::SIGKILL);
        let ended = self.started.reap()?;
        let at = stamp!(Reaped);
        self.tell_start(&mut told, offset, port);
        self.tell_streams(port)?;
        for piece in told_beside()?.as_bytes().chunks(MAX_RELAY) {
            port.say(&self.relay(Channel::Errors, piece), ticks());
        }
        port.say(&self.reaped(&ended), at);
        Ok(!over)
    }

    /// Waits for the guest's first word and asks the kernel for the difference
    /// between the guest's TSC and ours; it knows only while the guest is there.
    fn offset_once_it_speaks(&self, milliseconds: u64) -> io::Result<Option<i64>> {
        let console = self.console();
        ready(&[self.started.pidfd.as_fd(), console.as_fd()], milliseconds)?;
        let prefix = format!("{}-", self.started.pid);
        Ok(offset_of(|machine| machine.starts_with(&prefix)))
    }

    /// What its guest says is read here.
    pub fn console(&self) -> &File {
        &self.streams[CONSOLE].1
    }

    pub fn tell_start(&self, told: &mut bool, offset: Option<i64>, port: &mut Port) {
        if std::mem::replace(told, true) {
            return;
        }
        port.say(&Record::Launch { child: self.child }, self.started.exec);
        if let Some(offset) = offset {
            self.tell_offset(offset, port);
        }
    }

    /// Tells it in the name of the VMM that does not.
    pub fn tell_offset(&self, offset: i64, port: &mut Port) {
        let count = Record::Count {
            counter: Counter::TscOffset,
            value: offset as u64,
        };
        let mut frame = [0; MAX_FRAME];
        if let Ok(length) = encode(&count, ticks(), &mut frame) {
            port.say(&self.relay(Channel::Events, &frame[..length]), ticks());
        }
    }

    pub fn tell_streams(&mut self, port: &mut Port) -> io::Result<()> {
        let mut piece = [0; MAX_RELAY];
        for stream in 0..self.streams.len() {
            let channel = self.streams[stream].0;
            loop {
                match self.streams[stream].1.read(&mut piece) {
                    Ok(0) => break,
                    Ok(length) => port.say(&self.relay(channel, &piece[..length]), ticks()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
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

/// What KVM's debugfs says about the first vCPU of the guest that `is_its` picks
/// by the name of its directory, in ticks.
pub fn offset_of(is_its: impl Fn(&str) -> bool) -> Option<i64> {
    let machines = fs::read_dir("/sys/kernel/debug/kvm").ok()?;
    let machine = machines
        .flatten()
        .find(|entry| is_its(&entry.file_name().to_string_lossy()))?;
    let text = fs::read_to_string(machine.path().join("vcpu0/tsc-offset")).ok()?;
    text.trim().parse().ok()
}
