//! A kernel that is built on the simulated machine: by its Linux itself, or in a guest.

use super::base::Base;
use super::kernel::Maker;
use super::linux::Contents;
use super::machine::Machine;
use super::programs::run_script;
use super::script::Script;
use super::{inner, AGENT};
use crate::environment::{Facts, Watch};
use crate::error::EnvError;
use crate::process::Command;
use crate::settings::Settings;
use trapline_abi::Job;
use trapline_model::{EnvironmentId, MachineSpec};

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
    machine: &MachineSpec,
    job: &Job,
    watch: &Watch,
) -> Result<(Vec<u8>, Facts), EnvError> {
    let guest: Option<Box<dyn Contents>> = match environment {
        EnvironmentId::SimLinux => None,
        EnvironmentId::SimKvmLinux => Some(Box::new(inner::of_our_vmm(settings, machine)?)),
        EnvironmentId::SimQemuKvmLinux => Some(Box::new(inner::of_qemu(settings, machine)?)),
        other => {
            return Err(EnvError::Missing(format!(
                "{other} has no Linux of its own"
            )))
        }
    };
    let base = match &guest {
        Some(guest) => guest.base(settings, Maker::Amd)?,
        None => Base::linux(settings, Maker::Amd)?,
    };
    let whole = Machine::new(
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
                .try_for_each(|root| super::add_as(archive, ROOT, root)),
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
    let (outputs, _) = run_script(&whole, &script, 1, watch)?;
    let outputs = outputs.into_iter().next();
    let output = outputs.ok_or_else(|| EnvError::Machine("it built nothing".to_owned()))?;
    Ok((output.console, facts))
}

/// The agent as a process of the machine's Linux.
fn command(job: &Job) -> Command {
    Command::new(AGENT)
        .arg(format!("trapline.build={}", job.build))
        .arg(format!("trapline.root={ROOT}"))
}
