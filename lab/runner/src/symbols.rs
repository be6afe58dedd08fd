//! Symbols of all code that an environment of a simulated machine executes.

use crate::context::RunContext;
use crate::debug_symbols;
use crate::failure::Failure;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use trapline_abi::platform::{HYPERCALL_ENTRY, PAGE, PROGRAM_PAGES};
use trapline_abi::OpSet;
use trapline_environments::sim::{xen_code, XenCode};
use trapline_environments::symbols::{locate, CodeAddresses};
use trapline_environments::{Limits, Part};
use trapline_model::{Config, EnvironmentId, Feature};
use trapline_profile::symbols::{
    build_id, code_ranges, lowest_address, mappings, ElfError, Mapping,
};
use trapline_profile::{AddressLayout, AddressSpace, Symbols, XEN};

/// Path of the agent on the machine; its file on this host is a part.
const INIT: &str = "/init";

/// Address ranges of a PC's firmware: below 1 MiB and below 4 GiB.
const FIRMWARE: [(u64, u64); 2] = [(0xe_0000, 0x10_0000), (0xfffe_0000, 1 << 32)];

/// Returns the machine that executes an environment's code outside of its guest.
pub fn machine_of(environment: EnvironmentId) -> AddressLayout {
    let levels = environment.stack().levels.len() as u8;
    match (environment.is_xen(), environment.stack().is_nested()) {
        _ if environment.is_bare() => AddressLayout::Bare,
        (true, false) => AddressLayout::Xen,
        (true, true) => AddressLayout::NestedXen(levels),
        (false, true) => AddressLayout::Nested(levels),
        (false, false) => AddressLayout::Linux,
    }
}

/// Returns whether the programs of a machine are those of its Linux.
pub fn has_linux(machine: AddressLayout) -> bool {
    matches!(machine, AddressLayout::Linux | AddressLayout::Nested(_))
}

/// Names of components.
pub type Components = BTreeSet<String>;

/// Address spaces in which instructions were executed.
pub type Executed = BTreeSet<AddressSpace>;

/// Reads the symbols of `config`, of the boots with these operations. Missing debug files of the components `fetched` are
/// downloaded. The addresses of a kernel are read from a machine, which is booted only if the kernel was `executed`.
///
/// # Errors
/// A file cannot be read, or the machine does not report where its code lies.
pub fn of(
    context: &RunContext<'_>,
    config: &Config,
    watch: &Limits,
    fetched: &Components,
    operations: OpSet,
    executed: &Executed,
) -> Result<Symbols, Failure> {
    let environment = config.environment;
    let mut reader = Reader::new(context, config);
    reader.operations = operations;
    reader.fetched.clone_from(fetched);
    reader.add_executed_programs();
    if !environment.has_processes() {
        reader.add(AddressSpace::Guest, "guest", Part::Image)?;
    }
    if environment.is_bare() {
        return Ok(reader.symbols);
    }
    if environment.is_xen() && environment.starts_with_machine() {
        reader.add_hypervisor(AddressSpace::Hypervisor)?;
        return Ok(reader.symbols);
    }
    if environment.is_nova() {
        reader.add_nova()?;
        return Ok(reader.symbols);
    }
    if machine_of(environment) == AddressLayout::Xen {
        if executed.contains(&AddressSpace::Kernel) {
            reader.add_dom0_kernel(AddressSpace::Kernel, &reader.locate(watch)?.kernel);
        }
        reader.add_xen(environment, AddressSpace::Hypervisor)?;
        return Ok(reader.symbols);
    }
    let located = reader.locate(watch)?;
    match machine_of(environment) {
        AddressLayout::NestedXen(levels) => {
            let level = levels - 1;
            let kernels = located.nested_kernels.split_last();
            let (dom0, linux) =
                kernels.ok_or_else(|| Failure::new("no symbols of the first domain"))?;
            reader.add_kernel(&located);
            reader.add_programs(environment, &located)?;
            reader.add_nested(linux)?;
            reader.add_dom0_kernel(AddressSpace::NestedKernel(level), dom0);
            reader.add_xen(environment, AddressSpace::NestedHypervisor(level))?;
        }
        _ => {
            reader.add_kernel(&located);
            reader.add_programs(environment, &located)?;
            reader.add_nested(&located.nested_kernels)?;
        }
    }
    Ok(reader.symbols)
}

