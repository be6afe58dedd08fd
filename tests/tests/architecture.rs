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

/// Crates whose sources for each instruction set are apart.
const WITH_BOUNDARY: [&str; 4] = ["guest/abi", "guest/workloads", "guest/spawn", "guest/agent"];

/// Elsewhere neither an instruction nor a decision by the instruction set is written.
#[test]
fn instruction_sets_are_told_apart_in_one_file_of_a_crate() {
    let mut found = BTreeSet::new();
    for directory in WITH_BOUNDARY {
        let sources = trapline_tests::root().join(directory).join("src");
        let arch = sources.join("arch");
        for file in files(&sources) {
            let text = std::fs::read_to_string(&file).expect("file is readable");
            let decides = text.contains("target_arch");
            let is_of_one = text.contains("core::arch::x86_64") || text.contains("rdtsc");
            let is_there = file.starts_with(&arch) && file != arch.join("mod.rs");
            if decides && file != arch.join("mod.rs") || is_of_one && !is_there {
                found.insert(file);
            }
        }
        for file in files(&arch.join("x86_64")) {
            let name = file.strip_prefix(arch.join("x86_64")).expect("it is below");
            if !arch.join("aarch64").join(name).is_file() {
                found.insert(file.clone());
            }
        }
    }
    assert_eq!(found, BTreeSet::new(), "these know the instruction set");
}

/// Only there are reasons checked, and listed at the end of a run.
#[test]
fn tests_are_skipped_by_one_function() {
    let mut others = BTreeSet::new();
    for c in crates().iter().filter(|c| c.directory != "tests/skip") {
        let directory = trapline_tests::root().join(&c.directory);
        let sources = ["src", "tests"].map(|name| directory.join(name));
        for file in sources.iter().flat_map(|sources| files(sources)) {
            let text = std::fs::read_to_string(&file).expect("file is readable");
            let words = concat!("print", "ln!(\"skip");
            if text.contains(words) {
                others.insert(file);
            }
        }
    }
    assert_eq!(others, BTreeSet::new(), "these print what they skip");
}

/// A compiler may put all modules of a crate into one codegen unit, where a label of two files is an error.
#[test]
fn assembly_of_a_crate_defines_distinct_labels() {
    let mut repeated = Vec::new();
    for c in crates() {
        let mut files_by_label: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
        let directory = trapline_tests::root().join(&c.directory);
        let sources = ["src", "tests"].map(|name| directory.join(name));
        for file in sources.iter().flat_map(|sources| files(sources)) {
            let text = std::fs::read_to_string(&file).expect("file is readable");
            for label in text.lines().filter_map(|line| label(&file, line)) {
                let all = files_by_label.entry(label).or_default();
                all.insert(file.clone());
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

/// Returns the label that a line of a file defines: of assembly, or in Rust of a string of `asm!`, which has nothing else.
fn label(file: &Path, line: &str) -> Option<String> {
    if file.extension()? == "s" {
        return named_label(line);
    }
    let string = line.trim().strip_prefix('"')?.split('"').next()?;
    string.ends_with(':').then(|| named_label(string))?
}

/// Returns the label that a line of assembly defines, unless it is a number, which can be repeated.
fn named_label(line: &str) -> Option<String> {
    let (label, _) = line.split_once(':')?;
    let is_name =
        label.starts_with(|first: char| first.is_ascii_alphabetic() || "._".contains(first));
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"._".contains(&byte);
    (is_name && label.bytes().all(is_word)).then(|| label.to_owned())
}

/// Returns the files of Rust and assembly in a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(files(&path));
        } else if path
            .extension()
            .is_some_and(|extension| extension == "s" || extension == "rs")
        {
            all.push(path);
        }
    }
    all
}

/// `make test` runs no ignored test: another command has to name its test program.
#[test]
fn each_ignored_test_is_run_by_a_command() {
    let root = trapline_tests::root();
    let makefile = std::fs::read_to_string(root.join("Makefile")).expect("file is readable");
    let value = |name: &str| {
        let line = makefile.split(&format!("\n{name} :=")).nth(1);
        let joined = line.expect("variable").replace("\\\n", " ");
        joined.lines().next().unwrap_or_default().to_owned()
    };
    let (slow, fuzz) = (value("SLOW_TESTS"), value("FUZZ_TESTS"));
    let mut seen = 0;
    for c in crates() {
        let directory = root.join(&c.directory);
        for file in ["src", "tests"]
            .iter()
            .flat_map(|it| files(&directory.join(it)))
        {
            let text = std::fs::read_to_string(&file).expect("file is readable");
            let ignored = |line: &&str| line.trim().starts_with(concat!("#[ign", "ore"));
            // Those that another test starts in a process of its own.
            let is_part = |line: &&str| {
                line.contains("part of other tests") || line.contains("needs a namespace: ")
            };
            let program = program_of(&directory, &file);
            for line in text.lines().filter(ignored).filter(|line| !is_part(line)) {
                let command = if line.contains("make fuzz") || line.contains("make bench") {
                    fuzz.contains(&format!("{}:{program}", c.name))
                } else {
                    slow.contains(&format!("--test {program}"))
                };
                assert!(command, "no command runs {}: {line}", file.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 50, "{seen} ignored tests were found");
}

/// Returns the name of the test program of a file of a crate: that of its library for tests beside sources.
fn program_of(directory: &Path, file: &Path) -> String {
    let tests = directory.join("tests");
    // A crate can have all its files in one program.
    let all = tests.join("all.rs");
    let file = if all.exists() && file.starts_with(&tests) {
        &all
    } else {
        file
    };
    let Ok(path) = file.strip_prefix(&tests) else {
        return "the library".to_owned();
    };
    let first = path.iter().next().expect("a name");
    Path::new(first).with_extension("").display().to_string()
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
