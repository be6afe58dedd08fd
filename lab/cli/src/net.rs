//! `trapline net`: measures rates and latencies of packets through forwarders.

use crate::args::{path, Format, NetArgs};
use crate::outcome;
use crate::session::{open_store, Session};
use rustix::thread::{sched_getaffinity, CpuSet};
use trapline_model::packets::PacketRequest;
use trapline_model::EnvironmentId;
use trapline_report::packets::Rates;
use trapline_report::Family;
use trapline_runner::{packets, Failure, Status};
use trapline_store::{Run, Store};

/// Name of the measurement, for messages.
const FAMILY: &str = "packets";

/// Measures, stores and prints.
///
/// # Errors
/// An option is invalid, a part is missing, the store cannot be written, or output cannot.
pub fn net(args: &NetArgs) -> Result<Status, Failure> {
    let paths = args.paths()?;
    let request = args.request(&paths, cpus(&args.cpus)?);
    let mut store = open_store(&args.run_options)?;
    let inventory = args.run_options.environment_options.inventory()?;
    let session = Session::open(&args.run_options, inventory)?;
    session.warn_of_load(&[EnvironmentId::HOST.into()], args.run_options.quiet);
    let run = packets::perform(&mut store, &request, &paths, None, &session.context())?;
    show(&run, &request, args.format.into(), &session)
}

/// Measures the packets of a plan file, and prints them.
///
/// # Errors
/// See [`net`]; also a format that packets do not have.
pub fn run_plan(
    store: &mut Store,
    request: PacketRequest,
    text: &str,
    session: &Session,
    format: Format,
) -> Result<Status, Failure> {
    let format = outcome::supported_by_family(FAMILY, format)?;
    let names = request.paths.iter();
    let paths = names.map(|name| path(name, &[]));
    let paths = paths.collect::<Result<Vec<_>, _>>()?;
    let request = PacketRequest {
        cpus: cpus(&[])?,
        ..request
    };
    let run = packets::perform(store, &request, &paths, Some(text), &session.context())?;
    show(&run, &request, format, session)
}

fn show(
    run: &Run,
    request: &PacketRequest,
    format: Format,
    session: &Session,
) -> Result<Status, Failure> {
    let rates = Rates::new(request, &run.trials);
    let status = if rates.is_good() {
        Status::Done
    } else {
        Status::Failed
    };
    outcome::print_family(&Family::Packets(rates), format)?;
    Ok(outcome::of_command(run, status, &session.interrupt))
}

/// Returns the CPU of the ports and that of the forwarder.
fn cpus(named: &[u32]) -> Result<[u32; 2], Failure> {
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
