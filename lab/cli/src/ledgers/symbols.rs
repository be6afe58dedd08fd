//! The names of all code that an environment on the simulated machine executes.

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::lab::Lab;
use std::path::{Path, PathBuf};
use trapline_environments::sim::{symbols::locate, xen_code, XenCode};
use trapline_environments::{EnvError, Part, Watch};
use trapline_model::EnvironmentId::{
    self, SimKvm, SimLinux, SimQemuKvm, SimVmxKvm, SimVmxLinux, SimVmxQemuKvm,
};
use trapline_profile::symbols::{build_id, code, lowest_address, mappings, Mapping};
use trapline_profile::{Space, Symbols, XEN};

/// The path of the agent on the machine, whose file here is a part.
const INIT: &str = "/init";

/// Where a PC's firmware lies: below 1 MiB and below 4 GiB.
const FIRMWARE: [(u64, u64); 2] = [(0xe_0000, 0x10_0000), (0xfffe_0000, 1 << 32)];

/// Looks up the names for `environment`.
///
/// # Errors
/// A file cannot be read, or the machine cannot be asked.
pub fn of(
    lab: &Lab,
    environment: EnvironmentId,
    watch: &Watch,
    interrupt: &Interrupt,
) -> Result<Symbols, Failure> {
    let settings = lab.settings();
    let mut symbols = Symbols::default();
    let part = |part| {
        settings
            .parts
            .get(part)
            .map_err(|e| Failure::from_error(&e))
    };
    if !matches!(environment, SimLinux | SimVmxLinux) {
        add(&mut symbols, Space::Guest, "guest", &part(Part::Image)?)?;
    }
    if environment.is_bare() {
        return Ok(symbols);
    }
    let explained = |error: EnvError| interrupt.explain(&error);
    if environment == EnvironmentId::SimXenDom0 {
        let code = xen_code(settings).map_err(explained)?;
        return with_hypervisor(symbols, &code);
    }
    let image = lab.image().map_err(explained)?;
    let machine = lab.machine(environment);
    let located = locate(settings, environment, &image, &machine, watch);
    let located = located.map_err(explained)?;
    if environment.is_xen() {
        symbols.add_kallsyms(KERNEL_OF_DOM0, &located.kernel);
        let code = xen_code(settings).map_err(explained)?;
        let agent = part(Part::Agent)?;
        return with_xen(symbols, &code, &agent);
    }
    symbols.add_kallsyms("kernel", &located.kernel);
    // Both lie where their files say, apart from each other.
    add(
        &mut symbols,
        Space::User,
        "trapline-agent",
        &part(Part::Agent)?,
    )?;
    if matches!(environment, SimKvm | SimVmxKvm) {
        add(&mut symbols, Space::User, "trapline-vmm", &part(Part::Vmm)?)?;
    }
    if matches!(environment, SimQemuKvm | SimVmxQemuKvm) {
        for (start, end) in FIRMWARE {
            symbols.add_range(Space::Guest, start, end, "firmware");
        }
    }
    for mapping in mappings(&located.program) {
        let file = match mapping.path.as_str() {
            INIT => part(Part::Agent)?,
            path => PathBuf::from(path),
        };
        add_mapped(&mut symbols, &mapping, &file)?;
    }
    Ok(symbols)
}

/// Looks up only the names that an interrupt's way needs: those of whoever raises it, and
/// of the image.
///
/// # Errors
/// As [`of`].
pub fn of_way(
    lab: &Lab,
    environment: EnvironmentId,
    watch: &Watch,
    interrupt: &Interrupt,
) -> Result<Symbols, Failure> {
    let settings = lab.settings();
    let explained = |error: EnvError| interrupt.explain(&error);
    let mut symbols = Symbols::default();
    let image = settings.parts.get(Part::Image).map_err(explained)?;
    add(&mut symbols, Space::Guest, "guest", &image)?;
    if environment.is_xen() {
        return with_hypervisor(symbols, &xen_code(settings).map_err(explained)?);
    }
    let image = lab.image().map_err(explained)?;
    let machine = lab.machine(environment);
    let located = locate(settings, environment, &image, &machine, watch);
    symbols.add_kallsyms("kernel", &located.map_err(explained)?.kernel);
    Ok(symbols)
}

