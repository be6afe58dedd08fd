//! QEMU without optional features, plugins and images of another build, programs without symbols:
//! unaffected figures are measured, the rest is reported with a remedy.

use serde_json::Value;
use trapline_tests::run::{CommandOutput, Place};
use trapline_tests::{has_qemu, skip};

/// Returns a directory whose QEMU runs the shell script `script` first, if QEMU is installed.
fn with_qemu(feature: &str, script: &str) -> Option<Place> {
    has_qemu(feature).then(|| {
        let place = Place::new();
        place.wrap_qemu(script);
        place
    })
}

/// Rejects an option like a QEMU that was built without it.
fn refusing(option: &str) -> String {
    let words = format!("qemu-system-x86_64: {option}: invalid option");
    format!("for word; do [ \"$word\" != {option} ] || {{ echo '{words}' >&2; exit 1; }}; done")
}

/// Rejects a plugin like a QEMU with a newer API.
const NEWER_API: &str = "last=; for word; do\n\
    if [ \"$last\" = -plugin ]; then\n\
        echo \"qemu-system-x86_64: -plugin $word: TCG plugin ${word%%,*} requires API version \
               1, but this QEMU supports only a minimum version of 2\" >&2\n\
        exit 1\n\
    fi\n\
    last=$word\ndone";

/// Disables SVM of the CPU.
const WITHOUT_SVM: &str = "count=$#\n\
    while [ $count -gt 0 ]; do\n\
        word=$1; shift; [ \"$word\" != max ] || word=max,-svm\n\
        set -- \"$@\" \"$word\"; count=$((count - 1))\n\
    done";

/// Checks that the command failed with these words and a remedy.
#[track_caller]
fn assert_fails(result: &CommandOutput, words: &[&str]) {
    assert_eq!(result.status, Some(1), "{result:?}");
    assert!(result.stderr.starts_with("error: "), "{result:?}");
    assert!(result.stderr.contains("\n  help: "), "{result:?}");
    for word in words {
        assert!(result.stderr.contains(word), "no '{word}' in {result:?}");
    }
}

/// Returns the cell of `getpid` in `run --format json`.
fn getpid(place: &Place, environment: &str) -> Value {
    let words = ["-q", "--env", environment, "--workload", "basic/getpid"];
    place.measure(&words)["cells"][0].clone()
}

const SIM: [&str; 4] = ["--env", "sim", "--workload", "basic/getpid"];

#[test]
fn figures_need_no_plugin_but_explain_does() {
    for (script, why) in [
        (refusing("-plugin"), "-plugin: invalid option"),
        (NEWER_API.to_owned(), "supports only a minimum version of 2"),
    ] {
        let Some(place) = with_qemu("a QEMU that loads no plugin", &script) else {
            return;
        };
        let remedy = "QEMU with plugins of API version 1";
        let explained = place.run(&["explain", "sim", "basic/getpid"]);
        assert_fails(&explained, &[why, remedy]);

        let made = place.run(&[&["baseline"][..], &SIM].concat());
        assert_eq!(made.status, Some(0), "{made:?}");
        let note = "\nnote: the baseline has no profiles: QEMU ";
        assert!(made.stderr.contains(note), "{made:?}");
        assert!(made.stderr.contains(why), "{made:?}");

        let file = place.path().join("baseline.json");
        std::fs::write(&file, &made.stdout).expect("write succeeds");
        let file = file.to_str().expect("path is UTF-8");
        let same = place.run(&["check", "--baseline", file]);
        assert_eq!(same.status, Some(0), "{same:?}");

        let mut json: Value = serde_json::from_str(&made.stdout).expect("JSON");
        json["environments"]["sim"]["figures"]["insn"]["basic/getpid"] = 1.into();
        std::fs::write(file, json.to_string()).expect("write succeeds");
        let changed = place.run(&["check", "--baseline", file]);
        assert_eq!(changed.status, Some(1), "{changed:?}");
        assert!(
            changed
                .stdout
                .contains("note: the functions that gained or lost are unknown"),
            "{changed:?}"
        );
    }
}

#[test]
fn plugin_of_another_build_is_reported() {
    // Prints the output of a plugin before its format had a version.
    let script = "for word; do case $word in *probe=on) \
                  echo 'trapline-profile: ready' >&2; exit 1;; esac; done";
    let Some(place) = with_qemu("a plugin of another build", script) else {
        return;
    };
    let result = place.run(&["explain", "sim", "basic/getpid"]);
    let messages = ["libtrapline_profile.so is of another build", "make build"];
    assert_fails(&result, &messages);
}

