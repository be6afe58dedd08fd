//! Where code lies on a simulated machine: asked of a machine of its own, so that
//! the one that is measured is not disturbed. Without randomness both have
//! everything at the same addresses. What was heard is kept in the cache, under
//! the hash of all that the machine was made of.

use super::initramfs::Archive;
use super::linux::{self, Prepared};
use super::listener::MachineEar;
use super::programs::{Output, Outputs};
use super::script::Script;
use super::{closure, AGENT};
use crate::environment::Watch;
use crate::error::EnvError;
use crate::parts::Part;
use crate::process::{Command, Running};
use crate::qemu::Qemu;
use crate::settings::Settings;
use std::fs;
use std::path::{Path, PathBuf};
use trapline_plan::EnvironmentId;

/// Where code lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Located {
    /// Code symbols of the kernel and its modules, as `/proc/kallsyms` lists them.
    pub kernel: String,
    /// What the program that runs guests has mapped, as `/proc/PID/maps` lists it;
    /// empty where its file alone says where it is.
    pub program: String,
}

/// The program, on the machine, that looks.
const LOOKER: &str = "/trapline/symbols";

/// Separates the two parts in the cache.
const SEPARATOR: &str = "\n----\n";

/// Where code lies on the machine of `environment`.
///
/// # Errors
/// Something is missing, or the machine did not end well.
pub fn locate(
    settings: &Settings,
    environment: EnvironmentId,
    watch: &Watch,
) -> Result<Located, EnvError> {
    let program = observed(settings, environment)?;
    let prepared = linux::prepare(settings, 0, &mut |archive, script| {
        fill(settings, program.as_ref(), archive, script)
    })?;
    let kept = settings.cache.join("symbols").join(prepared.key());
    if let Some(located) = read(&kept) {
        return Ok(located);
    }
    let located = ask(&prepared, 1 + usize::from(program.is_some()), watch)?;
    keep(&kept, &located)?;
    Ok(located)
}

/// The program whose place depends on who loads it.
fn observed(settings: &Settings, environment: EnvironmentId) -> Result<Option<Command>, EnvError> {
    Ok(match environment {
        EnvironmentId::SimLinux => Some(Command::new(AGENT).words("trapline.run=basic")),
        EnvironmentId::SimQemuKvm => {
            let qemu = Qemu::find(settings.qemu.as_deref())?;
            let words = "-M none -nodefaults -no-user-config -display none";
            Some(Command::new(qemu.program).words(words))
        }
        _ => None,
    })
}

fn fill(
    settings: &Settings,
    program: Option<&Command>,
    archive: &mut Archive,
    script: &mut Script,
) -> Result<(), EnvError> {
    super::add_as(archive, LOOKER, &settings.parts.get(Part::Symbols)?)?;
    script.launch(&Command::new(LOOKER), false);
    if let Some(program) = program {
        if program.program != Path::new(AGENT) {
            closure::add(archive, &program.program)?;
        }
        let look = Command::new(LOOKER).arg(&program.program);
        let words = program.arguments.iter().cloned();
        script.launch(&words.fold(look, Command::arg), false);
    }
    Ok(())
}

fn ask(prepared: &Prepared, expected: usize, watch: &Watch) -> Result<Located, EnvError> {
    let mut running = Running::start(&prepared.command)?;
    let mut ear = MachineEar::new(Outputs::of(expected));
    let heard = running.hear(&mut ear, watch);
    let (outputs, _, judged) = ear.finish(heard);
    judged?;
    let mut texts = outputs.into_finished().into_iter().map(text);
    Ok(Located {
        kernel: texts.next().transpose()?.unwrap_or_default(),
        program: texts.next().transpose()?.unwrap_or_default(),
    })
}

fn text(output: Output) -> Result<String, EnvError> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.console).into_owned());
    }
    let words = String::from_utf8_lossy(&output.errors).trim().to_owned();
    Err(EnvError::Machine(format!(
        "its symbols cannot be had: {words}"
    )))
}

fn read(kept: &Path) -> Option<Located> {
    let text = fs::read_to_string(kept).ok()?;
    let (kernel, program) = text.split_once(SEPARATOR)?;
    Some(Located {
        kernel: kernel.to_owned(),
        program: program.to_owned(),
    })
}

/// It appears in its place complete or not at all.
fn keep(kept: &Path, located: &Located) -> Result<(), EnvError> {
    let directory = kept.parent().map_or_else(PathBuf::new, Path::to_owned);
    fs::create_dir_all(&directory).map_err(EnvError::file(&directory))?;
    let text = [&located.kernel, SEPARATOR, &located.program].concat();
    let mut file = tempfile::NamedTempFile::new_in(&directory).map_err(EnvError::file(kept))?;
    std::io::Write::write_all(&mut file, text.as_bytes()).map_err(EnvError::file(kept))?;
    let persisted = file.persist(kept).map_err(|error| error.error);
    persisted.map(drop).map_err(EnvError::file(kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_found_again() {
        let cache = tempfile::tempdir().unwrap();
        let kept = cache.path().join("symbols/abc");
        assert_eq!(read(&kept), None);
        let located = Located {
            kernel: "ffffffff81000000 T _text\n".to_owned(),
            program: String::new(),
        };
        keep(&kept, &located).unwrap();
        assert_eq!(read(&kept), Some(located));
        fs::write(&kept, "half").unwrap();
        assert_eq!(read(&kept), None);
    }
}
