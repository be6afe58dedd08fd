//! Where code lies on a simulated machine: asked of another of the same kind, so that
//! the one that is measured is not disturbed. Without randomness both have
//! everything at the same addresses. What was heard is kept in the cache, under
//! the hash of all that the machine was made of.

use super::linux::{self, Contents};
use crate::bochs::LinuxMachine;
use std::fs;
use std::path::{Path, PathBuf};
use trapline_host::cache::{Kind, INCOMPLETE};
use trapline_host::process::Command;
use trapline_host::{Error, GuestImage, Limits};
use trapline_model::{Clock, EnvironmentId, GuestConfig};
use trapline_sim::machine::SimMachine;
use trapline_sim::nested;
use trapline_sim::programs::{run_script, Output, Outputs};
use trapline_sim::script::Script;
use trapline_sim::settings::Settings;
use trapline_sim::SYMBOLS;

/// Where code lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Located {
    /// Code symbols of the kernel and its modules, as `/proc/kallsyms` lists them.
    pub kernel: String,
    /// What the program that runs guests has mapped, as `/proc/PID/maps` lists it;
    /// empty where its file alone says where it is.
    pub program: String,
    /// Code symbols of the kernels of guests that host guests, outermost first.
    pub nested_kernels: Vec<String>,
}

/// Separates the parts in the cache.
const SEPARATOR: &str = "\n----\n";

/// Where code lies on the machine of `environment` whose guests get `machine`.
///
/// # Errors
/// Something is missing, or the machine did not end well.
pub fn locate(
    settings: &Settings,
    environment: EnvironmentId,
    image: &GuestImage,
    machine: &GuestConfig,
    limits: &Limits,
) -> Result<Located, Error> {
    let contents = super::contents(&environment.stack(), settings, image, machine)?;
    if environment.clock() == Clock::InsnVmx {
        let (script, expected) = questions(contents.as_ref());
        let machine = LinuxMachine::new(settings, machine, contents, None);
        let ask = || machine.run(&script, expected, limits);
        return kept_or_asked(settings, &machine.key()?, || located(ask()?, Vec::new()));
    }
    let machine = linux::machine(settings, machine, contents.as_ref())?;
    kept_or_asked(settings, &machine.key()?, || {
        let (script, expected) = questions(contents.as_ref());
        let outputs = run_script(&machine, &script, expected, limits)?.0;
        let nested = (1..=contents.nesting())
            .map(|level| nested_symbols(&machine, contents.as_ref(), level, limits));
        located(outputs, nested.collect::<Result<_, _>>()?)
    })
}

/// Returns the symbols of the kernel of the guest at `level`.
fn nested_symbols(
    machine: &SimMachine,
    contents: &dyn Contents,
    level: u32,
    limits: &Limits,
) -> Result<String, Error> {
    let mut script = Script::default();
    contents.launch_at(level, &mut script, &Command::new(SYMBOLS));
    let mut ready = machine.prepare(&script, limits)?;
    ready.go(limits)?;
    let mut outputs = Outputs::of(1);
    ready
        .wait(nested::at_level(level, &mut outputs), limits)
        .2?;
    let output = outputs.finished.pop();
    text(output.ok_or_else(|| Error::Machine("no symbols were listed".to_owned()))?)
}

fn located(outputs: Vec<Output>, nested_kernels: Vec<String>) -> Result<Located, Error> {
    let mut texts = outputs.into_iter().map(text);
    Ok(Located {
        kernel: texts.next().transpose()?.unwrap_or_default(),
        program: texts.next().transpose()?.unwrap_or_default(),
        nested_kernels,
    })
}

/// What is kept of the machine with this key, or what it answers.
fn kept_or_asked(
    settings: &Settings,
    key: &str,
    ask: impl FnOnce() -> Result<Located, Error>,
) -> Result<Located, Error> {
    let kept = settings.cache.of(Kind::Symbols).join(key);
    if let Some(located) = read(&kept) {
        return Ok(located);
    }
    let located = ask()?;
    keep(&kept, &located)?;
    Ok(located)
}

/// What a machine is asked, and how many programs answer.
fn questions(contents: &dyn Contents) -> (Script, usize) {
    let observed = contents.observed();
    let mut script = Script::default();
    script.launch(&Command::new(SYMBOLS), false);
    if let Some(program) = &observed {
        let look = Command::new(SYMBOLS).arg(&program.program);
        let words = program.arguments.iter().cloned();
        let look = words.fold(look, Command::arg);
        match contents.guest_kind().custom {
            Some(_) => script.launch_foreign(&look),
            None => script.launch(&look, false),
        }
    }
    (script, 1 + usize::from(observed.is_some()))
}

fn text(output: Output) -> Result<String, Error> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.console).into_owned());
    }
    let words = String::from_utf8_lossy(&output.errors).trim().to_owned();
    Err(Error::Machine(format!(
        "its symbols cannot be had: {words}"
    )))
}

fn read(kept: &Path) -> Option<Located> {
    let text = fs::read_to_string(kept).ok()?;
    let mut parts = text.split(SEPARATOR).map(str::to_owned);
    Some(Located {
        kernel: parts.next()?,
        program: parts.next()?,
        nested_kernels: parts.collect(),
    })
}

/// It appears in its place complete or not at all.
fn keep(kept: &Path, located: &Located) -> Result<(), Error> {
    let directory = kept.parent().map_or_else(PathBuf::new, Path::to_owned);
    fs::create_dir_all(&directory).map_err(Error::file(&directory))?;
    let parts = [&located.kernel, &located.program].into_iter();
    let parts: Vec<_> = parts.chain(&located.nested_kernels).collect();
    let text = parts
        .iter()
        .map(|part| part.as_str())
        .collect::<Vec<_>>()
        .join(SEPARATOR);
    let draft = tempfile::Builder::new()
        .prefix(INCOMPLETE)
        .tempfile_in(&directory);
    let mut file = draft.map_err(Error::file(kept))?;
    std::io::Write::write_all(&mut file, text.as_bytes()).map_err(Error::file(kept))?;
    let persisted = file.persist(kept).map_err(|error| error.error);
    persisted.map(drop).map_err(Error::file(kept))
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
            nested_kernels: vec!["ffffffff81000000 T _stext\n".to_owned()],
        };
        keep(&kept, &located).unwrap();
        assert_eq!(read(&kept), Some(located));
        fs::write(&kept, "half").unwrap();
        assert_eq!(read(&kept), None);
    }
}
