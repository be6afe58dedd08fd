//! `trapline explain`: profiles add up to the measured figure and are reproducible.

use serde_json::Value;
use std::sync::OnceLock;
use trapline_tests::has_qemu;
use trapline_tests::run::{Ended, Place};

fn explain(place: &Place, words: &[&str]) -> Ended {
    place.run(&[&["explain"], words].concat())
}

/// The profile of an operation, as text and as JSON; `None` where something is
/// missing that this machine need not have.
fn profile(place: &Place, environment: &str, operation: &str) -> Option<(String, Value)> {
    profile_with(place, environment, operation, &[])
}

/// The same with more words on the command line.
fn profile_with(
    place: &Place,
    environment: &str,
    operation: &str,
    more: &[&str],
) -> Option<(String, Value)> {
    let what = format!("explaining {operation} in {environment}");
    if !has_qemu(&what) {
        return None;
    }
    let words = [environment, operation, "--format", "json"];
    let ended = explain(place, &[&words, more].concat());
    let unnamed = ended.errors.contains("Xen has no symbols");
    if unnamed {
        trapline_tests::skip(&what, ended.errors.trim());
        return None;
    }
    let missing = [
        "cannot load the plugin",
        "no kernel package",
        "no Xen package",
        "no package",
        "apt-get download",
        "is not here",
    ];
    if ended.status == Some(1) && missing.iter().any(|words| ended.errors.contains(words)) {
        trapline_tests::skip(&what, ended.errors.trim());
        return None;
    }
    assert_eq!(ended.status, Some(0), "{}", ended.errors);
    let json = serde_json::from_str(&ended.output).expect("one JSON object");
    Some((ended.output, json))
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

/// Returns the figure of `trapline run` for the same operation.
fn figure(place: &Place, environment: &str, operation: &str) -> f64 {
    let json = place.measure(&["-q", "--env", environment, "--workload", operation]);
    let cells = json["cells"].as_array().expect("there are cells");
    let (_, name) = operation.split_once('/').expect("a path");
    let cell = cells.iter().find(|cell| cell["operation"] == name);
    number(&cell.expect("it was measured")["estimate"])
}

#[track_caller]
fn assert_adds_up(profile: &Value) {
    assert_eq!(profile["residual"], 0, "{profile:#}");
    let functions = profile["functions"].as_array().expect("a list");
    let sum: f64 = functions.iter().map(|item| number(&item["insn"])).sum();
    assert_near(sum, number(&profile["total"]), profile);
}

/// That a sum of quotients is a quotient of sums, but for what rounding leaves.
#[track_caller]
fn assert_near(sum: f64, total: f64, of: &Value) {
    assert!((sum - total).abs() < 1e-6 + 1e-12 * total, "{sum}: {of:#}");
}

#[test]
fn all_instructions_of_the_bare_machine_belong_to_the_image() {
    let place = Place::new();
    for operation in ["basic/getpid", "exits/port-out"] {
        let Some((_, json)) = profile(&place, "sim", operation) else {
            return;
        };
        assert_adds_up(&json);
        assert_eq!(number(&json["total"]), figure(&place, "sim", operation));
    }
}

#[test]
fn profile_of_an_exit_is_complete() {
    let Some(Drawn { text, json, .. }) = drawn_once() else {
        return;
    };
    assert_adds_up(json);
    assert_eq!(json["exits"], json["operations"], "one exit each");
    let [environment, operation] = DRAWN;
    let measured = figure(&Place::new(), environment, operation);
    assert_eq!(number(&json["total"]), measured);
    for component in ["guest", "kvm_amd", "kvm", "kernel", "trapline-vmm"] {
        let functions = json["functions"].as_array().expect("a list");
        let found = functions.iter().find(|item| item["component"] == component);
        let insn = found.map_or(0.0, |item| number(&item["insn"]));
        assert!(insn >= 1.0, "nothing of {component}: {text}");
    }
    assert!(text.contains("\"__svm_vcpu_run\""), "{text}");
}

/// One pair of runs gives the profiles of a whole workload, each the figure that
/// `trapline run` shows for that workload.
#[test]
fn workload_is_explained_by_operation() {
    let place = Place::new();
    let Some((_, json)) = profile(&place, "sim", "exits") else {
        return;
    };
    let profiles = json["ledgers"].as_array().expect("a list");
    let measured = place.measure(&["-q", "--env", "sim", "--workload", "exits"]);
    let cells = measured["cells"].as_array().expect("there are cells");
    let mut explained = 0;
    for cell in cells.iter().filter(|cell| cell["estimate"].is_number()) {
        let path = format!("exits/{}", cell["operation"].as_str().expect("a name"));
        let found = profiles
            .iter()
            .find(|profile| profile["operation"] == *path);
        match found {
            None => assert_eq!(path, "exits/timer-wake"),
            Some(profile) => {
                assert_adds_up(profile);
                assert_eq!(profile["total"], cell["estimate"], "{path}");
                explained += 1;
            }
        }
    }
    assert_eq!(explained, profiles.len());
    assert!(explained >= 5, "{json:#}");
    let ended = explain(&place, &["sim", "exits"]);
    assert!(
        ended
            .errors
            .starts_with("note: exits/hypercall is not measured in sim: "),
        "{ended:?}"
    );
}

/// Nobody tells how a domain's clock relates to the machine's, but all that was executed
/// from exec to the end is what the machine's clock says.
#[test]
#[ignore = "slow: make test-all"]
fn profile_of_a_domain_start_is_complete_by_stage() {
    let place = Place::new();
    let Some((_, json)) = profile(&place, "sim/xen-pvh", "boot/exit") else {
        return;
    };
    assert_adds_up(&json);
    let stages = [
        "guest-entry",
        "guest-main",
        "first-sample",
        "guest-exit",
        "reaped",
    ];
    assert_eq!(assert_stages_add_up(&json), stages);
    assert_named(
        &json,
        &[
            ("guest", "trapline_main"),
            ("xen", "svm_vmexit_handler"),
            ("xen", "clear_page"),
            ("dom0-kernel", "do_execveat_common"),
            ("xen_privcmd", "privcmd_ioctl"),
            ("xenstored", "[xenstored]"),
            ("libxenlight", "libxl_"),
            ("trapline-agent", "__execve"),
        ],
    );
}

/// From the guest to Xen, the first domain's kernel, the device model there, and back.
#[test]
#[ignore = "slow: make test-all"]
fn profile_of_a_domain_device_includes_dom0() {
    let place = Place::new();
    let (environment, operation) = ("sim/xen-hvm", "exits/port-out");
    let Some((_, json)) = profile(&place, environment, operation) else {
        return;
    };
    assert_adds_up(&json);
    assert_eq!(
        number(&json["total"]),
        figure(&place, environment, operation)
    );
    assert_named(
        &json,
        &[
            ("guest", "trapline_workloads"),
            ("xen", "svm_vmexit_handler"),
            ("xen", "pv_hypercall"),
            ("dom0-kernel", "do_sys_poll"),
            ("xen_evtchn", "evtchn_interrupt"),
            ("device-model", "[device-model]"),
            ("libxenevtchn", "xenevtchn_notify"),
        ],
    );
}

/// Environment and operation of the flame graph.
const DRAWN: [&str; 2] = ["sim/kvm", "exits/port-out"];

/// The profile of [`DRAWN`] and its flame graph.
#[derive(PartialEq)]
struct Drawn {
    text: String,
    json: Value,
    svg: String,
}

fn draw() -> Option<Drawn> {
    let place = Place::new();
    let file = place.path().join("one.svg");
    let name = file.to_str().expect("a plain name");
    let (text, json) = profile_with(&place, DRAWN[0], DRAWN[1], &["--flamegraph", name])?;
    let svg = std::fs::read_to_string(file).expect("it is drawn");
    Some(Drawn { text, json, svg })
}

/// The profile that all tests share.
fn drawn_once() -> Option<&'static Drawn> {
    static DRAWN: OnceLock<Option<Drawn>> = OnceLock::new();
    DRAWN.get_or_init(draw).as_ref()
}

