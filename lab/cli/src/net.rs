//! `trapline net`: measures rates and latencies of packets through forwarders.

use crate::args::NetArgs;
use crate::run;
use crate::session::{open_store, Session};
use rustix::thread::{sched_getaffinity, CpuSet};
use trapline_model::{packets, EnvironmentId, Request};
use trapline_runner::run::perform;
use trapline_runner::{BootOptions, Failure, Status};

/// Measures, stores and prints.
///
/// # Errors
/// An option is invalid, a part is missing, the store cannot be written, or output cannot.
pub fn net(args: &NetArgs) -> Result<Status, Failure> {
    let request = args.request()?;
    let request = Request {
        packets: packets::Settings {
            cpus: cpus(&args.cpus)?,
            ..request.packets
        },
        ..request
    };
    let mut store = open_store(&args.run_options)?;
    let inventory = args.run_options.environment_options.inventory()?;
    let session = Session::open(&args.run_options, inventory)?;
    session.warn_of_load(&[EnvironmentId::HOST.into()], args.run_options.quiet);
    let request = Request {
        ready: session.inventory.ready(&request.configs, &request.long),
        ..request
    };
    let options = BootOptions::default();
    let run = perform(&mut store, &request, &session.context(), &options)?;
    run::finish(
        &args.output,
        &args.run_options.store,
        &mut store,
        &run,
        &session.interrupt,
    )
}

/// Returns the CPU of the ports and that of the forwarder.
///
/// # Errors
/// This process may not use both.
pub fn cpus(named: &[u32]) -> Result<[u32; 2], Failure> {
    let affinity = sched_getaffinity(None).map_err(|error| Failure::from_error(&error))?;
    let all = 0..CpuSet::MAX_CPU as u32;
    let usable: Vec<u32> = all.filter(|cpu| affinity.is_set(*cpu as usize)).collect();
    match (named, usable.as_slice()) {
        ([], [.., forwarder, ports]) => Ok([*ports, *forwarder]),
        ([], _) => Err(Failure::usage(
            "net needs two CPUs, and this process may use one",
            "allow more, as with 'taskset -c 0,1'",
        )),
        ([ports, forwarder], _)
            if ports != forwarder && named.iter().all(|cpu| usable.contains(cpu)) =>
        {
            Ok([*ports, *forwarder])
        }
        _ => Err(Failure::usage(
            format!("--cpus: expected two of the CPUs of this process, not {named:?}"),
            format!("name two of {usable:?}, as --cpus 1,0"),
        )),
    }
}
