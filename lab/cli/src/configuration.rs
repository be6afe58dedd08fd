//! Definitions of VMMs: those of this program, and those of the user's configuration, `config.toml` and `vmms/*.toml` in
//! `$XDG_CONFIG_HOME/trapline`, by default in `~/.config/trapline`.

use crate::failure::Failure;
use crate::terminal::one_line;
use std::path::{Path, PathBuf};
use trapline_host::files::TEXT_LIMIT;
use trapline_host::private::{self, Origin};
use trapline_host::Error;
use trapline_model::file::read_configuration;
use trapline_model::vmms;

/// Definitions that are part of this program, in the order of their files in `vmms/`.
const BUILT_IN: [&str; 6] = [
    include_str!("../../../vmms/alioth.toml"),
    include_str!("../../../vmms/cloud-hypervisor.toml"),
    include_str!("../../../vmms/crosvm.toml"),
    include_str!("../../../vmms/firecracker.toml"),
    include_str!("../../../vmms/kvmtool.toml"),
    include_str!("../../../vmms/qemu.toml"),
];

/// Defines the VMMs of this program, then those of the configuration, which replace them. Definitions of `config.toml` replace those in `vmms`. Returns a
/// failure for each file that cannot be read, or is invalid, and names the line: its VMMs are not defined.
pub fn read() -> Vec<Failure> {
    for text in BUILT_IN {
        read_configuration(text).expect("a test reads all definitions");
    }
    vmms::mark_built_in();
    let Ok((directory, origin)) = private::user_directory("XDG_CONFIG_HOME", ".config") else {
        return Vec::new();
    };
    read_directory(&directory, origin)
}

/// Each directory and file is checked: they name commands.
fn read_directory(directory: &Path, origin: Origin) -> Vec<Failure> {
    if let Err(error) = private::check(directory, origin) {
        return vec![error.into()];
    }
    let vmms = directory.join("vmms");
    let (mut files, mut failures) = match private::check_below(directory, &vmms) {
        Ok(()) => (definitions(&vmms), Vec::new()),
        Err(error) => (Vec::new(), vec![error.into()]),
    };
    files.push(directory.join("config.toml"));
    let read = files.iter().map(|file| read_file(directory, file));
    failures.extend(read.filter_map(Result::err));
    failures
}

fn read_file(directory: &Path, path: &Path) -> Result<(), Failure> {
    let text = match private::read_inside(directory, path, TEXT_LIMIT) {
        Ok(None) => return Ok(()),
        Ok(Some(text)) => text,
        Err(Error::File { source, .. }) => {
            return Err(Failure::usage(
                format!("cannot read the configuration {}: {source}", path.display()),
                "make it a readable file, or remove it",
            ))
        }
        Err(error) => return Err(error.into()),
    };
    read_configuration(&text).map_err(|error| {
        Failure::usage(
            format!("{}, {}", path.display(), one_line(error.to_string())),
            "see docs/custom-vmm.md",
        )
    })
}

/// Returns the TOML files of a directory in the order of their names.
fn definitions(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let is_toml = |path: &PathBuf| {
        path.extension()
            .is_some_and(|extension| extension == "toml")
    };
    let mut files: Vec<PathBuf> = paths.filter(is_toml).collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use trapline_model::{EnvironmentId, Feature};

    #[test]
    fn files_that_others_can_write_define_nothing() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let set_mode = |name: &str, mode| {
            std::fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
        };
        std::fs::create_dir(at("vmms")).unwrap();
        for (file, name) in [("config.toml", "careless"), ("vmms/a.toml", "placed")] {
            let text = format!("[vmm.{name}]\ncommand = 'x {{image}} {{cmdline}}'\n");
            std::fs::write(at(file), text).unwrap();
        }
        let defined =
            || ["careless", "placed"].map(|name| EnvironmentId::from_name(name).is_some());
        let read = || read_directory(place.path(), Origin::Home);
        let modes = [(0o666, 0o755, 0o666), (0o646, 0o777, 0o644)];
        for (config, vmms, placed) in modes {
            set_mode("config.toml", config);
            set_mode("vmms", vmms);
            set_mode("vmms/a.toml", placed);
            let failures = read();
            assert_eq!((failures.len(), defined()), (2, [false; 2]));
            let helps = failures.iter().filter_map(|it| it.help.as_deref());
            assert!(helps.clone().all(|help| help.starts_with("chmod go-w ")));
            assert_eq!(helps.count(), 2);
        }
        set_mode("config.toml", 0o644);
        set_mode("vmms", 0o755);
        assert!(read().is_empty());
        assert_eq!(defined(), [true; 2]);
    }

    #[test]
    fn every_definition_of_the_repository_is_built_in() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vmms");
        let texts = definitions(&root).into_iter();
        let texts: BTreeSet<_> = texts
            .map(|file| std::fs::read_to_string(file).unwrap())
            .collect();
        let built_in: BTreeSet<_> = BUILT_IN.map(str::to_owned).into_iter().collect();
        assert_eq!(built_in, texts);
        for text in BUILT_IN {
            read_configuration(text).unwrap();
        }
        vmms::mark_built_in();
        assert!(vmms::is_built_in("firecracker") && !vmms::is_built_in("mine"));
        let firecracker = EnvironmentId::from_name("sim/firecracker").unwrap();
        assert!(firecracker.is_custom() && !firecracker.has(Feature::Default));
        read_configuration("[vmm.firecracker]\ncommand = 'x {image} {cmdline}'\n").unwrap();
        assert!(!vmms::is_built_in("firecracker"), "the user's replaces it");
    }
}
