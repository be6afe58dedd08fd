//! `trapline-traffic`: frames between two endpoints, counted and checked.

use clap::{Parser, ValueEnum};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use trapline_switch::cpu;
use trapline_switch::driver::any_endpoint::AnyEndpoint;
use trapline_switch::driver::hostile::{self, Hostile};
use trapline_switch::driver::kernel::{
    configure, enter_namespace, join_namespaces, PacketSocket, Tap,
};
use trapline_switch::driver::traffic::{Direction, Frames, Load, Traffic};
use trapline_switch::driver::vde::VdeSocket;
use trapline_switch::driver::{Peer, Setup};
use trapline_switch::session::MOST_PAIRS;

type Failure = Box<dyn std::error::Error>;

/// Sends numbered frames from one endpoint to another, and prints rate, loss and latency as JSON.
#[derive(Parser)]
struct Options {
    /// Port that sends: the socket of a vhost-user switch, or 'interface:NAME' of Linux
    #[arg(required_unless_present_any = ["kernel", "vde"], requires = "to")]
    from: Option<PathBuf>,
    /// Port that receives
    to: Option<PathBuf>,
    /// Process in whose user and network namespaces the interfaces are
    #[arg(long, value_name = "PROCESS", conflicts_with = "kernel")]
    namespace: Option<u32>,
    /// Network of Linux, in a namespace of its own, in place of a vhost-user switch
    #[arg(long, value_enum, conflicts_with = "from")]
    kernel: Option<Kernel>,
    /// Directory of a VDE switch
    #[arg(long, conflicts_with_all = ["from", "kernel"])]
    vde: Option<PathBuf>,
    /// Bytes of a frame, without its checksum
    #[arg(long, default_value_t = 60)]
    size: usize,
    /// Time to measure, in seconds
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Descriptors of each queue
    #[arg(long, default_value_t = 256)]
    queue: u16,
    /// Pairs of queues of a port of a vhost-user switch, by which batches of frames are sent in turn
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with_all = ["kernel", "vde"])]
    queues: usize,
    /// Packed queues
    #[arg(long)]
    packed: bool,
    /// Last byte of the sender's address; the receiver has the next one
    #[arg(long, default_value_t = 1)]
    station: u8,
    /// Port of a guest that writes invalid queues all the time: compare the rate of the others with and without it
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["kernel", "vde", "rate"])]
    hostile: Option<PathBuf>,
    /// Endpoints that send
    #[arg(long, value_enum, default_value_t = Way::One)]
    direction: Way,
    /// Frames in a second of each sender, whatever arrives [default: as many as arrive]
    #[arg(long)]
    rate: Option<f64>,
    /// CPU of the thread
    #[arg(long)]
    cpu: Option<usize>,
    /// CPU of the switch: measure the round trip of a cache line to it first
    #[arg(long, requires = "cpu")]
    switch_cpu: Option<usize>,
    /// Process of the switch: report its CPU time
    #[arg(long)]
    switch_process: Option<u32>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kernel {
    /// Two connected virtual interfaces
    Veth,
    /// Two taps and a bridge
    Bridge,
}

#[derive(Clone, Copy, ValueEnum)]
enum Way {
    /// The first one
    One,
    /// Both
    Both,
    /// The first one; the second one does not receive
    Half,
}

impl From<Way> for Direction {
    fn from(way: Way) -> Self {
        match way {
            Way::One => Self::One,
            Way::Both => Self::Both,
            Way::Half => Self::Half,
        }
    }
}

/// Pairs of trials with and without a hostile guest.
const PAIRS: usize = 10;

/// Time beyond that of the measurement after which a switch that does not answer is given up: of this program's CPU, of which a
/// loaded host gives it little, or of the wall clock.
const PATIENCE: Duration = Duration::from_secs(20);
const PATIENCE_ON_WALL: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let options = Options::parse();
    if let Err(error) = enter(&options) {
        eprintln!("trapline-traffic: {error}");
        return ExitCode::FAILURE;
    }
    let time = Duration::try_from_secs_f64(options.seconds).unwrap_or_default();
    std::thread::spawn(move || {
        let begin = Instant::now();
        while cpu_time() < time + PATIENCE && begin.elapsed() < time + PATIENCE_ON_WALL {
            std::thread::sleep(Duration::from_secs(1));
        }
        eprintln!(
            "trapline-traffic: no end after {} s: the switch does not answer",
            begin.elapsed().as_secs()
        );
        std::process::exit(1);
    });
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trapline-traffic: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the CPU time of this process.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Enters the namespaces of the interfaces, before there is another thread.
fn enter(options: &Options) -> Result<(), Failure> {
    if let Some(process) = options.namespace {
        join_namespaces(process).map_err(|error| {
            format!("--namespace {process}: {error}\nhelp: name a process of this user that runs")
        })?;
    }
    if options.kernel.is_some() {
        enter_namespace().map_err(|error| {
            format!(
                "no network namespace: {error}\nhelp: run as root, or permit unprivileged user namespaces"
            )
        })?;
    }
    Ok(())
}

