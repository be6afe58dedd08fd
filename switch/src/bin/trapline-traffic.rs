//! `trapline-traffic`: frames between two ports of a switch, counted and checked.

use clap::Parser;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use trapline_switch::cpu;
use trapline_switch::driver::traffic::Traffic;
use trapline_switch::driver::Setup;

/// Sends numbered frames through two ports of a vhost-user switch, and prints rate and loss as JSON.
#[derive(Parser)]
struct Options {
    /// Socket of the port that sends
    from: PathBuf,
    /// Socket of the port that receives
    to: PathBuf,
    /// Bytes of a frame, without its checksum
    #[arg(long, default_value_t = 60)]
    size: usize,
    /// Time to measure, in seconds
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Descriptors of each queue
    #[arg(long, default_value_t = 256)]
    queue: u16,
    /// Packed queues
    #[arg(long)]
    packed: bool,
    /// Last byte of the sender's address; the receiver has the next one
    #[arg(long, default_value_t = 1)]
    station: u8,
    /// Both ports send
    #[arg(long)]
    both: bool,
    /// CPU of the thread
    #[arg(long)]
    cpu: Option<usize>,
    /// CPU of the switch: measure the round trip of a cache line to it first
    #[arg(long, requires = "cpu")]
    switch_cpu: Option<usize>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trapline-traffic: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    if !options.queue.is_power_of_two() || !(60..=1514).contains(&options.size) {
        return Err("the queue has a power of two of descriptors, a frame 60 to 1514 bytes".into());
    }
    let cpus = options.cpu.zip(options.switch_cpu);
    let round_trip = cpus.map(|(own, other)| cpu::round_trip([own, other]));
    let round_trip = round_trip.transpose()?;
    if let Some(cpu) = options.cpu {
        cpu::pin(cpu)?;
    }
    let setup = Setup {
        is_packed: options.packed,
        size: options.queue,
        is_mergeable: false,
    };
    let paths = [options.from.as_path(), options.to.as_path()];
    let mut traffic = Traffic::connect(paths, setup, options.size, options.both, options.station)?;
    traffic.run(Duration::from_millis(200));
    let (flow, seconds) = traffic.run(Duration::from_secs_f64(options.seconds));
    let rate = flow.received as f64 / seconds;
    println!(
        "{}",
        json!({ "rate": rate, "round_trip_ns": round_trip, "seconds": seconds, "flow": flow })
    );
    Ok(())
}