#[test]
fn flame_graph_shows_vmm_kernel_and_guest() {
    let Some(drawn) = drawn_once() else {
        return;
    };
    let Drawn { json, svg, .. } = drawn;
    assert_adds_up(json);
    assert_stacks_add_up(json);
    assert_a_stack_leads_to_the_guest(json);
    assert_stands_alone(svg);
    for label in [
        "trapline-vmm`_start",
        "kernel`entry_SYSCALL_64",
        "kvm_amd`__svm_vcpu_run",
    ] {
        assert!(svg.contains(label), "{label} is not drawn");
    }
    assert!(draw().as_ref() == Some(drawn), "two profiles differ");
}

fn stacks(profile: &Value) -> Vec<(Vec<&str>, f64)> {
    let stacks = profile["stacks"].as_array().expect("a list");
    let stack = |stack: &'_ Value| number(&stack["insn"]);
    let frames = stacks.iter().map(|stack| {
        let frames = stack["frames"].as_array().expect("a list").iter();
        frames
            .map(|frame| frame.as_str().expect("a name"))
            .collect()
    });
    frames.zip(stacks.iter().map(stack)).collect()
}

/// All that was counted is in one stack or another, and all stacks begin with
/// the program that runs the guest, or are of a kernel thread that ran within a batch.
#[track_caller]
fn assert_stacks_add_up(profile: &Value) {
    let stacks = stacks(profile);
    let sum: f64 = stacks.iter().map(|(_, insn)| insn).sum();
    let counted = number(&profile["counted"]) / number(&profile["operations"]);
    assert!((sum - counted).abs() < 1e-6, "{sum} of {counted}");
    for (frames, _) in &stacks {
        let is_vmm = frames[0] == "trapline-vmm`_start";
        assert!(is_vmm || frames[0].starts_with("kernel`"), "{frames:?}");
        let thunk = frames.iter().find(|frame| frame.contains("_thunk"));
        assert_eq!(thunk, None, "{frames:?}");
    }
}