#[test]
fn instruction_clock_requires_icount() {
    let feature = "a QEMU that cannot count";
    let Some(place) = with_qemu(feature, &refusing("-icount")) else {
        return;
    };
    for environment in ["sim", "sim/linux", "sim/kvm", "sim/qemu-kvm"] {
        let reason = getpid(&place, environment)["skip"].to_string();
        for word in ["-icount: invalid option", "apt-get install"] {
            assert!(reason.contains(word), "{environment}: {reason}");
        }
    }
    let result = place.run(&[&["baseline"][..], &SIM].concat());
    assert_eq!(result.status, Some(4), "{result:?}");
    assert!(
        result.stderr.contains("cannot be the machine"),
        "{result:?}"
    );
}

#[test]
fn only_the_bare_machine_runs_without_svm() {
    let Some(place) = with_qemu("a QEMU without SVM", WITHOUT_SVM) else {
        return;
    };
    assert!(getpid(&place, "sim")["estimate"].is_number());
    for environment in ["sim/linux", "sim/kvm", "sim/qemu-kvm"] {
        let reason = getpid(&place, environment)["skip"].to_string();
        for word in ["has no SVM", "apt-get install", "'sim' works"] {
            assert!(reason.contains(word), "{environment}: {reason}");
        }
    }
}

/// Replaces markers: the assembler's padding.
const PADDING: [u8; 8] = [0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];

/// Returns a directory whose image has no markers of these kinds.
fn without_marks(kinds: &[u8]) -> Place {
    let place = Place::new();
    let mut image = std::fs::read(place.parts().join("trapline-image")).expect("part is built");
    for kind in kinds {
        let mark = trapline_abi::marker::of_batch(*kind);
        let found: Vec<_> = (0..image.len() - 8)
            .filter(|at| image[*at..].starts_with(&mark))
            .collect();
        assert!(!found.is_empty(), "the image has no marks");
        found
            .iter()
            .for_each(|at| image[*at..*at + 8].copy_from_slice(&PADDING));
    }
    place.replace("trapline-image", &image);
    place
}

#[test]
fn invalid_markers_yield_no_profile() {
    use trapline_abi::marker::{BEGIN, END};
    if !has_qemu("an image whose marks do not fit") {
        return;
    }
    for (kinds, message) in [
        (
            &[BEGIN][..],
            "marks are missing: a batch ended that had not begun",
        ),
        (
            &[END],
            "marks are nested: a batch began before the last one had ended",
        ),
        (&[BEGIN, END], "batches; plugin saw no markers"),
    ] {
        let place = without_marks(kinds);
        let result = place.run(&["explain", "sim", "basic/getpid"]);
        if result.stderr.contains("cannot load the plugin") {
            return skip("marks that do not fit", result.stderr.trim());
        }
        assert_fails(&result, &["sim: ", message, "make build"]);
        // Figures do not depend on markers.
        assert!(getpid(&place, "sim")["estimate"].is_number());
    }
}

/// Removes the sections of an ELF file, which has no symbols then but still loads (System V ABI, ELF header: `e_shoff`; `e_shentsize` to `e_shstrndx`).
fn stripped(mut elf: Vec<u8>) -> Vec<u8> {
    elf[0x28..0x30].fill(0);
    elf[0x3a..0x40].fill(0);
    elf
}

#[test]
fn stripped_programs_are_profiled_as_one_entry() {
    for (part, environment, operation, name) in [
        ("trapline-image", "sim", "basic/getpid", "guest"),
        ("trapline-vmm", "sim/kvm", "exits/port-out", "trapline-vmm"),
    ] {
        let feature = "a program without symbols";
        if !has_qemu(feature) {
            return;
        }
        let place = Place::new();
        let bytes = std::fs::read(place.parts().join(part)).expect("part is built");
        place.replace_program(part, &stripped(bytes));
        let result = place.run(&["explain", environment, operation, "--format", "json"]);
        if result.status == Some(1) {
            return skip(feature, result.stderr.trim());
        }
        let note = format!("{part} has no symbols: its instructions are listed as [{name}]");
        assert!(result.stderr.contains(&note), "{result:?}");
        let json: Value = serde_json::from_str(&result.stdout).expect("JSON");
        assert_eq!(json["residual"], 0);
        let functions = json["functions"].as_array().expect("list").iter();
        let mut of_part = functions.filter(|item| item["component"] == name);
        let only = of_part.next().expect("component is in the profile");
        assert_eq!(only["function"], format!("[{name}]"));
        assert_eq!(of_part.next(), None);
    }
}