/// Reads the symbols on the path of an interrupt: of the hypervisor or kernel that raises it, and of the
/// image.
///
/// # Errors
/// See [`of`].
pub fn of_irq_path(
    context: &RunContext<'_>,
    environment: EnvironmentId,
    watch: &Limits,
) -> Result<Symbols, Failure> {
    let config = environment.into();
    let mut reader = Reader::new(context, &config);
    reader.add(AddressSpace::Guest, "guest", Part::Image)?;
    if has_linux(machine_of(environment)) {
        let located = reader.locate(watch)?;
        reader.add_kernel(&located);
    } else {
        reader.add_hypervisor(AddressSpace::Hypervisor)?;
    }
    Ok(reader.symbols)
}

/// Returns the files of a configuration's image, programs and libraries by component.
///
/// # Errors
/// See [`of`].
pub fn program_files(
    context: &RunContext<'_>,
    config: &Config,
    watch: &Limits,
) -> Result<BTreeMap<String, PathBuf>, Failure> {
    let environment = config.environment;
    let reader = Reader::new(context, config);
    let parts = [
        ("guest", Part::Image),
        ("trapline-agent", Part::Agent),
        ("trapline-vmm", Part::Vmm),
    ];
    let mut files = BTreeMap::new();
    for (component, part) in parts {
        files.insert(component.to_owned(), reader.part(part)?);
    }
    if has_linux(machine_of(environment)) {
        for mapping in mappings(&reader.locate(watch)?.program) {
            let file = reader.mapped_file(&mapping)?;
            files.insert(short_name(&file), file);
        }
    }
    Ok(files)
}

/// Names of the components Xen and kernel of dom0.
const HYPERVISOR: &str = "xen";
const KERNEL_OF_DOM0: &str = "dom0-kernel";

/// Name of the component NOVA.
const NOVA: &str = "nova";

/// Addresses for the root task (`vmm/nova/root.ld`).
const ROOT_TASK: Range<u64> = 0x1000_0000..0x1100_0000;

/// Collects the symbols of a configuration.
struct Reader<'a> {
    /// With the files of the configuration.
    context: RunContext<'a>,
    config: &'a Config,
    /// Components whose missing debug files are downloaded.
    fetched: Components,
    /// Operations of the boots, which decide on the modules of the machine's kernel.
    operations: OpSet,
    symbols: Symbols,
}

impl<'a> Reader<'a> {
    fn new(context: &'a RunContext<'a>, config: &'a Config) -> Self {
        Self {
            context: context.with_files_of(&config.overrides),
            config,
            fetched: Components::new(),
            operations: OpSet::EMPTY,
            symbols: Symbols::default(),
        }
    }

    /// Returns the addresses of code on the simulated machine.
    fn locate(&self, watch: &Limits) -> Result<CodeAddresses, Failure> {
        let inventory = self.context.inventory;
        let environment = self.config.environment;
        let machine = inventory.guest(self.config).with_cards(self.operations);
        let located = inventory
            .image()
            .and_then(|image| locate(inventory.settings(), environment, &image, &machine, watch));
        Ok(located?)
    }

    fn part(&self, part: Part) -> Result<PathBuf, Failure> {
        Ok(self.context.inventory.settings().parts.get(part)?)
    }

    /// Adds a program that is loaded at the addresses in its file.
    fn add(&mut self, space: AddressSpace, name: &str, part: Part) -> Result<(), Failure> {
        let file = self.part(part)?;
        let bytes = read(&file)?;
        for (start, end) in
            code_ranges(name, &bytes).map_err(|error| Failure::from_error(&error))?
        {
            self.symbols.add_range(space, start, end, name);
        }
        let added = self.add_functions(space, name, (&file, &bytes), 0);
        added.map_err(|error| Failure::from_error(&error))
    }