#[track_caller]
fn assert_a_stack_leads_to_the_guest(profile: &Value) {
    let way = [
        "trapline-vmm`main",
        "trapline-vmm`trapline_machine::machine::Machine<V>::run",
        "kernel`entry_SYSCALL_64",
        "kvm`kvm_arch_vcpu_ioctl_run",
        "kvm_amd`__svm_vcpu_run",
        "guest`trapline_workloads::run",
    ];
    let stacks = stacks(profile);
    let holds = |frames: &Vec<&str>| {
        let mut frames = frames.iter();
        way.iter().all(|step| frames.any(|frame| frame == step))
    };
    assert!(
        stacks.iter().any(|(frames, _)| holds(frames)),
        "{stacks:#?}"
    );
}

/// It is well-formed, and names nothing outside of itself but its namespaces.
#[track_caller]
fn assert_stands_alone(svg: &str) {
    let mut reader = quick_xml::Reader::from_str(svg);
    loop {
        match reader.read_event().expect("well-formed XML") {
            quick_xml::events::Event::Eof => break,
            quick_xml::events::Event::DocType(_) => panic!("names a file elsewhere"),
            quick_xml::events::Event::Start(tag) | quick_xml::events::Event::Empty(tag) => {
                for attribute in tag.attributes() {
                    let attribute = attribute.expect("well-formed");
                    let (key, value) = (attribute.key.as_ref(), attribute.value.as_ref());
                    let value = String::from_utf8_lossy(value);
                    let is_name = key.starts_with(b"xmlns");
                    let is_local = !value.contains("//") && !key.ends_with(b"href");
                    assert!(is_name || is_local, "refers to {value}");
                }
            }
            _ => {}
        }
    }
    assert!(!svg.contains("@import"), "loads a style");
    assert_eq!(
        svg.matches("http://").count(),
        svg.matches("=\"http://").count()
    );
}

/// A thread that waits is not called by the one that runs meanwhile.
#[test]
fn linux_threads_have_separate_stacks() {
    let place = Place::new();
    let file = place.path().join("yield.svg");
    let more = ["--flamegraph", file.to_str().expect("a plain name")];
    let Some((_, json)) = profile_with(&place, "sim/linux", "basic/yield", &more) else {
        return;
    };
    let stacks = stacks(&json);
    let of = |root: &str| -> f64 {
        let stacks = stacks.iter().filter(|(frames, _)| frames[0] == root);
        stacks.map(|(_, insn)| insn).sum()
    };
    let (main, peer) = (of("trapline-agent`_start"), of("trapline-agent`__clone3"));
    // Kernel threads may run within a batch, too.
    let kernel = stacks
        .iter()
        .filter(|(frames, _)| frames[0].starts_with("kernel`"));
    let kernel: f64 = kernel.map(|(_, insn)| insn).sum();
    let counted = number(&json["counted"]) / number(&json["operations"]) - kernel;
    assert!((main + peer - counted).abs() < 1e-6, "{stacks:#?}");
    // What the scheduler does once in all batches is of one of them.
    assert!(main > 0.1 * counted && peer > 0.1 * counted, "{stacks:#?}");
}

