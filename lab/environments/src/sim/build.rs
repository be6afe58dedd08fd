//! A kernel that is built on the simulated machine: by its Linux itself, or in a guest.

use super::inner::InnerLinux;
use super::linux::Contents;
use trapline_abi::Job;
use trapline_host::process::Command;
use trapline_host::{Error, Facts, Limits};
use trapline_model::{EnvironmentId, GuestConfig};
use trapline_sim::base::Base;
use trapline_sim::initramfs::add_as;
use trapline_sim::kernel::Maker;
use trapline_sim::machine::SimMachine;
use trapline_sim::programs::run_script;
use trapline_sim::script::Script;
use trapline_sim::settings::Settings;
use trapline_sim::AGENT;

/// Where the machine's Linux has the archive of the root in which it builds.
const ROOT: &str = "/trapline/root.cpio";

/// Lets the Linux of an environment do `job` in the root that `settings` name; what it
/// said, and what is known about the machine.
///
/// # Errors
/// There is no such Linux, or the machine did not end well.
pub fn build(
    settings: &Settings,
    environment: EnvironmentId,
    machine: &GuestConfig,
    job: &Job,
    limits: &Limits,
) -> Result<(Vec<u8>, Facts), Error> {
    let level = environment.stack().innermost();
    let guest = level.map(|level| InnerLinux::of(level, settings, machine));
    let guest = guest.transpose()?;
    let base = match &guest {
        Some(guest) => guest.base(settings, Maker::Amd)?,
        None => Base::linux(settings, Maker::Amd)?,
    };
    let whole = SimMachine::new(
        settings,
        base,
        machine.memory_mib,
        &mut |archive, script| match &guest {
            Some(guest) => {
                guest.prepare(script);
                guest.add_to(archive)
            }
            None => settings
                .root
                .iter()
                .try_for_each(|root| add_as(archive, ROOT, root)),
        },
    )?;
    let mut script = Script::default();
    match &guest {
        Some(guest) => guest.launch(&mut script, job),
        None => script.launch(&command(job), false),
    }
    let mut facts = match &guest {
        Some(guest) => guest.facts()?,
        None => Facts::new(),
    };
    facts.extend(whole.known());
    let (outputs, _) = run_script(&whole, &script, 1, limits)?;
    let outputs = outputs.into_iter().next();
    let output = outputs.ok_or_else(|| Error::Machine("it built nothing".to_owned()))?;
    Ok((output.console, facts))
}

/// The agent as a process of the machine's Linux.
fn command(job: &Job) -> Command {
    Command::new(AGENT)
        .arg(format!("trapline.build={}", job.build))
        .arg(format!("trapline.root={ROOT}"))
}