    /// Adds a program or library that is loaded at a relocated address. A mapping without a file, such
    /// as the vDSO, has only its own name.
    fn add_mapped(&mut self, mapping: &Mapping, file: &Path) -> Result<(), Failure> {
        let name = short_name(file);
        let (start, end) = (mapping.start, mapping.end);
        self.symbols
            .add_range(AddressSpace::User, start, end, &name);
        if !file.is_file() {
            return Ok(());
        }
        let bytes = read(file)?;
        if let Ok(lowest) = lowest_address(&name, &bytes) {
            let bias = start.wrapping_sub(lowest);
            // Mapped data has no functions.
            let _ = self.add_functions(AddressSpace::User, &name, (file, &bytes), bias);
        }
        Ok(())
    }

    /// Adds the functions of a file loaded `bias` above its addresses, and those of its debug file.
    fn add_functions(
        &mut self,
        space: AddressSpace,
        name: &str,
        (file, bytes): (&Path, &[u8]),
        bias: u64,
    ) -> Result<(), ElfError> {
        let fetch = self.fetched.contains(name);
        let debug = debug_symbols::of(&self.context, name, (file, bytes), fetch);
        for bytes in std::iter::once(bytes).chain(debug.as_deref()) {
            self.symbols.add_elf(space, name, bytes, bias)?;
        }
        self.note_missing(name, file);
        Ok(())
    }

    /// Adds the programs that processes execute while workload `system` is measured.
    fn add_executed_programs(&mut self) {
        for space in [AddressSpace::Guest, AddressSpace::User] {
            for page in PROGRAM_PAGES {
                let addresses = page..page + PAGE;
                self.symbols
                    .add_function(space, addresses, "program", "executed program");
            }
        }
    }

    fn add_kernel(&mut self, located: &CodeAddresses) {
        let symbols = &mut self.symbols;
        symbols.add_kallsyms(AddressSpace::Kernel, "kernel", &located.kernel);
    }

    fn add_dom0_kernel(&mut self, space: AddressSpace, kernel: &str) {
        self.symbols.add_kallsyms(space, KERNEL_OF_DOM0, kernel);
    }

    /// Adds the kernels of guests that host guests, outermost first, and their programs.
    fn add_nested(&mut self, kernels: &[String]) -> Result<(), Failure> {
        for (kernel, level) in kernels.iter().zip(1..) {
            let space = AddressSpace::NestedKernel(level);
            self.symbols.add_kallsyms(space, "kernel", kernel);
            let space = AddressSpace::NestedUser(level);
            self.add(space, "trapline-agent", Part::Agent)?;
            self.add(space, "trapline-vmm", Part::Vmm)?;
        }
        Ok(())
    }

    /// Adds the agent, the VMM, and all that the VMM has mapped.
    fn add_programs(
        &mut self,
        environment: EnvironmentId,
        located: &CodeAddresses,
    ) -> Result<(), Failure> {
        self.add(AddressSpace::User, "trapline-agent", Part::Agent)?;
        if environment.has_trapline_vmm() && !environment.is_xen() {
            self.add(AddressSpace::User, "trapline-vmm", Part::Vmm)?;
        }
        if environment.has(Feature::Packets) {
            self.add(AddressSpace::User, "trapline-switch", Part::Switch)?;
        }
        if environment.has(Feature::GuestProcess) {
            self.add(AddressSpace::User, "guest", Part::Image)?;
            let start = HYPERCALL_ENTRY & !(PAGE - 1);
            self.symbols
                .add_range(AddressSpace::User, start, start + PAGE, "switcher");
        }
        if environment.has_qemu_vmm() {
            for (start, end) in FIRMWARE {
                self.symbols
                    .add_range(AddressSpace::Guest, start, end, "firmware");
            }
        }
        for mapping in mappings(&located.program) {
            let file = self.mapped_file(&mapping)?;
            self.add_mapped(&mapping, &file)?;
        }
        Ok(())
    }

    /// Returns the file on this host that a program on the machine has mapped.
    fn mapped_file(&self, mapping: &Mapping) -> Result<PathBuf, Failure> {
        match mapping.path.as_str() {
            INIT => self.part(Part::Agent),
            path => Ok(PathBuf::from(path)),
        }
    }

