//! The initramfs of a machine with Linux: agent, kernel modules, and the script of its init.

use crate::initramfs::{add_program, Archive};
use crate::lengths;
use crate::module::Module;
use crate::platform::Platform;
use crate::script::Script;
use crate::settings::Settings;
use crate::{AGENT, SYMBOLS};
use trapline_host::Error;

/// File that contains the clock source in use.
const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// The clock that KVM offers to guests as the source of Linux's clock.
pub const KVM_CLOCK: &str = "kvm-clock";

/// Adds files to a machine, and commands to the script that makes it ready.
pub type Fill<'a> = &'a mut dyn FnMut(&mut Archive, &mut Script) -> Result<(), Error>;

/// Returns the initramfs of a machine, or of a guest on one that hosts guests, with `modules` and the files of
/// `fill`. Its init waits for the clock source that Linux uses in the end, that of the machine or `clock`: in the first second
/// Linux calibrates its clock, and its timers have the resolution of a tick.
///
/// # Errors
/// A file cannot be read.
pub fn archive(
    settings: &Settings,
    platform: &Platform,
    clock: Option<&str>,
    modules: &[Module],
    fill: Fill<'_>,
) -> Result<Archive, Error> {
    let mut archive = Archive::default();
    let mut script = Script::default();
    for directory in ["dev", "proc", "sys", "tmp"] {
        archive.directory(directory);
    }
    for (place, part) in [AGENT, SYMBOLS].into_iter().zip(platform.parts) {
        add_program(&mut archive, place, &settings.parts.get(part)?)?;
    }
    script.wait(CLOCKSOURCE, clock.unwrap_or(platform.clock_source));
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
