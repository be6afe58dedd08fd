//! Kernel modules of distributions: plain, `.xz` or `.zst`. Dependencies are read from the modules themselves,
//! because `modules.dep` is created at installation.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use trapline_host::Error;

/// A decompressed module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its name as the kernel writes it, with underscores.
    pub name: String,
    /// Its contents.
    pub bytes: Vec<u8>,
    /// Its parameters, as on a kernel command line.
    pub options: &'static str,
}

/// Parameters of modules. Without the first the creation of a VM takes 0.3 or 10 million instructions, depending on whether it
/// waits for the start of a helper thread. Without the second KVM empties the level-1 cache before it enters a guest after a VMM
/// has run, in a loop of 4,181 instructions: Bochs lacks the register (`IA32_FLUSH_CMD`) by which processors do so in one.
const OPTIONS: [(&str, &str); 2] = [
    ("kvm", "nx_huge_pages=never"),
    ("kvm_intel", "vmentry_l1d_flush=never"),
];

impl Module {
    /// Returns the module of this name, with its common parameters.
    pub fn new(name: String, bytes: Vec<u8>) -> Self {
        let found = OPTIONS.iter().find(|(module, _)| *module == name);
        let options = found.map_or("", |(_, options)| options);
        Self {
            name,
            bytes,
            options,
        }
    }
}

/// Returns the parameters of `modules` as on a kernel command line, for the facts.
pub fn options(modules: &[Module]) -> String {
    let with_some = modules.iter().filter(|module| !module.options.is_empty());
    let all = with_some.map(|module| format!("{}.{}", module.name, module.options));
    all.collect::<Vec<_>>().join(" ")
}

/// Limit of a decompressed module, in bytes.
const LARGEST: u64 = 256 << 20;

/// Returns the modules `wanted` and their dependencies, see [`with_needed`].
///
/// # Errors
/// One is missing or cannot be read.
pub fn all_with_needed(directory: &Path, wanted: &[&str]) -> Result<Vec<Module>, Error> {
    let files = files(directory);
    let mut order = Vec::new();
    for name in wanted {
        add(name, directory, &files, &mut order)?;
    }
    Ok(order)
}

/// Returns whether the module `name` is anywhere below `directory`.
pub fn exists(directory: &Path, name: &str) -> bool {
    files(directory).contains_key(name)
}

/// Returns the module `wanted` and its dependencies from anywhere below `directory`, in load order.
///
/// # Errors
/// One is missing or cannot be read.
pub fn with_needed(directory: &Path, wanted: &str) -> Result<Vec<Module>, Error> {
    all_with_needed(directory, &[wanted])
}

/// Returns the files of all modules below `directory`, by name.
pub fn files(directory: &Path) -> BTreeMap<String, PathBuf> {
    let mut files = BTreeMap::new();
    collect(directory, &mut files);
    files
}

/// Collects modules below `directory` by name.
fn collect(directory: &Path, files: &mut BTreeMap<String, PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        // Symbolic links may form loops.
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => collect(&path, files),
            Ok(kind) if kind.is_file() => {
                files.extend(module_name(&path).map(|name| (name, path)));
            }
            _ => {}
        }
    }
}

/// Returns `kvm_amd` for `…/kvm-amd.ko.xz`; `None` for other files.
fn module_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let (stem, compression) = name.split_once(".ko")?;
    matches!(compression, "" | ".xz" | ".zst").then(|| stem.replace('-', "_"))
}

fn add(
    name: &str,
    directory: &Path,
    files: &BTreeMap<String, PathBuf>,
    order: &mut Vec<Module>,
) -> Result<(), Error> {
    if order.iter().any(|module| module.name == name) {
        return Ok(());
    }
    let path = files.get(name).ok_or_else(|| {
        Error::missing(
            format!("no module {name} below {}", directory.display()),
            "give the modules of this kernel with --modules",
        )
    })?;
    let bytes = unpack(path)?;
    for needed in needed_by(&bytes) {
        add(&needed, directory, files, order)?;
    }
    order.push(Module::new(name.to_owned(), bytes));
    Ok(())
}