    /// Adds Xen in `space` and the programs of dom0, which all have the same addresses.
    fn add_xen(&mut self, environment: EnvironmentId, space: AddressSpace) -> Result<(), Failure> {
        let code = self.add_hypervisor(space)?;
        let vmm = environment
            .has_trapline_vmm()
            .then_some(("trapline-vmm", Part::Vmm));
        let parts = [("trapline-agent", Part::Agent)].into_iter().chain(vmm);
        let parts = parts.map(|(name, part)| Ok((name.to_owned(), self.part(part)?)));
        let parts = parts.collect::<Result<Vec<_>, Failure>>()?;
        let programs = code.programs.into_iter();
        let programs = programs.map(|file| (short_name(&file), file));
        for (name, file) in parts.into_iter().chain(programs) {
            let added = self.symbols.add_file(&name, &read(&file)?);
            added.map_err(|error| Failure::from_error(&error))?;
        }
        Ok(())
    }

    /// Adds NOVA, a kernel, and the VMM, its program.
    fn add_nova(&mut self) -> Result<(), Failure> {
        let file = self.context.inventory.settings().nova()?;
        let added = self
            .symbols
            .add_elf(AddressSpace::Kernel, NOVA, &read(&file)?, 0);
        added.map_err(|error| Failure::from_error(&error))?;
        self.note_missing(NOVA, &file);
        // Before the first program the firmware runs, and the part of NOVA that enables paging: below the root task, and
        // at the end of memory.
        for (start, end) in [(0, ROOT_TASK.start), (ROOT_TASK.end, 1 << 32)] {
            self.symbols
                .add_range(AddressSpace::User, start, end, "firmware");
        }
        self.add(AddressSpace::User, "trapline-nova", Part::Nova)
    }

    fn add_hypervisor(&mut self, space: AddressSpace) -> Result<XenCode, Failure> {
        let code = xen_code(self.context.inventory.settings())?;
        let symbols = &mut self.symbols;
        symbols.add_range(space, XEN.start, XEN.end, HYPERVISOR);
        match xen_symbols(&code)? {
            Ok(bytes) => symbols
                .add_elf(space, HYPERVISOR, &bytes, 0)
                .map_err(|error| Failure::from_error(&error))?,
            Err(reason) => self.context.note(&format!(
                "Xen has no symbols: its instructions are listed as [{HYPERVISOR}], and its \
                 faults as residual; {reason}"
            )),
        }
        Ok(code)
    }

    /// Reports a file without symbols.
    fn note_missing(&self, name: &str, file: &Path) {
        if !self.symbols.has_component(name) {
            self.context.note(&format!(
                "{} has no symbols: its instructions are listed as [{name}]; \
                 a build that is not stripped has them",
                file.display()
            ));
        }
    }
}

/// Returns the file with Xen's symbols. The inner error is the reason why it cannot be used.
fn xen_symbols(code: &XenCode) -> Result<Result<Vec<u8>, String>, Failure> {
    let symbols = match &code.named {
        Ok(file) => read(file)?,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let id =
        |bytes: &[u8]| build_id(HYPERVISOR, bytes).map_err(|error| Failure::from_error(&error));
    let booted = id(&read(&code.hypervisor)?)?;
    if booted.is_some() && booted == id(&symbols)? {
        Ok(Ok(symbols))
    } else {
        Ok(Err(
            "the symbols in the package are of another build".to_owned()
        ))
    }
}

/// Program of dom0 that is listed as `device-model`.
const DEVICE_MODEL: &str = "xen-qemu-system-i386";

/// Returns the name of a program or library: `libc` for `libc.so.6`.
fn short_name(file: &Path) -> String {
    let name = file.file_name().unwrap_or(file.as_os_str());
    let name = name.to_string_lossy();
    if name == DEVICE_MODEL {
        return "device-model".to_owned();
    }
    name.split(".so").next().unwrap_or(&name).to_owned()
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let failure = |error| Failure::new(format!("cannot read {}: {error}", file.display()));
    std::fs::read(file).map_err(failure)
}
