//! `trapline-switch`: the switch as a program.

use clap::Parser;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use trapline_switch::engine::{Engine, Wait};
use trapline_switch::handle::Handle;
use trapline_switch::mirror::{self, Mirror};
use trapline_switch::policy::{Policy, PortArgument};
use trapline_switch::report;
use trapline_switch::socket::{self, Address, Source};
use trapline_switch::tap::Tap;
use trapline_switch::{control, cpu, fault, privileges, sandbox};

/// A layer-2 learning switch between guests, whose ports are vhost-user sockets and taps.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// A port: the VMM connects to this socket. `mac` is its only address; isolated ports do not reach each other
    #[arg(long, value_name = "SOCKET[,mac=ADDRESS][,isolated]")]
    listen: Vec<PortArgument>,
    /// A port: the VMM listens on this socket
    #[arg(long, value_name = "SOCKET[,mac=ADDRESS][,isolated]")]
    connect: Vec<PortArgument>,
    /// A port: an existing tap of the host
    #[arg(long, value_name = "NAME[,mac=ADDRESS][,isolated]")]
    tap: Vec<PortArgument>,
    /// Copy the frames of a port, named as in the counters, to a file or FIFO in the format of pcap
    #[arg(long, value_name = "PORT=FILE")]
    mirror: Option<String>,
    /// Largest length of that file in MiB; a FIFO has no limit
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    mirror_limit: u64,
    /// Socket that answers each connection with all counters as JSON
    #[arg(long, value_name = "SOCKET")]
    counters: Option<PathBuf>,
    /// CPU of the thread that forwards
    #[arg(long, value_name = "CPU")]
    cpu: Option<usize>,
    /// Microseconds without a frame after which the thread sleeps; 0: at once
    #[arg(long, value_name = "US", default_value_t = 50, conflicts_with = "poll")]
    sleep_after: u64,
    /// Never sleep
    #[arg(long)]
    poll: bool,
}

/// Opened files of a switch.
struct Opened {
    /// Names of all ports.
    names: Vec<String>,
    policies: Vec<Policy>,
    /// The first ports.
    sources: Vec<Source>,
    /// The others.
    taps: Vec<Tap>,
    counters: Option<Source>,
    mirror: Option<(Mirror, File)>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            report::say(&message);
            ExitCode::FAILURE
        }
    }
}

/// Returns what a port is called: the name of its socket.
fn name(address: &Address) -> String {
    let name = address.path().file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn open_socket(address: &Address) -> Result<Source, String> {
    Source::open(address).map_err(|error| {
        let path = address.path().display();
        format!("cannot open the socket {path}: {error}\nhelp: name a path that nothing else uses, in a writable directory")
    })
}

fn open_tap(port: &PortArgument) -> Result<Tap, String> {
    let name = &port.name;
    Tap::new(name).map_err(|error| {
        format!("cannot open the tap {name}: {error}\nhelp: 'ip tuntap add {name} mode tap user USER' makes one, as root; end the program that uses it")
    })
}

impl Options {
    fn open(&self) -> Result<Opened, String> {
        let path = |port: &PortArgument| PathBuf::from(&port.name);
        let listening = self.listen.iter().map(path).map(Address::Listen);
        let connecting = self.connect.iter().map(path).map(Address::Connect);
        let addresses: Vec<Address> = listening.chain(connecting).collect();
        let taps = self.tap.iter().map(|port| port.name.clone());
        let names: Vec<String> = addresses.iter().map(name).chain(taps).collect();
        let all = [&self.listen, &self.connect, &self.tap];
        let policies = all.into_iter().flatten().map(|port| port.policy);
        if names.is_empty() {
            return Err(
                "no port\nhelp: --listen SOCKET for each guest, --tap NAME for the host".to_owned(),
            );
        }
        let counters = self.counters.clone().map(Address::Listen);
        Ok(Opened {
            sources: addresses
                .iter()
                .map(open_socket)
                .collect::<Result<_, _>>()?,
            taps: self.tap.iter().map(open_tap).collect::<Result<_, _>>()?,
            counters: counters.as_ref().map(open_socket).transpose()?,
            mirror: self.open_mirror(&names)?,
            policies: policies.collect(),
            names,
        })
    }

    /// Opens the file of the mirror, and writes its header.
    fn open_mirror(&self, names: &[String]) -> Result<Option<(Mirror, File)>, String> {
        let Some(text) = &self.mirror else {
            return Ok(None);
        };
        let failed =
            |cause: String, remedy: String| format!("--mirror {text}: {cause}\nhelp: {remedy}");
        let parts = text.split_once('=');
        let port = parts.and_then(|(port, _)| names.iter().position(|name| name == port));
        let (Some((_, path)), Some(port)) = (parts, port) else {
            let names = names.join(", ");
            return Err(failed(
                "no such port".to_owned(),
                format!("write PORT=FILE; ports are {names}"),
            ));
        };
        let file = open_copies(Path::new(path)).map_err(|error| {
            failed(
                error.to_string(),
                "name a file or FIFO that can be written".to_owned(),
            )
        })?;
        Ok(Some((Mirror::new(port), file)))
    }
}

/// Opens a file of copies, or a FIFO without waiting for its reader, and writes the header.
fn open_copies(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // To open a FIFO for reading, too, waits for nothing.
    options.read(true).write(true).create(true).truncate(false);
    let mut file = options.open(path)?;
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(&mirror::file_header())?;
    Ok(file)
}

fn run(options: &Options) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    privileges::close_inherited();
    let opened = options.open()?;
    privileges::drop_all().map_err(text)?;
    sandbox::prepare();
    fault::install().map_err(text)?;
    let (mirror, file) = opened.mirror.unzip();
    let handle = Handle::new(opened.names.len(), mirror).map_err(text)?;
    let first_tap = opened.sources.len();
    for (port, source) in opened.sources.into_iter().enumerate() {
        socket::start(&handle, port, source, &opened.names[port]);
    }
    if let Some(file) = file {
        start_mirror(&handle, file, options.mirror_limit.saturating_mul(1 << 20)).map_err(text)?;
    }
    if let Some(Source::Listener(listener)) = opened.counters {
        let (handle, names) = (Arc::clone(&handle), opened.names);
        std::thread::spawn(move || answer(&handle, &names, &listener));
    }
    if let Some(cpu) = options.cpu {
        cpu::pin(cpu).map_err(text)?;
    }
    let mut engine = Engine::new(Arc::clone(&handle), opened.policies).map_err(text)?;
    for (index, tap) in opened.taps.into_iter().enumerate() {
        engine.add_tap(first_tap + index, tap).map_err(text)?;
    }
    sandbox::enter().map_err(|error| format!("cannot enter the sandbox: {error}"))?;
    let wait = if options.poll {
        Wait::Poll
    } else {
        Wait::Sleep(Duration::from_micros(options.sleep_after))
    };
    engine.run(wait)
}

/// Starts the thread that writes copies.
fn start_mirror(handle: &Arc<Handle>, file: File, limit: u64) -> io::Result<()> {
    let is_fifo = file.metadata()?.file_type().is_fifo();
    let limit = if is_fifo { u64::MAX } else { limit };
    let handle = Arc::clone(handle);
    std::thread::spawn(move || {
        if let Some(mirror) = &handle.mirror {
            mirror.serve(file, limit);
        }
    });
    Ok(())
}

fn answer(handle: &Handle, names: &[String], listener: &UnixListener) {
    for reader in listener.incoming().flatten() {
        let _gone = control::answer(handle, names, &reader);
    }
}
