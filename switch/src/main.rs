//! `trapline-switch`: the switch as a program.

use clap::Parser;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use trapline_switch::engine::{Engine, Wait};
use trapline_switch::handle::Handle;
use trapline_switch::socket::{Address, Source};
use trapline_switch::{control, cpu, fault, sandbox, socket};

/// Time between checks of the engine's progress.
const CHECK: Duration = Duration::from_millis(20);

/// A layer-2 learning switch between guests, whose ports are vhost-user sockets.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// A port: the VMM connects to this socket
    #[arg(long, value_name = "SOCKET")]
    listen: Vec<PathBuf>,
    /// A port: the VMM listens on this socket
    #[arg(long, value_name = "SOCKET")]
    connect: Vec<PathBuf>,
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

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("trapline-switch: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Returns what a port is called: the name of its socket.
fn name(address: &Address) -> String {
    let name = address.path().file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn run(options: &Options) -> Result<(), String> {
    let listening = options.listen.iter().cloned().map(Address::Listen);
    let ports: Vec<Address> = listening
        .chain(options.connect.iter().cloned().map(Address::Connect))
        .collect();
    if ports.is_empty() {
        return Err("no port\nhelp: --listen SOCKET for each guest".to_owned());
    }
    let failed = |path: &std::path::Path, error: std::io::Error| {
        let path = path.display();
        format!("cannot open the socket {path}: {error}\nhelp: name a path that nothing else uses, in a writable directory")
    };
    let sources: Vec<Source> = ports
        .iter()
        .map(|it| Source::open(it).map_err(|error| failed(it.path(), error)))
        .collect::<Result<_, _>>()?;
    let counters = options.counters.as_ref().map(|path| {
        let source = Source::open(&Address::Listen(path.clone()));
        source.map_err(|error| failed(path, error))
    });
    let counters = counters.transpose()?;
    let text = |error: std::io::Error| error.to_string();
    sandbox::prepare();
    fault::install().map_err(text)?;
    let handle = Handle::new(ports.len()).map_err(text)?;
    let names: Vec<String> = ports.iter().map(name).collect();
    for (port, (source, name)) in sources.into_iter().zip(&names).enumerate() {
        let (handle, name) = (Arc::clone(&handle), name.clone());
        std::thread::spawn(move || {
            let report = |error| eprintln!("trapline-switch: {name}: {error}");
            socket::serve(&handle, port, &source, report);
        });
    }
    if let Some(Source::Listener(listener)) = counters {
        let (handle, names) = (Arc::clone(&handle), names.clone());
        std::thread::spawn(move || answer(&handle, &names, &listener));
    }
    let watched = Arc::clone(&handle);
    std::thread::spawn(move || {
        let mut last = 0;
        loop {
            std::thread::sleep(CHECK);
            last = watched.progress.check(last);
        }
    });
    let engine = prepare(options, &handle).map_err(text)?;
    sandbox::enter().map_err(|error| format!("cannot enter the sandbox: {error}"))?;
    forward(options, engine).map_err(text)
}

fn answer(handle: &Handle, names: &[String], listener: &UnixListener) {
    for reader in listener.incoming().flatten() {
        let _gone = control::answer(handle, names, &reader);
    }
}

/// Makes this thread the one that forwards.
fn prepare(options: &Options, handle: &Arc<Handle>) -> std::io::Result<Engine> {
    if let Some(cpu) = options.cpu {
        cpu::pin(cpu)?;
    }
    Engine::new(Arc::clone(handle))
}

/// Forwards frames.
fn forward(options: &Options, mut engine: Engine) -> std::io::Result<()> {
    let wait = match options.poll {
        true => Wait::Poll,
        false => Wait::Sleep(Duration::from_micros(options.sleep_after)),
    };
    engine.run(wait).map(|never| match never {})
}