/// Checks the values of options.
fn check(options: &Options) -> Result<(), Failure> {
    if !options.queue.is_power_of_two() || !(60..=1514).contains(&options.size) {
        return Err("the queue has a power of two of descriptors, a frame 60 to 1514 bytes".into());
    }
    if !(1..=MOST_PAIRS).contains(&options.queues) {
        return Err(format!("--queues: expected 1 to {MOST_PAIRS}").into());
    }
    if options
        .rate
        .is_some_and(|rate| !(1.0..=1e9).contains(&rate))
    {
        return Err("--rate: expected 1 to 1e9 frames in a second".into());
    }
    if !(0.001..=86_400.0).contains(&options.seconds) {
        return Err("--seconds: expected 0.001 to 86400".into());
    }
    Ok(())
}

fn run(options: &Options) -> Result<(), Failure> {
    check(options)?;
    let endpoints = endpoints(options)?;
    let cpus = options.cpu.zip(options.switch_cpu);
    let round_trip = cpus.map(|(own, other)| cpu::round_trip([own, other]));
    let round_trip = round_trip.transpose()?;
    if let Some(cpu) = options.cpu {
        cpu::pin(cpu)?;
    }
    let frames = Frames {
        size: options.size,
        direction: options.direction.into(),
        load: options.rate.map_or(Load::Maximum, Load::Rate),
        window: options.queue,
        pairs: options.queues,
        station: options.station,
    };
    let mut traffic = Traffic::new(endpoints, frames);
    traffic.run(Duration::from_millis(200));
    if let Some(port) = &options.hostile {
        return compare(&mut traffic, port, options.seconds);
    }
    let times = || -> std::io::Result<[Option<u64>; 2]> {
        let switch = options.switch_process.map(cpu::time_of_process);
        Ok([Some(cpu::time_of_thread()), switch.transpose()?])
    };
    let before = times()?;
    let notified = traffic.notifications();
    let outcome = traffic.run(Duration::from_secs_f64(options.seconds));
    let after = times()?;
    let notifications = traffic.notifications();
    let spent = |index: usize| Some(after[index]?.saturating_sub(before[index]?));
    println!(
        "{}",
        json!({
            "rate": outcome.flow.received as f64 / outcome.seconds,
            "seconds": outcome.seconds,
            "flow": outcome.flow,
            "latency_ns": {
                "samples": outcome.latencies.len(),
                "p50": outcome.latency(50.0),
                "p99": outcome.latency(99.0),
                "max": outcome.latency(100.0),
            },
            "cpu_ns": spent(0),
            "switch_cpu_ns": spent(1),
            "kicks": notifications[0] - notified[0],
            "calls": notifications[1] - notified[1],
            "round_trip_ns": round_trip,
        })
    );
    Ok(())
}

/// Prints the rates with and without a hostile guest on another port.
fn compare(traffic: &mut Traffic<AnyEndpoint>, port: &Path, seconds: f64) -> Result<(), Failure> {
    let mut hostile = Hostile::new(Peer::connect(port, Setup::SPLIT)?)?;
    let time = Duration::from_secs_f64(seconds / (2 * PAIRS) as f64);
    let comparison = hostile::compare(traffic, &mut hostile, time, PAIRS)?;
    println!("{}", serde_json::to_string(&comparison)?);
    Ok(())
}

fn endpoints(options: &Options) -> Result<[AnyEndpoint; 2], Failure> {
    match (options.kernel, &options.vde, &options.from, &options.to) {
        (Some(kernel), ..) => of_kernel(kernel),
        (_, Some(directory), ..) => {
            let own = |name: &str| directory.join(format!("{name}-{}", std::process::id()));
            let port = |name| VdeSocket::connect(directory, &own(name));
            Ok([port("a")?, port("b")?].map(AnyEndpoint::Vde))
        }
        (_, _, Some(from), Some(to)) => {
            let setup = Setup {
                is_packed: options.packed,
                size: options.queue,
                pairs: options.queues,
                ..Setup::SPLIT
            };
            let port = |path: &PathBuf| -> Result<AnyEndpoint, Failure> {
                let interface = path.to_str().and_then(|it| it.strip_prefix("interface:"));
                Ok(match interface {
                    Some(name) => AnyEndpoint::Packet(PacketSocket::open(name)?),
                    None => AnyEndpoint::Peer(Peer::connect(path, setup)?),
                })
            };
            Ok([port(from)?, port(to)?])
        }
        _ => Err("no endpoints: name two sockets".into()),
    }
}

fn of_kernel(kernel: Kernel) -> Result<[AnyEndpoint; 2], Failure> {
    Ok(match kernel {
        Kernel::Veth => {
            configure(&[
                "link add port-a type veth peer name port-b",
                "link set port-a up",
                "link set port-b up",
            ])?;
            let socket = |name| PacketSocket::open(name).map(AnyEndpoint::Packet);
            [socket("port-a")?, socket("port-b")?]
        }
        Kernel::Bridge => {
            let taps = [Tap::create("port-a")?, Tap::create("port-b")?];
            configure(&[
                "link add bridge type bridge",
                "link set port-a master bridge up",
                "link set port-b master bridge up",
                "link set bridge up",
            ])?;
            taps.map(AnyEndpoint::Tap)
        }
    })
}
