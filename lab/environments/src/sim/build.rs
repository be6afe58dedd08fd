//! Kernel builds on the simulated machine: in its Linux, or in a Linux guest.

use super::contents::Contents;
use super::inner::InnerLinux;
use super::machine_guest::tuned;
use super::nova;
use crate::linux_guest::isolation_option;
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

/// Archive of the build root on the machine.
const ROOT: &str = "/trapline/root.cpio";

/// Runs the build `job` in the root of `settings` in the Linux of an environment. Returns its console output,
/// and facts about the machine.
///
/// # Errors
/// A requirement is missing, or the machine failed.
pub fn build(
    settings: &Settings,
    environment: EnvironmentId,
    config: &GuestConfig,
    job: &Job,
    limits: &Limits,
) -> Result<(Vec<u8>, Facts), Error> {
    if environment.is_nova() {
        return nova::build(settings, config, job, limits);
    }
    let level = environment.stack().innermost();
    let guest = level.map(|level| InnerLinux::new(level, settings, config));
    let guest = guest.transpose()?;
    let base = match &guest {
        Some(guest) => guest.base(settings, Maker::Amd)?,
        None => {
            let option = isolation_option(config.isolation);
            Base::linux(settings, Maker::Amd)?.with_option(option)
        }
    };
    let base = tuned(base, config);
    let machine =
        SimMachine::new(
            settings,
            base,
            config.memory_mib,
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
    facts.extend(machine.known());
    let (outputs, _) = run_script(&machine, &script, 1, limits)?;
    let outputs = outputs.into_iter().next();
    let output = outputs.ok_or_else(|| Error::Machine("the build did not start".to_owned()))?;
    Ok((output.console, facts))
}

/// Returns the command of the agent in the machine's Linux.
fn command(job: &Job) -> Command {
    Command::new(AGENT)
        .arg(format!("trapline.build={}", job.build))
        .arg(format!("trapline.root={ROOT}"))
}
