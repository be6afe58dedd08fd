//! Flame graphs and call stacks of `trapline explain`.

use super::{assert_adds_up, explain, number, profile_with, shared_profile, SharedProfile, SHARED};
use serde_json::Value;
use trapline_tests::run::Place;

#[test]
fn flame_graph_shows_vmm_kernel_and_guest() {
    let Some(shared) = shared_profile() else {
        return;
    };
    let SharedProfile { json, svg, .. } = shared;
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
}

fn stacks(profile: &Value) -> Vec<(Vec<&str>, f64)> {
    let stacks = profile["stacks"].as_array().expect("list");
    let stack = |stack: &'_ Value| number(&stack["insn"]);
    let frames = stacks.iter().map(|stack| {
        let frames = stack["frames"].as_array().expect("list").iter();
        frames.map(|frame| frame.as_str().expect("name")).collect()
    });
    frames.zip(stacks.iter().map(stack)).collect()
}

/// Checks that the stacks contain every counted instruction, and that each begins with the VMM or with a
/// kernel thread.
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
    let path = [
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
        path.iter().all(|step| frames.any(|frame| frame == step))
    };
    assert!(
        stacks.iter().any(|(frames, _)| holds(frames)),
        "{stacks:#?}"
    );
}

/// Checks that the SVG is well-formed and refers to no other file but namespaces.
#[track_caller]
pub fn assert_stands_alone(svg: &str) {
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

#[test]
fn linux_threads_have_separate_stacks() {
    let place = Place::new();
    let file = place.path().join("yield.svg");
    let more = ["--flamegraph", file.to_str().expect("path is UTF-8")];
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
    // Both run in every batch.
    assert!(main > 0.1 * counted && peer > 0.1 * counted, "{stacks:#?}");
}

#[test]
fn unwritable_flame_graph_is_rejected_before_the_run() {
    let place = Place::new();
    // A started run would fail with this.
    place.replace("libtrapline_profile.so", b"no library");
    for (more, message) in [
        (
            &["--flamegraph", "/no/such/place.svg"][..],
            "--flamegraph: cannot write /no/such/place.svg: No such file",
        ),
        (
            &["--flamegraph", "/"],
            "--flamegraph: cannot write /: Is a directory",
        ),
    ] {
        let result = explain(&place, &[&SHARED, more].concat());
        assert_eq!(result.status, Some(2), "{result:?}");
        assert!(result.stderr.contains(message), "{result:?}");
        assert!(result.stderr.contains("help: "), "{result:?}");
    }
}

#[test]
fn call_stacks_are_of_one_operation() {
    let place = Place::new();
    for words in [["--flamegraph", "x.svg"], ["--format", "folded"]] {
        let result = explain(&place, &[&["sim", "exits"], &words[..]].concat());
        assert_eq!(result.status, Some(2), "{result:?}");
        assert!(result.stderr.contains(" draws one operation"), "{result:?}");
    }
    let start = ["sim/kvm", "boot/main", "--flamegraph", "x.svg"];
    let result = explain(&place, &start);
    assert_eq!(result.status, Some(2), "{result:?}");
    let message = "--flamegraph is not supported by workload boot";
    assert!(result.stderr.contains(message), "{result:?}");
    let domain = ["sim/xen-pvh", "exits/cpuid", "--flamegraph", "x.svg"];
    let result = explain(&place, &domain);
    assert_eq!(result.status, Some(2), "{result:?}");
    let message = "--flamegraph is not supported by sim/xen-pvh";
    assert!(result.stderr.contains(message), "{result:?}");
}
