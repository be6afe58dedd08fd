//! Options that apply to one backend.

use super::SerialMode;
use super::{Backend, EntryMode, Guest, MemoryKind, VmConfig};
use crate::net::Spec;
use crate::Failure;
use trapline_interface::Pages;
use trapline_process::{Config, Crossing};

impl VmConfig {
    /// Returns the option that a guest that is a process does not support.
    fn process_conflict(&self) -> Option<&'static str> {
        let conflicts = [
            (self.guest == Guest::Linux, "--kernel"),
            (self.ring == Some(0), "--ring 0"),
            (self.entry == EntryMode::Pvh, "--entry pvh"),
            (
                self.pages == MemoryKind::Private(Pages::Small),
                "--pages 4k",
            ),
            (self.pages == MemoryKind::Private(Pages::Huge), "--pages 2m"),
            (self.populate.is_some(), "--populate"),
            (self.cpus > 1, "--cpus"),
            (
                !self.disks.is_empty() && (self.user.is_some() || self.chroot.is_some()),
                "--disk with --user or --chroot",
            ),
        ];
        let found = conflicts.into_iter().find(|(applies, _)| *applies);
        found.map(|(_, option)| option)
    }

    /// Returns the option that a local APIC in this VMM does not support: interrupts of other threads, and a guest that
    /// has none.
    fn user_apic_conflict(&self) -> Option<&'static str> {
        let conflicts = [
            (self.guest == Guest::Linux, "--kernel"),
            (self.ring == Some(3), "--ring 3"),
            (self.halt_in_guest, "--halt-in-guest"),
            (self.cpus > 1, "--cpus"),
            (self.ticker, "--ticker"),
            (!self.disks.is_empty(), "--disk"),
            (!self.net.is_empty(), "--net"),
            (self.entropy, "--entropy"),
            (self.populate.is_some(), "--populate"),
            (self.serial == SerialMode::Buffered, "--serial buffered"),
        ];
        let found = conflicts.into_iter().find(|(applies, _)| *applies);
        found.map(|(_, option)| option)
    }

    /// Returns the first option that a domain of Xen does not support: the toolstack configures it.
    fn xen_conflict(&self) -> Option<&'static str> {
        let conflicts = [
            (self.guest == Guest::Linux, "--kernel"),
            (self.domain.is_none(), "--image"),
            (!self.command_line.is_empty(), "--cmdline"),
            (self.ring.is_some(), "--ring"),
            (self.entry != EntryMode::Auto, "--entry"),
            (self.pages != MemoryKind::Auto, "--pages"),
            (self.prefault.is_some(), "--prefault"),
            (self.populate.is_some(), "--populate"),
            (self.halt_in_guest, "--halt-in-guest"),
            (self.cpus > 1, "--cpus"),
            (!self.disks.is_empty(), "--disk"),
            (self.entropy, "--entropy"),
            (
                self.net.iter().any(Spec::is_external),
                "--net with vhost-user or vhost=on",
            ),
        ];
        let found = conflicts.into_iter().find(|(applies, _)| *applies);
        found.map(|(_, option)| option)
    }

    /// Returns the first option that needs a guest that is a process.
    fn process_option(&self) -> Option<&'static str> {
        let Config {
            crossing,
            spaces,
            switch,
            batching,
            copies_state,
        } = Config::from(Crossing::Auto);
        let conflicts = [
            (self.process.crossing != crossing, "--crossing"),
            (self.process.spaces != spaces, "--spaces"),
            (self.process.switch != switch, "--switch"),
            (self.process.batching != batching, "--batching"),
            (self.process.copies_state != copies_state, "--state"),
        ];
        let found = conflicts.into_iter().find(|(applies, _)| *applies);
        found.map(|(_, option)| option)
    }

    /// Rejects options that do not apply to the backend.
    pub(super) fn check_backend(&self) -> Result<(), Failure> {
        let domain = self.domain.map(|_| "--domain");
        let conflict = match self.backend {
            Backend::Process | Backend::Kvm | Backend::KvmUserApic if domain.is_some() => {
                (domain, "xen")
            }
            Backend::Process => (self.process_conflict(), "kvm"),
            Backend::Kvm => (self.process_option(), "process"),
            Backend::KvmUserApic => {
                let option = self.user_apic_conflict();
                let process = self.process_option();
                process.map_or((option, "kvm"), |option| (Some(option), "process"))
            }
            Backend::Xen => (self.xen_conflict(), "kvm"),
        };
        match conflict {
            (Some(option), backend) => Err(Failure::Usage(format!(
                "{option} requires --backend {backend}"
            ))),
            (None, _) => Ok(()),
        }
    }
}
