//! The command line without guests: mistyped names, output formats and exit statuses.

use std::process::Stdio;
use trapline_abi::Op;
use trapline_model::EnvironmentId;
use trapline_tests::has_qemu;
use trapline_tests::run::{assert_fits_80_columns, Place};

#[test]
fn mistyped_name_suggests_the_nearest() {
    let place = Place::new();
    for (words, expected) in [
        (&["run", "--env", "sim/kmv"][..], "error: unknown value 'sim/kmv' for '--env <A,B>'\n  help: did you mean 'sim/kvm'?\n"),
        (&["run", "--workload", "port-in"], "error: unknown value 'port-in' for '--workload <W,W/OP>'\n  help: did you mean 'exits/port-in'?\n"),
        (&["run", "--preset", "quik"], "error: unknown value 'quik' for '--preset <PRESET>'\n  help: did you mean 'quick'?\n"),
        (&["run", "--boot", "2"], "error: unknown argument '--boot'\n  help: did you mean '--boots'?\n"),
        (&["list", "sim/kmv"], "error: unknown value 'sim/kmv' for '[NAME]...'\n  help: did you mean 'sim/kvm'?\n"),
        (&["dcotor"], "error: unknown command 'dcotor'\n  help: did you mean 'doctor'?\n"),
    ] {
        let result = place.run(words);
        assert_eq!(result.stderr, expected, "{words:?}");
        assert_eq!((result.status, result.stdout.as_str()), (Some(2), ""), "{words:?}");
    }
}

#[test]
fn invalid_numbers_are_rejected() {
    let place = Place::new();
    for words in [
        ["run", "--boots", "0"],
        ["run", "--boots", "many"],
        ["run", "--seed", "-1"],
        ["show", "--run", "x"],
    ] {
        let result = place.run(&words);
        assert_eq!(result.status, Some(2), "{words:?}: {}", result.stderr);
        assert!(result.stderr.starts_with("error: "), "{}", result.stderr);
        assert!(result.stderr.contains("\n  help: "), "{}", result.stderr);
    }
}

/// The environment is left out, and the others are measured.
#[test]
fn too_small_a_guest_is_reported() {
    if !has_qemu("a guest with too little memory") {
        return;
    }
    let words = ["--env", "host,sim/kvm", "--memory", "64M", "--boots", "2"];
    let json = Place::new().measure(&[&words[..], &["--workload", "basic/getpid"]].concat());
    let reason = &json["environments"]["sim/kvm"]["skip"];
    let reason = reason.as_str().unwrap_or_default();
    assert!(reason.contains("set at least memory="), "{json:#}");
}

#[test]
fn missing_kernel_is_rejected_before_the_run() {
    let place = Place::new();
    let words = [
        "run",
        "--env",
        "sim/linux",
        "--kernel",
        "/no/kernel",
        "--modules",
        "/no/modules",
    ];
    let result = place.run(&words);
    assert_eq!(result.status, Some(2), "{}", result.stderr);
    let expected = "error: kernel=/no/kernel: no such file\n  help: ";
    assert!(result.stderr.starts_with(expected), "{}", result.stderr);
    let alone = place.run(&["run", "--kernel", "/bin/sh"]);
    assert_eq!(alone.status, Some(2), "{}", alone.stderr);
    assert!(alone.stderr.contains("modules=DIR"), "{}", alone.stderr);
}

/// Without a terminal the width is 80 columns.
#[test]
fn piped_text_is_plain_and_fits_80_columns() {
    let place = Place::new();
    for words in [
        &["doctor"][..],
        &["list"],
        &["list", "--all"],
        &["--help"],
        &["run", "-h"],
        &["run", "--help"],
        &["show", "--help"],
        &["report", "--help"],
        &["export", "--help"],
        &["baseline", "--help"],
        &["check", "--help"],
        &["bisect", "--help"],
        &["explain", "--help"],
        &["irq", "--help"],
        &["populate", "--help"],
        &["block", "--help"],
        &["kernel-build", "--help"],
    ] {
        let result = place.run(words);
        assert_eq!(result.status, Some(0), "{words:?}: {}", result.stderr);
        assert!(!result.stdout.contains('\x1b'), "{words:?} colours a pipe");
        assert_fits_80_columns(&result.stdout);
    }
}

