//! The workspace as cargo sees it: which crate uses which.

use std::collections::BTreeSet;
use std::process::Command;

/// A crate of the workspace.
#[derive(Debug)]
pub struct Room {
    /// Name of the crate.
    pub name: String,
    /// Its directory within the repository: `vmm/kvm`.
    pub place: String,
    /// Crates of the workspace that it uses, not counting those of its tests.
    pub uses: BTreeSet<String>,
    /// Crates of others that it uses.
    pub foreign: BTreeSet<String>,
}

/// All crates, in the order of the workspace's list of members.
///
/// # Panics
/// If cargo cannot tell: then nothing can be tested.
pub fn rooms() -> Vec<Room> {
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
        .expect("cargo can be run");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let packages = metadata["packages"].as_array().expect("there are packages");
    let mut rooms: Vec<Room> = packages.iter().map(room).collect();
    let order = members();
    rooms.sort_by_key(|room| order.iter().position(|place| *place == room.place));
    rooms
}

fn room(package: &serde_json::Value) -> Room {
    let dependencies = package["dependencies"].as_array().expect("a list");
    // Normal dependencies have no kind; "dev" and "build" do.
    let normal = dependencies.iter().filter(|d| d["kind"].is_null());
    let (own, foreign): (Vec<_>, Vec<_>) = normal.partition(|d| d["path"].is_string());
    let names = |list: Vec<&serde_json::Value>| list.iter().map(|d| text(&d["name"])).collect();
    Room {
        name: text(&package["name"]),
        place: place_of(&text(&package["manifest_path"])),
        uses: names(own),
        foreign: names(foreign),
    }
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn place_of(manifest: &str) -> String {
    let directory = manifest.trim_end_matches("/Cargo.toml");
    let root = crate::root().display().to_string();
    directory
        .trim_start_matches(&root)
        .trim_start_matches('/')
        .to_owned()
}

/// Places in the order in which the root manifest lists them: `cargo metadata`
/// sorts them, and adds what the manifest forgot.
///
/// # Panics
/// If the manifest cannot be read.
pub fn members() -> Vec<String> {
    let manifest = std::fs::read_to_string(crate::root().join("Cargo.toml")).expect("it is there");
    let list = manifest
        .split_once("members = [")
        .expect("there are members")
        .1;
    let list = list.split_once(']').expect("the list ends").0;
    let names = list
        .split(',')
        .map(|name| name.trim().trim_matches('"').to_owned());
    names.filter(|name| !name.is_empty()).collect()
}
