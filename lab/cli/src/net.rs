//! `trapline net`: measures rates and latencies of packets through forwarders.

use crate::args::{EnvironmentOptions, NetArgs};
use crate::run;
use crate::session::{open_store, Session};
use trapline_model::{packets, EnvironmentId, Request};
use trapline_runner::{packet_cpus, Failure, Status};

/// Measures, stores and prints.
///
/// # Errors
/// An option is invalid, a part is missing, the store cannot be written, or output cannot.
pub fn net(args: &NetArgs) -> Result<Status, Failure> {
    let request = args.request()?;
    let request = Request {
        packets: packets::Settings {
            cpus: packet_cpus(&args.cpus)?,
            ..request.packets
        },
        ..request
    };
    let mut store = open_store(&args.run_options)?;
    let inventory = EnvironmentOptions::default().inventory()?;
    let session = Session::open(&args.run_options, inventory)?;
    session.warn_of_load(&[EnvironmentId::HOST.into()], args.run_options.quiet);
    let request = Request {
        ready: session.inventory.ready(&request.configs, &request.long),
        ..request
    };
    run::measure(
        &request,
        &mut store,
        &session,
        &args.output,
        &args.run_options.store,
    )
}
