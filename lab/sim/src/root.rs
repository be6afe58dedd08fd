//! The initramfs of a machine with Linux: agent, kernel modules, and the script of its init.

use crate::initramfs::{add_program, Archive};
use crate::lengths;
use crate::module::Module;
use crate::script::Script;
use crate::settings::Settings;
use crate::{AGENT, SYMBOLS};
use trapline_host::{Error, Part};

/// File that contains the clock source in use.
const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Clock source that Linux uses in the end, for which its init waits: in the first second Linux calibrates
/// its clock, and its timers have the resolution of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockSource {
    /// The time stamp counter, on a machine.
    Tsc,
    /// The clock that KVM offers to guests.
    Kvm,
}

impl ClockSource {
    /// Name in Linux.
    const fn name(self) -> &'static str {
        match self {
            Self::Tsc => "tsc",
            Self::Kvm => "kvm-clock",
        }
    }
}

/// Adds files to a machine, and commands to the script that makes it ready.
pub type Fill<'a> = &'a mut dyn FnMut(&mut Archive, &mut Script) -> Result<(), Error>;

/// Returns the initramfs of a machine, or of a guest that hosts guests, with `modules` and the files of
/// `fill`.
///
/// # Errors
/// A file cannot be read.
pub fn archive(
    settings: &Settings,
    clock: ClockSource,
    modules: &[Module],
    fill: Fill<'_>,
) -> Result<Archive, Error> {
    let mut archive = Archive::default();
    let mut script = Script::default();
    for directory in ["dev", "proc", "sys", "tmp"] {
        archive.directory(directory);
    }
    add_program(&mut archive, AGENT, &settings.parts.get(Part::Agent)?)?;
    add_program(&mut archive, SYMBOLS, &settings.parts.get(Part::Symbols)?)?;
    script.wait(CLOCKSOURCE, clock.name());
    for module in modules {
        let path = format!("/trapline/{}.ko", module.name);
        script.module(&path, module.options);
        script.lengths_of_module(&module.name, &lengths::calls_of_module(&module.bytes));
        archive.file(&path, module.bytes.clone());
    }
    fill(&mut archive, &mut script)?;
    archive.file("/trapline/script", script.text().as_bytes().to_vec());
    Ok(archive)
}
