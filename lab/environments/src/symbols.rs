//! Addresses of code on a simulated machine. Another machine of the same kind lists them, so that the
//! measured one is not changed; without randomness both have the same addresses. They are cached under the
//! hash of all inputs of the machine.

use crate::bochs::LinuxMachine;
use crate::custom_vmm;
use crate::sim::{self, Contents};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use trapline_host::cache::{Kind, INCOMPLETE};
use trapline_host::process::Command;
use trapline_host::{hexadecimal, Activity, Error, GuestImage, Limits};
use trapline_model::{Clock, EnvironmentId, GuestConfig};
use trapline_sim::kernel::{chosen, Maker};
use trapline_sim::machine::SimMachine;
use trapline_sim::nested;
use trapline_sim::programs::{run_script, Output, Outputs};
use trapline_sim::script::Script;
use trapline_sim::settings::Settings;
use trapline_sim::SYMBOLS;

pub use trapline_sim::kernel::Kernel;
pub use trapline_sim::module::{files as module_files, release};

/// Addresses of code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeAddresses {
    /// Code symbols of the kernel and its modules, as `/proc/kallsyms` lists them.
    pub kernel: String,
    /// Mappings of the program that runs guests, as `/proc/PID/maps` lists them; empty if its ELF file has
    /// its addresses.
    pub program: String,
    /// Code symbols of the kernels of guests that host guests, outermost first.
    pub nested_kernels: Vec<String>,
}

/// Returns the kernel of the machine of `environment`.
///
/// # Errors
/// A file is missing, or no kernel is available.
pub fn kernel(settings: &Settings, environment: EnvironmentId) -> Result<Kernel, Error> {
    chosen(settings, Maker::of(environment.stack().machine))
}

/// Separator of the parts in the cache.
const SEPARATOR: &str = "\n----\n";

/// Returns the addresses of code on the machine of `environment`, whose guests have configuration `guest`.
///
/// # Errors
/// A requirement is missing, or the machine failed.
pub fn locate(
    settings: &Settings,
    environment: EnvironmentId,
    image: &GuestImage,
    guest: &GuestConfig,
    limits: &Limits,
) -> Result<CodeAddresses, Error> {
    let contents = sim::contents(&environment.stack(), settings, image, guest)?;
    if environment.clock() == Clock::InsnVmx {
        let machine = LinuxMachine::new(settings, guest, None);
        return cached_or(settings, &machine.key(contents.as_ref())?, || {
            let (script, expected) = listing_script(contents.as_ref());
            let outputs = machine.run(contents.as_ref(), &script, expected, limits)?;
            addresses(outputs, Vec::new())
        });
    }
    let maker = Maker::of(environment.stack().machine);
    let machine = sim::machine(settings, maker, guest, contents.as_ref())?;
    cached_or(settings, &machine.key()?, || {
        let (script, expected) = listing_script(contents.as_ref());
        let outputs = run_script(&machine, &script, expected, limits)?.0;
        let mut all = addresses(outputs, Vec::new())?;
        let nested = (1..=contents.hosts().len())
            .map(|level| nested_symbols(&machine, contents.as_ref(), level, &all.kernel, limits));
        all.nested_kernels = nested.collect::<Result<_, _>>()?;
        Ok(all)
    })
}

/// Returns the symbols of the kernel of the guest at `level`. Only those of its modules are listed if the others are those
/// of `outer`, the kernel of the machine: each byte is an exit of every level.
fn nested_symbols(
    machine: &SimMachine,
    contents: &dyn Contents,
    level: usize,
    outer: &str,
    limits: &Limits,
) -> Result<String, Error> {
    let list = |command| listed_at(level, command, machine, contents, limits);
    let listed = list(Command::new(SYMBOLS).arg("--modules"))?;
    let (kernel, known) = kernel_alone(outer);
    match listed.split_once('\n') {
        Some((hash, modules)) if hash == known => Ok(kernel + modules),
        _ => list(Command::new(SYMBOLS)),
    }
}

/// Returns the lines of a kernel's own symbols, and their hash.
fn kernel_alone(symbols: &str) -> (String, String) {
    let is_own = |line: &&str| !line.ends_with(']');
    let own: String = symbols
        .lines()
        .filter(is_own)
        .flat_map(|line| [line, "\n"])
        .collect();
    let hash = hexadecimal(&Sha256::digest(&own));
    (own, hash)
}

