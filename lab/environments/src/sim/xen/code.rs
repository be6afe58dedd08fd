//! What is executed on a machine with Xen besides the image, in files from which names
//! of code can be read.

use super::packages::{self, Xen, DEVICE_MODEL, PROGRAMS};
use crate::error::EnvError;
use crate::settings::Settings;
use crate::sim::closure::LOADER;
use crate::sim::kernel::KernelError;
use std::path::PathBuf;

/// The files of a machine with Xen.
#[derive(Debug)]
pub struct Code {
    /// The hypervisor as it is booted, without names.
    pub hypervisor: PathBuf,
    /// The same with names, or why there are none.
    pub named: Result<PathBuf, KernelError>,
    /// Programs and libraries of the first domain.
    pub programs: Vec<PathBuf>,
}

/// The files of the machine that these settings give.
///
/// # Errors
/// There is no Xen, or it is not whole.
pub fn code(settings: &Settings) -> Result<Code, EnvError> {
    let xen = Xen::fetched(&settings.cache)?;
    let all = PROGRAMS.into_iter().chain([DEVICE_MODEL]);
    let here: Vec<_> = all.filter(|name| xen.program(name).is_file()).collect();
    let libraries = packages::libraries(&xen, &here, LOADER)?;
    let programs = here.iter().map(|name| xen.program(name));
    Ok(Code {
        hypervisor: xen.hypervisor(),
        named: xen.with_names(),
        programs: programs.chain(libraries).collect(),
    })
}
