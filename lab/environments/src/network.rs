//! The network of workload net: the agent starts a peer behind a tap, and then the VMM.

use std::path::PathBuf;
use trapline_abi::{net, Job};
use trapline_host::process::Command;
use trapline_host::{tool, Error, Part};
use trapline_model::GuestConfig;
use trapline_sim::base::Base;
use trapline_sim::drivers::{self, Module};
use trapline_sim::initramfs::Archive;
use trapline_sim::script::Script;
use trapline_sim::settings::Settings;

/// Modules of taps, which a distribution's kernel needs.
const DRIVERS: [&str; 1] = ["tun"];

/// Directory of these modules on a machine.
const PLACE: &str = "/trapline/taps";

/// Returns whether `job` measures a network.
pub fn is_measured(job: &Job) -> bool {
    job.run & net::operations() != 0
}

/// Returns a command of `trapline-vmm`, which `job` needs a peer for or not: `agent` starts the peer, and
/// executes the VMM with its tap.
pub fn with_peer(vmm: Command, agent: impl Into<PathBuf>, job: &Job) -> Command {
    if !is_measured(job) {
        return vmm;
    }
    let mut command = vmm;
    let program = std::mem::replace(&mut command.program, agent.into());
    let words = ["trapline.peer=tap".into(), program.into_os_string()];
    command.arguments.splice(..0, words);
    command
}

/// Returns the job of a guest with a network card.
pub fn job_with_card(job: &Job) -> Job {
    Job {
        card: is_measured(job),
        ..*job
    }
}

/// Returns the machine of guests with this configuration. With a network, it runs long enough for its kernel to
/// draw random numbers anew.
pub fn random_state(base: Base, guest: &GuestConfig) -> Base {
    Base {
        random_state: base.random_state || guest.network,
        ..base
    }
}

/// Checks that this host can have a tap with a peer.
///
/// # Errors
/// The reason why not, with the remedy.
pub fn check_taps(settings: &Settings) -> Result<(), Error> {
    let agent = settings.parts.get(Part::Agent)?;
    let checked = tool::output(std::process::Command::new(agent).arg("trapline.peer=check"))?;
    if checked.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&checked.stderr);
    let text = text.trim();
    let text = text.strip_prefix("trapline-agent: ").unwrap_or(text);
    Err(match text.split_once("\nhelp: ") {
        Some((reason, remedy)) => Error::missing(reason, remedy),
        None => Error::unavailable(text),
    })
}

/// Modules that a machine needs for taps.
#[derive(Default)]
pub struct TapDrivers(Vec<Module>);

impl TapDrivers {
    /// Returns those for guests with this configuration: none without a network.
    ///
    /// # Errors
    /// One is missing.
    pub fn new(settings: &Settings, guest: &GuestConfig) -> Result<Self, Error> {
        match guest.network {
            false => Ok(Self::default()),
            true => drivers::chosen(settings, &DRIVERS).map(Self),
        }
    }

    fn path(module: &Module) -> String {
        format!("{PLACE}/{}.ko", module.name)
    }

    /// Adds their files.
    pub fn add_to(&self, archive: &mut Archive) {
        for module in &self.0 {
            archive.file(Self::path(module), module.bytes.clone());
        }
    }

    /// Loads them before the launch of `job`, if it measures a network.
    pub fn load(&self, script: &mut Script, job: &Job) {
        let modules = self.0.iter().filter(|_| is_measured(job));
        modules.for_each(|module| script.module(&Self::path(module), ""));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_is_started_before_the_vmm_if_a_network_is_measured() {
        let vmm = || Command::new("/vmm").words("--image k");
        let job = Job {
            run: net::operations(),
            ..Job::EMPTY
        };
        let command = with_peer(vmm(), "/agent", &job);
        assert_eq!(command.program, PathBuf::from("/agent"));
        let words = ["trapline.peer=tap", "/vmm", "--image", "k"];
        assert_eq!(command.arguments, words);
        let without = with_peer(vmm(), "/agent", &Job::EMPTY);
        assert_eq!(without.program, PathBuf::from("/vmm"));
        assert!(job_with_card(&job).card && !job_with_card(&Job::EMPTY).card);
    }
}
