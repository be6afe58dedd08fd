//! `[vmm.NAME]` in plans and in the configuration: environments by name.

use std::path::PathBuf;
use trapline_tests::measurements::{cell, estimate, facts};
use trapline_tests::run::{unavailable_reason, Place};
use trapline_tests::{parts, skip};

/// Defines trapline-vmm twice, `plain` without its seccomp filter.
fn definitions() -> String {
    let vmm = parts().join("trapline-vmm");
    let command = format!(
        "{} --image {{image}} --memory {{memory}}M --cmdline {{cmdline}}",
        vmm.display()
    );
    format!(
        "[vmm.filtered]\ncommand = '{command}'\n[vmm.plain]\ncommand = '{command} --no-sandbox'\n"
    )
}

fn configure(place: &Place, text: &str) -> PathBuf {
    let directory = place.path().join("trapline");
    std::fs::create_dir_all(&directory).expect("place is writable");
    let file = directory.join("config.toml");
    std::fs::write(&file, text).expect("place is writable");
    file
}

#[test]
fn vmms_of_a_plan_are_measured_side_by_side() {
    let place = Place::new();
    let plan = place.path().join("study.toml");
    let head = "environments = ['sim/filtered', 'sim/plain']\nworkloads = ['exits/port-out']\n";
    std::fs::write(&plan, format!("{head}{}", definitions())).expect("place is writable");
    let store = place.store();
    let [plan, store] = [&plan, &store].map(|path| path.to_str().expect("path is UTF-8"));
    let json = place
        .run(&["run", plan, "--format", "json", "--store", store])
        .json();
    if let Some(reason) = cell(&json, "sim/plain", "port-out")["skip"].as_str() {
        return skip("VMMs of a plan on the simulated machine", reason);
    }
    let [filtered, plain] = ["sim/filtered", "sim/plain"].map(|it| estimate(&json, it, "port-out"));
    assert!(
        filtered > plain + 100.0,
        "the filter costs {filtered} - {plain}"
    );
    let facts = facts(&json, "sim/plain");
    assert!(facts["plain-vmm-sha256"].is_string(), "{facts:#}");
    // Nothing defines these names here.
    let shown = Place::new().run(&["show", "--store", store]);
    assert!(
        shown.stdout.contains("sim/filtered  sim/plain"),
        "{shown:?}"
    );
}

#[test]
fn vmms_of_the_configuration_are_listed() {
    let place = Place::new();
    configure(
        &place,
        &format!("{}[vmm.broken]\ncommand = 'vmm {{image}}'\n", definitions()),
    );
    let list = place.run(&["list", "--format", "json"]);
    let reason = unavailable_reason(&list, "broken").expect("a command without {cmdline}");
    assert!(
        reason.starts_with("vmm.broken: placeholder {cmdline} is missing"),
        "{reason}"
    );
    let command_line = place.run(&["run", "--env", "sim/plian"]);
    assert!(
        command_line.stderr.contains("did you mean 'sim/plain'?"),
        "{command_line:?}"
    );
}

#[test]
fn invalid_configuration_is_rejected_with_its_line() {
    let place = Place::new();
    let file = configure(&place, "\n[vmm.KVM]\ncommand = 'x'\n");
    let result = place.run(&["list"]);
    assert_eq!((result.status, result.stdout.as_str()), (Some(2), ""));
    let expected = format!("error: {}, line 2: VMM 'KVM': a name has", file.display());
    assert!(result.stderr.starts_with(&expected), "{}", result.stderr);
    assert!(result.stderr.contains("\n  help: "), "{}", result.stderr);
    // Help needs no configuration.
    assert_eq!(place.run(&["--help"]).status, Some(0));
}
