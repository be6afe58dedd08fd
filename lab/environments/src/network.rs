//! The network of workload net: the agent starts a peer behind a tap, or another guest, and then the VMM.

use crate::vmm_command::image_command;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use trapline_abi::{net, Job, Workload};
use trapline_host::process::Command;
use trapline_host::{sha256_of_file, tool, Error, Facts, Part};
use trapline_model::layers::Hypervisor;
use trapline_model::{GuestConfig, GuestPath};
use trapline_sim::base::Base;
use trapline_sim::drivers::{self, Module};
use trapline_sim::initramfs::Archive;
use trapline_sim::script::Script;
use trapline_sim::settings::Settings;

/// Returns the modules of a network of this guest, which a distribution's kernel needs.
fn drivers_for(guest: &GuestConfig) -> &'static [&'static str] {
    match (guest.packets, guest.path) {
        (true, GuestPath::Bridge) => &["tun", "bridge"],
        (true, GuestPath::VhostNet) => &["tun", "bridge", "vhost_net"],
        _ if guest.network => &["tun"],
        _ => &[],
    }
}

/// Directory of these modules on a machine.
const PLACE: &str = "/trapline/peers";

/// Another guest, and the way to it.
pub struct Receiver {
    path: GuestPath,
    /// The switch, if that is the way.
    switch: PathBuf,
    guest: Command,
}

/// Memory of another image, in MiB.
const IMAGE_MIB: u32 = 64;

impl Receiver {
    /// Job of the other guest.
    pub const JOB: Job = Job {
        receiver: true,
        ..Job::EMPTY
    };

    /// Returns the other guest for `guest`, by the command of its VMM.
    pub fn new(switch: impl Into<PathBuf>, mut command: Command, guest: &GuestConfig) -> Self {
        // Its events are not those of the measured guest.
        let events = command.arguments.iter().position(|word| word == "--events");
        if let Some(index) = events {
            command.arguments.drain(index..index + 2);
        }
        Self {
            path: guest.path,
            switch: switch.into(),
            guest: command,
        }
    }

    /// Returns the same image in `trapline-vmm`.
    pub fn image(
        switch: impl Into<PathBuf>,
        vmm: impl Into<PathBuf>,
        hypervisor: Hypervisor,
        image: impl Into<OsString>,
        guest: &GuestConfig,
    ) -> Self {
        let guest = GuestConfig {
            memory_mib: IMAGE_MIB,
            ..*guest
        };
        let command = image_command(Command::new(vmm), hypervisor, image, &guest, &Self::JOB);
        Self::new(switch, command, &guest)
    }

    /// Returns the words by which the agent starts it.
    fn words(self) -> Vec<OsString> {
        let guest = self.guest;
        let count = (1 + guest.arguments.len()).to_string();
        let switch = (self.path == GuestPath::Switch).then_some(self.switch.into());
        let words = switch
            .into_iter()
            .chain([count.into(), guest.program.into()]);
        words.chain(guest.arguments).collect()
    }
}

/// Returns the switch, if guests with this configuration are connected by it.
///
/// # Errors
/// It is missing.
pub fn switch(settings: &Settings, guest: &GuestConfig) -> Result<Option<PathBuf>, Error> {
    let has_switch = guest.packets && guest.path == GuestPath::Switch;
    let switch = has_switch.then(|| settings.parts.get(Part::Switch));
    switch.transpose()
}

/// Returns the fact that identifies this switch.
///
/// # Errors
/// Its file cannot be read.
pub fn switch_facts(switch: Option<&Path>) -> Result<Facts, Error> {
    let hashes = switch
        .into_iter()
        .map(|file| Ok(("switch-sha256".to_owned(), sha256_of_file(file)?)));
    hashes.collect()
}

