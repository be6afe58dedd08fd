//! Debug files of the simulated machine's kernel: the uncompressed kernel, and modules, which distributions
//! pack in one package.

use crate::context::RunContext;
use crate::debug_symbols;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trapline_environments::debug_files;
use trapline_environments::symbols::{self, module_files, Kernel};
use trapline_model::EnvironmentId;
use trapline_profile::symbols::build_id;

/// Name of the kernel as a component.
const KERNEL: &str = "kernel";

/// Returns the debug files of the kernel and its modules by component. Downloads them if they are missing and
/// the settings say so.
pub fn debug_files(
    context: &RunContext<'_>,
    environment: EnvironmentId,
) -> BTreeMap<String, PathBuf> {
    let settings = context.inventory.settings();
    let has_linux = crate::symbols::has_linux(crate::symbols::machine_of(environment));
    let kernel = has_linux.then(|| symbols::kernel(settings, environment).ok());
    let found = kernel.flatten().and_then(|kernel| find(context, &kernel));
    found.unwrap_or_default()
}

fn find(context: &RunContext<'_>, kernel: &Kernel) -> Option<BTreeMap<String, PathBuf>> {
    let settings = context.inventory.settings();
    let release = symbols::release(&kernel.modules.first()?.bytes)?;
    let directory = || settings.debug.find_kernel(&release, &settings.cache);
    let directory = match directory() {
        None if settings.debug.fetch => {
            fetch(context, kernel)?;
            directory()?
        }
        found => found?,
    };
    let mut files = module_files(&directory.join("lib/modules").join(&release));
    if !is_same_build(kernel, &files) {
        let directory = directory.display();
        context.note(&format!(
            "{directory}: debug files of another build of {release}"
        ));
        return None;
    }
    files.insert(
        KERNEL.to_owned(),
        directory.join(format!("boot/vmlinux-{release}")),
    );
    Some(files)
}

/// Returns true if all modules in use have the build IDs of their debug files.
fn is_same_build(kernel: &Kernel, files: &BTreeMap<String, PathBuf>) -> bool {
    let id = |bytes: &[u8]| build_id(KERNEL, bytes).ok().flatten();
    let of_file = |path: &Path| id(&std::fs::read(path).ok()?);
    kernel.modules.iter().all(|module| {
        let file = files.get(&module.name).and_then(|path| of_file(path));
        file.is_some() && file == id(&module.bytes)
    })
}

/// Downloads the debug files of a kernel from a package, `package NAME_VERSION`.
fn fetch(context: &RunContext<'_>, kernel: &Kernel) -> Option<()> {
    let package = kernel.origin.strip_prefix("package ")?;
    let (name, version) = package.split_once('_')?;
    let cache = &context.inventory.settings().cache;
    let what = format!("{name} (about 2 GB unpacked)");
    debug_symbols::fetch_with(context, &what, || {
        debug_files::fetch_package(name, version, cache)
    })
}