/// Returns the output of `command` in the guest at `level`.
fn listed_at(
    level: usize,
    command: Command,
    machine: &SimMachine,
    contents: &dyn Contents,
    limits: &Limits,
) -> Result<String, Error> {
    let mut script = Script::default();
    contents.launch_at(level, &mut script, &command);
    let mut ready = machine.prepare(&script, limits)?;
    ready.go(limits)?;
    let mut outputs = Outputs::of(1);
    ready
        .wait(
            nested::within(&contents.hosts()[..level], &mut outputs),
            limits,
        )
        .2?;
    let output = outputs.finished.pop();
    text(output.ok_or_else(|| Error::Machine("no symbols were listed".to_owned()))?)
}

fn addresses(outputs: Vec<Output>, nested_kernels: Vec<String>) -> Result<CodeAddresses, Error> {
    let mut texts = outputs.into_iter().map(text);
    Ok(CodeAddresses {
        kernel: texts.next().transpose()?.unwrap_or_default(),
        program: texts.next().transpose()?.unwrap_or_default(),
        nested_kernels,
    })
}

/// Returns the cached addresses of the machine with this key, or else those of `list`, which it caches.
fn cached_or(
    settings: &Settings,
    key: &str,
    list: impl FnOnce() -> Result<CodeAddresses, Error>,
) -> Result<CodeAddresses, Error> {
    let path = settings.cache.of(Kind::Symbols).join(key);
    if let Some(cached) = read(&path) {
        return Ok(cached);
    }
    let _activity = Activity::begin("preparing the symbols of this machine, once");
    let listed = list()?;
    store(&path, &listed)?;
    Ok(listed)
}

/// Returns the script that lists addresses, and its number of programs.
fn listing_script(contents: &dyn Contents) -> (Script, usize) {
    let located = contents.located_command();
    let mut script = Script::default();
    if let Some(drivers) = contents.peer_drivers() {
        drivers.load_all(&mut script);
    }
    script.launch(&Command::new(SYMBOLS), false);
    if let Some(program) = &located {
        let command = Command::new(SYMBOLS).arg(&program.program);
        let arguments = program.arguments.iter().cloned();
        let mut command = arguments.fold(command, Command::arg);
        command.environment.clone_from(&program.environment);
        match contents.guest_kind().custom {
            Some(vmm) => custom_vmm::launch(&mut script, &vmm, &command, &custom_vmm::ENDLESS),
            None => script.launch(&command, false),
        }
    }
    (script, 1 + usize::from(located.is_some()))
}

fn text(output: Output) -> Result<String, Error> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.console).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.errors);
    let reason = format!("its symbols cannot be read: {}", errors.trim());
    Err(Error::Machine(reason))
}

fn read(path: &Path) -> Option<CodeAddresses> {
    let text = fs::read_to_string(path).ok()?;
    let mut parts = text.split(SEPARATOR).map(str::to_owned);
    Some(CodeAddresses {
        kernel: parts.next()?,
        program: parts.next()?,
        nested_kernels: parts.collect(),
    })
}

/// Writes the file atomically.
fn store(path: &Path, addresses: &CodeAddresses) -> Result<(), Error> {
    let directory = path.parent().map_or_else(PathBuf::new, Path::to_owned);
    fs::create_dir_all(&directory).map_err(Error::file(&directory))?;
    let parts = [&addresses.kernel, &addresses.program].into_iter();
    let parts = parts.chain(&addresses.nested_kernels).map(String::as_str);
    let text = parts.collect::<Vec<_>>().join(SEPARATOR);
    let draft = tempfile::Builder::new()
        .prefix(INCOMPLETE)
        .tempfile_in(&directory);
    let mut file = draft.map_err(Error::file(path))?;
    std::io::Write::write_all(&mut file, text.as_bytes()).map_err(Error::file(path))?;
    let persisted = file.persist(path).map_err(|error| error.error);
    persisted.map(drop).map_err(Error::file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_modules_are_no_symbols_of_the_kernel() {
        let (own, hash) = kernel_alone("1 T _text\n2 t vcpu_run\t[kvm]\n3 T _etext\n");
        assert_eq!(own, "1 T _text\n3 T _etext\n");
        assert_eq!(hash, hexadecimal(&Sha256::digest(own)));
    }

    #[test]
    fn stored_addresses_are_read_again() {
        let cache = tempfile::tempdir().unwrap();
        let path = cache.path().join("symbols/abc");
        assert_eq!(read(&path), None);
        let addresses = CodeAddresses {
            kernel: "ffffffff81000000 T _text\n".to_owned(),
            program: String::new(),
            nested_kernels: vec!["ffffffff81000000 T _stext\n".to_owned()],
        };
        store(&path, &addresses).unwrap();
        assert_eq!(read(&path), Some(addresses));
        fs::write(&path, "half").unwrap();
        assert_eq!(read(&path), None);
    }
}