fn unpack(path: &Path) -> Result<Vec<u8>, Error> {
    let file = BufReader::new(File::open(path).map_err(Error::file(path))?);
    let mut bytes = Vec::new();
    let read = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => lzma_rust2::XzReader::new(file, true)
            .take(LARGEST)
            .read_to_end(&mut bytes),
        Some("zst") => ruzstd::decoding::StreamingDecoder::new(file)
            .map_err(std::io::Error::other)
            .and_then(|decoder| decoder.take(LARGEST).read_to_end(&mut bytes)),
        _ => file.take(LARGEST).read_to_end(&mut bytes),
    };
    read.map_err(Error::file(path))?;
    if bytes.starts_with(b"\x7fELF") {
        return Ok(bytes);
    }
    Err(Error::unavailable(format!(
        "{} is not a kernel module",
        path.display()
    )))
}

/// Returns the release of the kernel that a module is for, as `uname -r` prints it.
pub fn release(module: &[u8]) -> Option<String> {
    let magic = information(module, b"\0vermagic=")?;
    magic.split(' ').next().map(str::to_owned)
}

/// Returns a value of a module's information, which are zero-terminated strings. `key` has the zero before
/// it and the `=` after it.
fn information(module: &[u8], key: &[u8]) -> Option<String> {
    let start = module.windows(key.len()).position(|at| at == key)?;
    let value = module[start + key.len()..]
        .split(|byte| *byte == 0)
        .next()?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// Returns the modules that a module depends on.
fn needed_by(module: &[u8]) -> Vec<String> {
    information(module, b"\0depends=")
        .unwrap_or_default()
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn module(depends: &str) -> Vec<u8> {
        format!("\x7fELF\0license=GPL\0depends={depends}\0name=x\0").into_bytes()
    }

    /// "\x7fELF\0depends=\0" as xz(1) and zstd(1) pack it.
    const XZ: &[u8] = include_bytes!("data/module.ko.xz");
    const ZST: &[u8] = include_bytes!("data/module.ko.zst");

    #[test]
    fn modules_follow_their_dependencies_in_all_formats() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join("kernel/virt").join(name);
        fs::create_dir_all(at("")).unwrap();
        fs::write(at("kvm-amd.ko"), module("kvm,ccp")).unwrap();
        fs::write(at("kvm.ko"), module("irqbypass")).unwrap();
        fs::write(at("irqbypass.ko.xz"), XZ).unwrap();
        fs::write(at("ccp.ko.zst"), ZST).unwrap();
        fs::write(at("unrelated.ko"), "no module at all").unwrap();
        let modules = with_needed(directory.path(), "kvm_amd").unwrap();
        let names: Vec<_> = modules.iter().map(|module| &module.name[..]).collect();
        assert_eq!(names, ["irqbypass", "kvm", "ccp", "kvm_amd"]);
        assert_eq!(modules[0].bytes, modules[2].bytes);
    }

    #[test]
    fn release_is_read_from_the_version_magic() {
        let module = b"\x7fELF\0name=kvm\0vermagic=6.1.0-56-cloud-amd64 SMP preempt mod_unload \0";
        assert_eq!(release(module).as_deref(), Some("6.1.0-56-cloud-amd64"));
        assert_eq!(release(b"\x7fELF"), None);
    }

    #[test]
    fn missing_and_broken_modules_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let error = || {
            let error = with_needed(directory.path(), "kvm_amd").unwrap_err();
            error
                .to_string()
                .replace(&directory.path().display().to_string(), "DIR")
        };
        let mut errors = vec![error()];
        fs::write(at("kvm_amd.ko"), module("kvm")).unwrap();
        errors.push(error());
        fs::write(at("kvm.ko.xz"), &XZ[..XZ.len() / 2]).unwrap();
        errors.push(error());
        fs::remove_file(at("kvm.ko.xz")).unwrap();
        fs::write(at("kvm.ko"), "text").unwrap();
        errors.push(error());
        expect![[r#"
            no module kvm_amd below DIR: give the modules of this kernel with --modules
            no module kvm below DIR: give the modules of this kernel with --modules
            DIR/kvm.ko.xz: failed to fill whole buffer
            DIR/kvm.ko is not a kernel module"#]]
        .assert_eq(&errors.join("\n"));
    }

    #[test]
    fn module_name_follows_from_the_file_name() {
        assert_eq!(
            module_name(Path::new("/a/kvm-amd.ko.zst")).unwrap(),
            "kvm_amd"
        );
        assert_eq!(module_name(Path::new("/a/modules.dep")), None);
        assert_eq!(module_name(Path::new("/a/x.ko.gz")), None);
    }
}