/// What Xen and the kernel of its first domain are called.
const HYPERVISOR: &str = "xen";
const KERNEL_OF_DOM0: &str = "dom0-kernel";

/// Names for Xen, and for the programs of its first domain: these all lie at the same
/// addresses.
fn with_xen(symbols: Symbols, code: &XenCode, agent: &Path) -> Result<Symbols, Failure> {
    let mut symbols = with_hypervisor(symbols, code)?;
    let mut add = |name: &str, file: &Path| {
        let added = symbols.add_file(name, &read(file)?);
        added.map_err(|error| Failure::from_error(&error))
    };
    add("trapline-agent", agent)?;
    for file in &code.programs {
        add(&short_name(file), file)?;
    }
    Ok(symbols)
}

fn with_hypervisor(mut symbols: Symbols, code: &XenCode) -> Result<Symbols, Failure> {
    symbols.add_range(Space::Hypervisor, XEN.start, XEN.end, HYPERVISOR);
    match names_of_xen(code)? {
        Ok(bytes) => symbols
            .add_elf(Space::Hypervisor, HYPERVISOR, &bytes, 0)
            .map_err(|error| Failure::from_error(&error))?,
        Err(why) => anstream::eprintln!(
            "note: Xen has no symbols here: its instructions stand as [{HYPERVISOR}], and its \
             faults as residual; {why}"
        ),
    }
    Ok(symbols)
}

/// The file that names Xen's code, if it is of the same build.
fn names_of_xen(code: &XenCode) -> Result<Result<Vec<u8>, String>, Failure> {
    let named = match &code.named {
        Ok(file) => read(file)?,
        Err(why) => return Ok(Err(why.to_string())),
    };
    let of = |bytes: &[u8]| build_id(HYPERVISOR, bytes).map_err(|e| Failure::from_error(&e));
    let (booted, known) = (of(&read(&code.hypervisor)?)?, of(&named)?);
    match booted.is_some() && booted == known {
        true => Ok(Ok(named)),
        false => Ok(Err("what the package has is of another build".to_owned())),
    }
}

/// The program of the first domain whose name says less than what it is.
const DEVICE_MODEL: &str = "xen-qemu-system-i386";

/// The name of a program or library; `libc.so.6` is told as `libc`.
fn short_name(file: &Path) -> String {
    let name = file.file_name().unwrap_or(file.as_os_str());
    let name = name.to_string_lossy();
    if name == DEVICE_MODEL {
        return "device-model".to_owned();
    }
    name.split(".so").next().unwrap_or(&name).to_owned()
}

/// A program that is where its file says.
fn add(symbols: &mut Symbols, space: Space, name: &str, file: &Path) -> Result<(), Failure> {
    let bytes = read(file)?;
    for (start, end) in code(name, &bytes).map_err(|error| Failure::from_error(&error))? {
        symbols.add_range(space, start, end, name);
    }
    let added = symbols.add_elf(space, name, &bytes, 0);
    added.map_err(|error| Failure::from_error(&error))?;
    tell_nameless(symbols, name, file);
    Ok(())
}

/// Says that nothing in a file can be named.
fn tell_nameless(symbols: &Symbols, name: &str, file: &Path) {
    if !symbols.names_any_of(name) {
        anstream::eprintln!(
            "note: {} has no symbols: its instructions stand as [{name}]; \
             a build that is not stripped has them",
            file.display()
        );
    }
}

/// A program or library that was put where there was room. What is no file, such
/// as the kernel's own page in a process, has only the name of its mapping.
fn add_mapped(symbols: &mut Symbols, mapping: &Mapping, file: &Path) -> Result<(), Failure> {
    let name = short_name(file);
    let name = name.as_str();
    symbols.add_range(Space::User, mapping.start, mapping.end, name);
    if !file.is_file() {
        return Ok(());
    }
    let bytes = read(file)?;
    if let Ok(lowest) = lowest_address(name, &bytes) {
        let bias = mapping.start.wrapping_sub(lowest);
        // Data that is mapped has no functions.
        let _ = symbols.add_elf(Space::User, name, &bytes, bias);
        tell_nameless(symbols, name, file);
    }
    Ok(())
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let told = |error| Failure::new(format!("{}: {error}", file.display()));
    std::fs::read(file).map_err(told)
}