/// Returns a command of `trapline-vmm` with the devices of `cards`, and with a card to another guest: `agent` starts what is on
/// their other sides, and executes the VMM.
pub fn with_peers(
    vmm: Command,
    agent: impl Into<PathBuf>,
    cards: &GuestConfig,
    receiver: Option<Receiver>,
) -> Command {
    let [tap, vsock] = [(cards.network, "tap"), (cards.vsock, "vsock")]
        .map(|(is_needed, kind)| is_needed.then_some(kind));
    let path = receiver.as_ref().map(|it| it.path.name());
    let kinds: Vec<_> = tap.into_iter().chain(vsock).chain(path).collect();
    if kinds.is_empty() {
        return vmm;
    }
    let mut command = vmm;
    let program = std::mem::replace(&mut command.program, agent.into());
    let mut words = vec![format!("trapline.peer={}", kinds.join(",")).into()];
    words.extend(receiver.map(Receiver::words).unwrap_or_default());
    words.push(program.into_os_string());
    command.arguments.splice(..0, words);
    command
}

/// Returns the job of a Linux guest, which has a device for its peer if it exchanges bytes with one.
pub fn job_with_card(job: &Job) -> Job {
    Job {
        card: job
            .run
            .intersects(net::operations() | net::vsock_operations()),
        ..*job
    }
}

/// Returns the machine of guests with this configuration. With a network, it runs long enough for its kernel to
/// draw random numbers anew.
pub fn random_state(base: Base, guest: &GuestConfig) -> Base {
    Base {
        random_state: base.random_state || guest.network || guest.packets,
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

/// Modules that a machine needs for peers of its guests, or of its own programs.
#[derive(Default)]
pub struct PeerDrivers(Vec<Module>);

impl PeerDrivers {
    /// Returns that of the transport of vsock over loopback, if a program with this configuration connects by it.
    ///
    /// # Errors
    /// It is missing.
    pub fn for_loopback(settings: &Settings, guest: &GuestConfig) -> Result<Self, Error> {
        if guest.vsock {
            drivers::chosen(settings, &["vsock_loopback"]).map(Self)
        } else {
            Ok(Self::default())
        }
    }

    /// Returns those for guests with this configuration.
    ///
    /// # Errors
    /// One is missing.
    pub fn new(settings: &Settings, guest: &GuestConfig) -> Result<Self, Error> {
        match drivers_for(guest) {
            [] => Ok(Self::default()),
            names => drivers::chosen(settings, names).map(Self),
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
        if job.run.intersects(Workload::Net.set()) {
            self.load_all(script);
        }
    }

    /// Loads them.
    pub fn load_all(&self, script: &mut Script) {
        for module in &self.0 {
            script.module(&Self::path(module), "");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_is_started_before_the_vmm_if_a_network_is_measured() {
        let vmm = || Command::new("/vmm").words("--image k");
        let with_tap = GuestConfig {
            network: true,
            ..GuestConfig::DEFAULT
        };
        let command = with_peers(vmm(), "/agent", &with_tap, None);
        assert_eq!(command.program, PathBuf::from("/agent"));
        let words = ["trapline.peer=tap", "/vmm", "--image", "k"];
        assert_eq!(command.arguments, words);
        let without = with_peers(vmm(), "/agent", &GuestConfig::DEFAULT, None);
        assert_eq!(without.program, PathBuf::from("/vmm"));
        let job = Job {
            run: net::operations(),
            ..Job::EMPTY
        };
        assert!(job_with_card(&job).card && !job_with_card(&Job::EMPTY).card);
    }

    #[test]
    fn receiver_has_no_events_of_the_measured_guest() {
        let hypervisor = Hypervisor::Kvm;
        let receiver = Receiver::image("/switch", "/vmm", hypervisor, "k", &GuestConfig::DEFAULT);
        let command = Command::new("/vmm").words("--image k");
        let command = with_peers(command, "/agent", &GuestConfig::DEFAULT, Some(receiver));
        let words: Vec<_> = command
            .arguments
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        assert_eq!(
            words[..4],
            ["trapline.peer=switch", "/switch", &words[2], "/vmm"]
        );
        let count: usize = words[2].parse().unwrap();
        let (receiver, measured) = words[3..].split_at(count);
        assert_eq!(measured, ["/vmm", "--image", "k"]);
        assert!(
            receiver.last().unwrap().contains("trapline.receiver"),
            "{receiver:?}"
        );
        assert!(
            receiver.iter().all(|word| word != "--events"),
            "{receiver:?}"
        );
    }
}