#[test]
fn unwritable_flame_graph_is_rejected_before_the_run() {
    let place = Place::new();
    // Whatever came to be started would complain of this.
    place.replace("libtrapline_profile.so", b"no library");
    for (more, told) in [
        (
            &["--flamegraph", "/no/such/place.svg"][..],
            "--flamegraph: cannot write /no/such/place.svg: No such file",
        ),
        (
            &["--flamegraph", "/"],
            "--flamegraph: cannot write /: Is a directory",
        ),
    ] {
        let ended = explain(&place, &[&DRAWN, more].concat());
        assert_eq!(ended.status, Some(2), "{ended:?}");
        assert!(ended.errors.contains(told), "{ended:?}");
        assert!(ended.errors.contains("help: "), "{ended:?}");
    }
}

/// The functions of a component that a profile names.
fn functions<'a>(profile: &'a Value, component: &str) -> Vec<&'a str> {
    let items = profile["functions"].as_array().expect("a list");
    let of = items.iter().filter(|item| item["component"] == component);
    of.filter_map(|item| item["function"].as_str()).collect()
}

#[track_caller]
fn assert_named(profile: &Value, named: &[(&str, &str)]) {
    for (component, wanted) in named {
        let functions = functions(profile, component);
        let found = functions.iter().any(|name| name.starts_with(wanted));
        assert!(found, "no {wanted} in {component}: {functions:?}");
    }
}

/// The names of the stages of a start, which add up to it, each by itself; only where
/// the machine slept something is not explained.
#[track_caller]
fn assert_stages_add_up(profile: &Value) -> Vec<&str> {
    let stages = profile["stages"].as_array().expect("a list of stages");
    let total: f64 = stages.iter().map(|stage| number(&stage["total"])).sum();
    assert_near(total, number(&profile["total"]), profile);
    for stage in stages {
        let functions = stage["functions"].as_array().expect("a list");
        let sum: f64 = functions.iter().map(|item| number(&item["insn"])).sum();
        assert_near(sum, number(&stage["total"]), stage);
        let slept = stage["halts"] != 0;
        assert!(slept || stage["residual"] == 0, "{stage:#}");
        let residual = number(&stage["residual"]);
        assert!(residual >= 0.0, "{stage:#}");
    }
    let name = |stage: &'static str| move |s: &Value| s[stage].as_str().map(str::to_owned);
    let ends = stages.iter().filter_map(name("stage"));
    let begins = stages.iter().filter_map(name("from")).skip(1);
    assert!(ends.zip(begins).all(|(end, begin)| end == begin));
    let ends = stages.iter().filter_map(|stage| stage["stage"].as_str());
    ends.collect()
}

#[test]
fn profile_of_a_start_is_complete_by_stage() {
    let place = Place::new();
    let operation = "boot/main";
    for (environment, stages, named) in [
        (
            "sim/linux",
            &["guest-main"][..],
            &[
                ("kernel", "do_execveat_common"),
                ("trapline-agent", "_start"),
            ][..],
        ),
        (
            "sim/kvm",
            &[
                "vmm-main",
                "vm-created",
                "vmm-entry",
                "guest-entry",
                "guest-main",
            ],
            &[
                ("kernel", "do_execveat_common"),
                ("kvm", "kvm_vm_ioctl"),
                ("kvm_amd", "__svm_vcpu_run"),
                ("trapline-vmm", "main"),
                ("trapline-agent", "__execve"),
                ("guest", "trapline_direct_entry"),
            ],
        ),
    ] {
        let Some((_, json)) = profile(&place, environment, operation) else {
            return;
        };
        assert_adds_up(&json);
        assert_eq!(assert_stages_add_up(&json), stages);
        assert_eq!(
            number(&json["total"]),
            figure(&place, environment, operation)
        );
        assert_named(&json, named);
    }
}

