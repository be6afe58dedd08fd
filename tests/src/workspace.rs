//! The crates of the workspace and their dependencies, read from `cargo metadata`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

/// A crate of the workspace.
#[derive(Debug)]
pub struct Crate {
    /// Name of the package.
    pub name: String,
    /// Directory below the repository: `vmm/kvm`.
    pub directory: String,
    /// Dependencies within the workspace, without those of tests and build scripts.
    pub internal: BTreeSet<String>,
    /// Dependencies outside the workspace, without those of tests and build scripts.
    pub external: BTreeSet<String>,
    /// Root files of its library and programs.
    pub roots: Vec<PathBuf>,
}

impl Crate {
    /// Returns the first component of its directory: `guest`, `vmm`, `lab` or `tests`.
    pub fn layer(&self) -> &str {
        self.directory.split('/').next().unwrap_or_default()
    }
}

/// Returns all crates in the order of the workspace's list of members.
///
/// # Panics
/// If `cargo metadata` fails.
pub fn crates() -> Vec<Crate> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .current_dir(crate::root())
        .output()
        .expect("cargo starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut crates: Vec<Crate> = list(&metadata["packages"]).iter().map(read).collect();
    let order = members();
    crates.sort_by_key(|read| order.iter().position(|member| *member == read.directory));
    crates
}

fn read(package: &serde_json::Value) -> Crate {
    // Normal dependencies have no kind; "dev" and "build" do.
    let normal = list(&package["dependencies"])
        .iter()
        .filter(|dependency| dependency["kind"].is_null());
    let (internal, external): (Vec<_>, Vec<_>) = normal.partition(|d| d["path"].is_string());
    let names = |list: Vec<&serde_json::Value>| list.iter().map(|d| text(&d["name"])).collect();
    let programs_and_library = list(&package["targets"]).iter().filter(|target| {
        let kinds = list(&target["kind"]);
        kinds.iter().any(|kind| kind == "lib" || kind == "bin")
    });
    Crate {
        name: text(&package["name"]),
        directory: directory_of(&text(&package["manifest_path"])),
        internal: names(internal),
        external: names(external),
        roots: programs_and_library
            .map(|target| text(&target["src_path"]).into())
            .collect(),
    }
}

fn list(value: &serde_json::Value) -> &[serde_json::Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn directory_of(manifest: &str) -> String {
    let directory = manifest.trim_end_matches("/Cargo.toml");
    let root = crate::root().display().to_string();
    directory
        .trim_start_matches(&root)
        .trim_start_matches('/')
        .to_owned()
}

/// Returns the directories that the root manifest lists, in its order. `cargo metadata`
/// sorts them, and adds path dependencies that are not listed.
///
/// # Panics
/// If the manifest cannot be read.
pub fn members() -> Vec<String> {
    let manifest = std::fs::read_to_string(crate::root().join("Cargo.toml")).expect("file exists");
    let list = manifest
        .split_once("members = [")
        .expect("list of members")
        .1;
    let list = list.split_once(']').expect("closing bracket").0;
    let names = list
        .split(',')
        .map(|name| name.trim().trim_matches('"').to_owned());
    names.filter(|name| !name.is_empty()).collect()
}
