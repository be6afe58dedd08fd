//! Source lines of profiles, from the debug information of kernels, programs and libraries.

mod dwarf;
mod kernel;

use crate::context::RunContext;
use crate::debug_symbols;
use crate::failure::Failure;
use crate::symbols;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use trapline_abi::Op;
use trapline_environments::Limits;
use trapline_model::Config;
use trapline_profile::source::{CodeOffset, SourceLine, Sources};
use trapline_profile::symbols::build_id;
use trapline_profile::{Function, Profile};

/// Adds source lines to `profiles`: of the functions that `shown` returns for each, and of all executed
/// instructions. Code without debug information has none.
///
/// # Errors
/// The files of an environment cannot be located.
pub fn add(
    context: &RunContext<'_>,
    profiles: &mut BTreeMap<(Config, Op), Profile>,
    watch: &Limits,
    shown: impl Fn(&Profile) -> BTreeSet<Function>,
) -> Result<(), Failure> {
    let configs: BTreeSet<_> = profiles.keys().map(|(config, _)| config.clone()).collect();
    for config in configs {
        let here = profiles.iter().filter(|((of, _), _)| *of == config);
        let mut wanted: BTreeSet<CodeOffset> = BTreeSet::new();
        for (_, profile) in here {
            wanted.extend(starts(&profile.executed, shown(profile)));
            wanted.extend(profile.executed.keys().cloned());
        }
        let found = find(context, &config, watch, wanted)?;
        let here = profiles.iter_mut().filter(|((of, _), _)| *of == config);
        for (_, profile) in here {
            let sources = Sources::new(&profile.executed, profile.operations, &found);
            profile.sources = Some(sources);
        }
    }
    Ok(())
}

/// Returns the starts of functions. Those that were executed have an address.
fn starts(
    executed: &BTreeMap<CodeOffset, u64>,
    functions: BTreeSet<Function>,
) -> BTreeSet<CodeOffset> {
    let known = executed.keys().map(|at| (&at.function, at.start));
    let addresses: BTreeMap<_, _> = known.collect();
    let start = |function: Function| CodeOffset {
        start: addresses.get(&function).copied().unwrap_or_default(),
        function,
        offset: 0,
    };
    functions.into_iter().map(start).collect()
}

/// Returns the source lines of a configuration's code. Each file is read once.
fn find(
    context: &RunContext<'_>,
    config: &Config,
    watch: &Limits,
    wanted: BTreeSet<CodeOffset>,
) -> Result<BTreeMap<CodeOffset, SourceLine>, Failure> {
    let mut by_component: BTreeMap<String, BTreeSet<CodeOffset>> = BTreeMap::new();
    for offset in wanted {
        let component = offset.function.component.clone();
        by_component.entry(component).or_default().insert(offset);
    }
    let context = &context.with_files_of(&config.overrides);
    let programs = symbols::program_files(context, config, watch)?;
    let kernel = kernel::debug_files(context, config.environment);
    let mut found = BTreeMap::new();
    for (component, offsets) in by_component {
        // The systems of nested guests are of the same files.
        let name = component.rsplit('/').next().unwrap_or_default();
        let program = || debug_file(context, name, programs.get(name)?);
        let Some(file) = kernel.get(name).cloned().or_else(program) else {
            continue;
        };
        match dwarf::locate(&file, offsets) {
            Ok(lines) => found.extend(lines),
            Err(error) => context.note(&format!("{}: {error}", file.display())),
        }
    }
    Ok(found)
}

/// Returns the file with the debug information of a program: itself, or its debug file.
fn debug_file(context: &RunContext<'_>, name: &str, file: &Path) -> Option<PathBuf> {
    if dwarf::has_lines(file) {
        return Some(file.to_owned());
    }
    let id = build_id(name, &std::fs::read(file).ok()?).ok()??;
    let is_ours = name == "guest" || name.starts_with("trapline-");
    let fetch = context.inventory.settings().debug.fetch && !is_ours;
    debug_symbols::of_build(context, file, &id, fetch)
}