#[test]
fn flame_graph_requires_one_operation_and_environment() {
    let place = Place::new();
    for words in [&["sim", "sim/kvm", "exits/port-out"][..], &["sim", "exits"]] {
        let ended = explain(&place, &[words, &["--flamegraph", "x.svg"]].concat());
        assert_eq!(ended.status, Some(2), "{ended:?}");
        let told = "--flamegraph draws one operation";
        assert!(ended.errors.contains(told), "{ended:?}");
    }
    let start = ["sim/kvm", "boot/main", "--flamegraph", "x.svg"];
    let ended = explain(&place, &start);
    assert_eq!(ended.status, Some(2), "{ended:?}");
    let told = "--flamegraph is not supported by workload boot";
    assert!(ended.errors.contains(told), "{ended:?}");
    let domain = ["sim/xen-pvh", "exits/cpuid", "--flamegraph", "x.svg"];
    let ended = explain(&place, &domain);
    assert_eq!(ended.status, Some(2), "{ended:?}");
    let told = "--flamegraph is not supported by sim/xen-pvh";
    assert!(ended.errors.contains(told), "{ended:?}");
}

#[test]
#[ignore = "slow: make test-all"]
fn profile_of_a_whole_boot_lacks_sleep_only() {
    let place = Place::new();
    let Some((_, json)) = profile(&place, "sim/kvm", "boot/exit") else {
        return;
    };
    let stages = assert_stages_add_up(&json);
    assert_eq!(stages.last(), Some(&"reaped"));
    assert_named(&json, &[("kernel", "do_exit"), ("kvm", "kvm_vm_release")]);
}

#[test]
fn bare_machine_has_no_start_to_explain() {
    if !has_qemu("the start of a bare machine") {
        return;
    }
    let ended = explain(&Place::new(), &["sim", "boot/main"]);
    if ended.errors.contains("cannot load the plugin") {
        return trapline_tests::skip("the start of a bare machine", ended.errors.trim());
    }
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let told = "boot/main is not measured in sim: the bare machine has no VMM";
    assert!(ended.errors.contains(told), "{ended:?}");
}

#[test]
fn difference_of_identical_profiles_is_empty() {
    if !has_qemu("the difference of two profiles") {
        return;
    }
    let place = Place::new();
    let words = ["sim", "sim", "exits/port-out", "--format", "json"];
    let ended = explain(&place, &words);
    if ended.errors.contains("cannot load the plugin") {
        return trapline_tests::skip("the difference of two profiles", ended.errors.trim());
    }
    assert_eq!(ended.status, Some(0), "{}", ended.errors);
    let json: Value = serde_json::from_str(&ended.output).expect("one JSON object");
    assert_eq!(
        json["changes"],
        serde_json::json!([]),
        "a profile differs from itself"
    );
    assert_eq!(number(&json["difference"]), 0.0);
}

#[test]
fn unexplainable_operations_are_rejected_with_alternatives() {
    let place = Place::new();
    for (words, told) in [
        (["kvm", "exits/port-out"], "is not on the instruction clock"),
        (
            ["sim", "exits/timer-wake"],
            "explain is not supported by exits/timer-wake",
        ),
        (
            ["sim", "stream"],
            "name an operation of basic, system, exits, boot or populate",
        ),
        (["sim/kmv", "exits"], "did you mean 'sim/kvm'?"),
        (["sim", "exits/port-oot"], "did you mean 'exits/port-out'?"),
    ] {
        let ended = explain(&place, &words);
        assert_eq!(ended.status, Some(2), "{ended:?}");
        assert!(ended.errors.contains(told), "{ended:?}");
    }
}

#[test]
fn unloadable_plugin_is_reported_with_a_remedy() {
    if !has_qemu("a plugin that QEMU cannot load") {
        return;
    }
    let place = Place::new();
    place.replace("libtrapline_profile.so", b"no library");
    let ended = explain(&place, &["sim", "basic/getpid"]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(ended.errors.contains("cannot load the plugin"), "{ended:?}");
    assert!(ended.errors.contains("API version 1"), "{ended:?}");
}