#[test]
fn doctor_rates_every_topic_with_remedies() {
    let place = Place::new();
    let result = place.run(&["doctor", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&result.stdout).expect("JSON");
    let findings = json["findings"].as_array().expect("list");
    for topic in [
        "cpu",
        "tsc",
        "nesting",
        "kvm",
        "governor",
        "smt",
        "steal",
        "mitigations",
        "huge pages",
        "tool",
        "parts",
        "environment",
    ] {
        assert!(
            findings.iter().any(|f| f["topic"] == topic),
            "no finding on {topic}"
        );
    }
    for finding in findings.iter().filter(|f| f["verdict"] == "problem") {
        assert!(finding["remedy"].is_string(), "no remedy: {finding}");
    }
    let parts = findings
        .iter()
        .find(|f| f["topic"] == "parts")
        .expect("finding exists");
    assert_eq!(parts["verdict"], "ok", "{parts}");
}

#[test]
fn list_has_every_environment_with_its_reason() {
    let place = Place::new();
    let result = place.run(&["list", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&result.stdout).expect("JSON");
    let environments = json["environments"].as_array().expect("list");
    let names: Vec<_> = environments
        .iter()
        .filter_map(|e| e["name"].as_str())
        .collect();
    let (table, vmms) = names.split_at(EnvironmentId::BUILT_IN.len());
    assert_eq!(table, EnvironmentId::BUILT_IN.map(EnvironmentId::name));
    assert!(vmms.contains(&"sim/firecracker"), "{vmms:?}");
    for environment in environments {
        let ready = environment["ready"].as_bool().expect("boolean");
        assert_eq!(ready, environment["reason"].is_null(), "{environment}");
    }
    assert_eq!(
        environments[0]["ready"], true,
        "the host can always be measured"
    );
    let operations: usize = json["workloads"]
        .as_array()
        .expect("list")
        .iter()
        .map(|workload| workload["operations"].as_array().map_or(0, Vec::len))
        .sum();
    assert_eq!(operations, Op::ALL.len());
}

#[test]
fn list_fits_a_screen_and_answers_for_names() {
    let place = Place::new();
    let screen = place.run(&["list"]).stdout;
    assert!(screen.lines().count() < 24, "{screen}");
    let exits = place.run(&["list", "exits"]).stdout;
    assert!(exits.starts_with("Workload exits: "), "{exits}");
    assert!(exits.contains("\n  port-out "), "{exits}");
    assert!(!exits.contains("Workload basic"), "{exits}");
    let environment = place.run(&["list", "sim/kvm"]).stdout;
    assert!(environment.starts_with("sim/kvm: "), "{environment}");
    assert!(environment.contains("\n  settings "), "{environment}");
    let json = place.run(&["list", "host,exits/port-out", "--format", "json"]);
    let json = json.json();
    assert_eq!(json["environments"][0]["name"], "host");
    let [environments, workloads] = ["environments", "workloads"].map(|key| json[key].as_array());
    assert_eq!(
        [environments, workloads].map(|all| all.map(Vec::len)),
        [Some(1); 2]
    );
}

#[test]
fn without_a_command_the_commands_are_listed() {
    let result = Place::new().run(&[]);
    assert_eq!((result.status, result.stdout.as_str()), (Some(2), ""));
    let lists = |text: &str| text.contains("\n  explain ") && !text.contains("error");
    assert!(lists(&result.stderr), "{result:?}");
}

#[test]
fn closed_pipe_is_no_error() {
    let place = Place::new();
    let mut command = place.trapline(&["completions", "bash"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("child is reaped");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success(), "{}", output.status);
}

#[test]
fn full_disk_is_reported() {
    let place = Place::new();
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full exists");
    let output = place
        .trapline(&["man"])
        .stdout(full)
        .output()
        .expect("program starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.starts_with("error: cannot write to standard output: No space left"),
        "{errors}"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn completions_and_manual_cover_every_command() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.run(&["completions", shell]).stdout;
        assert!(
            script.contains("COMPLETE") && script.contains("trapline"),
            "{script}"
        );
    }
    let manual = place.run(&["man"]).stdout;
    assert!(
        manual.starts_with(".ie") || manual.starts_with(".TH"),
        "{manual}"
    );
    assert!(manual.contains("XDG_DATA_HOME"), "{manual}");
    let of_run = place.run(&["man", "run"]).stdout;
    assert!(
        of_run.contains(".SH EXAMPLES") && of_run.contains("preset"),
        "{of_run}"
    );
    let mut words = place.trapline(&["--", "trapline", "run", "--env", "qemu-k"]);
    words
        .env("COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", "3");
    let completed = words.output().expect("it starts");
    let completed = String::from_utf8_lossy(&completed.stdout);
    assert!(completed.contains("qemu-kvm"), "{completed}");
}

#[test]
fn help_lists_exit_statuses() {
    let help = Place::new().run(&["--help"]).stdout;
    for line in [
        "0    something was measured",
        "2    invalid command line",
        "3    two runs",
        "4    nothing that was asked for can be measured",
        "5    irq: the requirement of --require",
        "130  interrupted",
    ] {
        assert!(help.contains(line), "{help}");
    }
}
