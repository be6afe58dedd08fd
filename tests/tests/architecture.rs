//! Dependencies between crates and between modules follow the design: both form no
//! cycles, and the layers share two crates only.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use trapline_tests::modules::Modules;
use trapline_tests::workspace::{crates, members, Crate};

#[test]
fn each_crate_uses_only_earlier_crates() {
    let crates = crates();
    for (index, user) in crates.iter().enumerate() {
        for used in &user.internal {
            let earlier = crates[..index].iter().any(|earlier| earlier.name == *used);
            assert!(earlier, "{} uses {used}, a later member", user.directory);
        }
    }
}

#[test]
fn every_crate_is_listed() {
    let listed = members();
    for c in crates() {
        assert!(
            listed.contains(&c.directory),
            "{} is not in the list of members",
            c.directory
        );
    }
}

/// Crates that all layers may use: the wire format, and the start of a process with
/// the time of its start.
const SHARED: [&str; 2] = ["guest/abi", "guest/spawn"];

/// Guests run in any VMM, and the lab starts VMMs as processes.
#[test]
fn layers_share_only_the_wire_format_and_the_start_of_processes() {
    let crates = crates();
    let find = |name: &String| crates.iter().find(|c| c.name == *name);
    for user in crates.iter().filter(|c| c.layer() != "tests") {
        for used in user.internal.iter().filter_map(find) {
            let allowed = used.layer() == user.layer() || SHARED.contains(&&*used.directory);
            assert!(
                allowed,
                "{} uses {} of another layer",
                user.directory, used.directory
            );
        }
    }
}

#[test]
fn only_vmm_kvm_uses_the_kernel_interface() {
    for user in crates().iter().filter(|c| c.directory != "vmm/kvm") {
        let kvm = user.external.iter().find(|name| name.starts_with("kvm-"));
        assert_eq!(kvm, None, "{} uses /dev/kvm", user.directory);
    }
}

/// A report can be rendered again from stored samples, without any machine.
#[test]
fn statistics_and_reports_use_neither_environments_nor_store() {
    let crates = crates();
    for directory in ["lab/stats", "lab/gate", "lab/profile", "lab/report"] {
        let user = find(&crates, directory);
        for machine in ["trapline-environments", "trapline-store"] {
            assert!(
                !user.internal.contains(machine),
                "{directory} uses {machine}"
            );
        }
    }
}

#[test]
fn the_wire_format_has_no_dependencies() {
    let crates = crates();
    let abi = find(&crates, "guest/abi");
    assert!(
        abi.internal.is_empty() && abi.external.is_empty(),
        "{abi:?}"
    );
}

fn find<'c>(crates: &'c [Crate], directory: &str) -> &'c Crate {
    let found = crates.iter().find(|c| c.directory == directory);
    found.unwrap_or_else(|| panic!("no crate in {directory}"))
}

#[test]
fn sibling_modules_form_no_cycles() {
    let found: Vec<String> = module_cycles().into_iter().collect();
    assert_eq!(found, [""; 0], "modules that use each other");
}

fn module_cycles() -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for c in crates().iter().filter(|c| c.layer() != "tests") {
        for root in &c.roots {
            let cycles = Modules::read(root).cycles();
            lines.extend(
                cycles
                    .iter()
                    .map(|cycle| format!("{} {cycle}", c.directory)),
            );
        }
    }
    lines
}

/// A compiler may put all modules of a crate into one codegen unit, where a label of two files is an error.
#[test]
fn assembly_files_of_a_crate_define_distinct_labels() {
    let mut repeated = Vec::new();
    for c in crates() {
        let mut files_by_label: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for file in assembly_files(&trapline_tests::root().join(&c.directory).join("src")) {
            let text = std::fs::read_to_string(&file).expect("file is readable");
            for label in text.lines().filter_map(named_label) {
                files_by_label.entry(label).or_default().push(file.clone());
            }
        }
        repeated.extend(
            files_by_label
                .into_iter()
                .filter(|(_, files)| files.len() > 1),
        );
    }
    assert!(
        repeated.is_empty(),
        "labels of several files: {repeated:#?}"
    );
}

/// Returns the label that a line of assembly defines, unless it is a number, which can be repeated.
fn named_label(line: &str) -> Option<String> {
    let (label, _) = line.split_once(':')?;
    let is_name =
        label.starts_with(|first: char| first.is_ascii_alphabetic() || "._".contains(first));
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"._".contains(&byte);
    (is_name && label.bytes().all(is_word)).then(|| label.to_owned())
}

fn assembly_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(assembly_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "s") {
            files.push(path);
        }
    }
    files
}

/// A crate that is missing there is optimized for tests, which takes longer than all of them.
#[test]
fn test_profile_names_every_crate() {
    let path = trapline_tests::root().join("tests/profile.toml");
    let text = std::fs::read_to_string(path).expect("file is readable");
    for c in crates() {
        let line = format!("\n{}.opt-level = ", c.name);
        assert!(
            text.contains(&line),
            "{} is not in tests/profile.toml",
            c.name
        );
    }
}
