//! Pages of constructed stores: configurations, kernel builds, profiles, hostile text, errors.

use super::{assert_no_requests_or_messages, create_page, open_page, press_tab_until};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trapline_model::kernel_build::{self, Column, Size};
use trapline_model::{
    Clock, Config, EnvironmentId, Host, Observation, Operation, OperationResult, Outcome,
    RecordedRequest, Request,
};
use trapline_store::{NewRun, Store};
use trapline_tests::browser::has_browser;
use trapline_tests::processes::{wait_until, TO_BEGIN};
use trapline_tests::run::Place;
use trapline_tests::write_program;

/// Creates a page with two small profiles.
fn page_with_profiles(place: &Place) -> PathBuf {
    let mut store = Store::open(&place.store()).expect("store can be created");
    store.begin_run(&NewRun::default()).expect("write succeeds");
    drop(store);
    let folded = place.path().join("port-out.folded");
    let stacks = "vmm`main;kernel`ioctl;kvm`run 60\nvmm`main;kernel`ioctl;kvm`emulate 20\n\
                  vmm`main;kernel`exit 15\nvmm`main 5\n";
    std::fs::write(&folded, stacks).expect("write succeeds");
    let explained = place.path().join("explained.json");
    let json = json!({"environment": HOSTILE, "operation": "exits/port-out",
        "stacks": [{"frames": ["guest`loop", HOSTILE], "insn": 7.5}]});
    std::fs::write(&explained, json.to_string()).expect("write succeeds");
    let file = place.path().join("profiles.html");
    let words = [file.display(), folded.display(), explained.display()].map(|it| it.to_string());
    let words = format!(
        "--run 1 --output {} --profile {} {}",
        words[0], words[1], words[2]
    );
    let result = place.run_storing("report", &words);
    assert_eq!(result.status, Some(0), "{}", result.stderr);
    file
}

#[test]
fn flame_graph_zooms_by_mouse_and_keyboard() {
    if !has_browser("flame graphs on a page") {
        return;
    }
    let place = Place::new();
    let mut browser = open_page(&page_with_profiles(&place));
    let names = "[...document.querySelector('.flame').children] \
         .filter((frame) => !frame.hidden).map((frame) => frame.textContent)";
    let all = json!(["all", "main", "exit", "ioctl", "emulate", "run"]);
    assert_eq!(browser.value(names), all);
    press_tab_until(
        &mut browser,
        "document.activeElement.matches('.flame > div')",
    );
    for key in ["ArrowUp", "ArrowUp", "ArrowRight", "ArrowUp"] {
        browser.press(key);
    }
    let here = "document.activeElement.title";
    assert_eq!(browser.value(here), json!("kvm`emulate: 20 insn, 20%"));
    browser.press("ArrowRight");
    browser.press("Enter");
    assert_eq!(browser.value(names), json!(["all", "main", "ioctl", "run"]));
    browser.press("Escape");
    assert_eq!(browser.value(names), all);
    let selection = "document.querySelector('p[aria-live]').textContent";
    assert_eq!(browser.value(selection), json!("all: 100 insn, 100%"));
    browser.click(".flame > :nth-child(4)");
    assert_eq!(
        browser.value(names),
        json!(["all", "main", "ioctl", "emulate", "run"])
    );
    let width = "Math.round(100 * document.querySelector('.flame > :nth-child(4)').offsetWidth \
         / document.querySelector('.flame').offsetWidth)";
    assert_eq!(browser.value(width), json!(100));
    browser.click(".flame > :nth-child(4)");
    assert_eq!(browser.value(names), all, "a second click shows all");

    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        let found = browser.audit();
        let harmful: Vec<_> = found
            .iter()
            .filter(|found| !found.starts_with("only "))
            .collect();
        assert!(harmful.is_empty(), "{scheme}: {harmful:#?}");
    }
    assert_eq!(browser.value("window.owned === undefined"), json!(true));
    assert_no_requests_or_messages(&browser);
}

#[test]
fn invalid_profile_is_rejected() {
    let place = Place::new();
    let mut store = Store::open(&place.store()).expect("store can be created");
    store.begin_run(&NewRun::default()).expect("write succeeds");
    drop(store);
    let file = place.path().join("some.txt");
    std::fs::write(&file, "no stacks").expect("write succeeds");
    let result = place.run_storing(
        "report",
        &format!("--run 1 --output - --profile {}", file.display()),
    );
    assert_eq!(
        (result.status, result.stdout.as_str()),
        (Some(1), ""),
        "{}",
        result.stderr
    );
    assert!(
        result.stderr.contains("some.txt: line 1: not a stack"),
        "{}",
        result.stderr
    );
    let result = place.run_storing("report", "--run 1 --output - --profile /no/such/file");
    assert!(
        result
            .stderr
            .starts_with("error: --profile /no/such/file: "),
        "{}",
        result.stderr
    );
}

#[test]
fn page_is_opened_by_the_desktop() {
    let place = Place::new();
    let mut store = Store::open(&place.store()).expect("store can be created");
    store.begin_run(&NewRun::default()).expect("write succeeds");
    drop(store);
    let bin = place.path().join("bin");
    std::fs::create_dir(&bin).expect("path is unused");
    let (opener, opened_file) = (bin.join("xdg-open"), place.path().join("opened"));
    let script = format!(
        "#!/bin/sh\nprintf %s \"$1\" > {0}.new && mv {0}.new {0}\n",
        opened_file.display()
    );
    write_program(&opener, script);
    let file = place.path().join("open.html");
    let result = place.run_storing(
        "report",
        &format!("--run 1 --open --output {}", file.display()),
    );
    assert_eq!(result.status, Some(0), "{}", result.stderr);
    assert!(
        wait_until(TO_BEGIN, || opened_file.exists()),
        "xdg-open was not called"
    );
    let opened = std::fs::read_to_string(&opened_file).expect("file exists");
    assert_eq!(Path::new(&opened), file);
    let result = place.run_storing("report", "--open --output -");
    assert_eq!(
        (result.status, result.stdout.as_str()),
        (Some(2), ""),
        "{}",
        result.stderr
    );
}

/// Returns a boot with one measured operation.
fn boot_with(settings: &str) -> Observation {
    let sample = |number: u64| trapline_model::Sample {
        start: number * 1_000_000,
        end: number * 1_000_000 + 40_000 + number,
        count: 100,
        host_ns: None,
        excluded: 0,
    };
    Observation {
        config: Config {
            environment: EnvironmentId::KVM,
            overrides: settings.parse().expect("valid setting"),
        },
        clock: Clock::Wall,
        replicate: 0,
        unit_per_tick: 1.0,
        operations: vec![OperationResult {
            op: trapline_abi::Op::Getpid.into(),
            outcome: trapline_model::Outcome::Measured {
                clock_cost: 40,
                loop_cost: 1_024,
                samples: (0..20).map(sample).collect(),
                interrupts: vec![],
                trials: Vec::new(),
                check: 1,
                exits: None,
                host_cpu_ns: None,
                idle: None,
                elapsed: None,
            },
        }],
        launches: vec![],
        facts: BTreeMap::new(),
        log: String::new(),
        problems: vec![],
        host: String::new(),
    }
}

#[test]
fn each_config_has_a_column() {
    let place = Place::new();
    let mut store = Store::open(&place.store()).expect("store can be created");
    let run = store.begin_run(&NewRun::default()).expect("write succeeds");
    for settings in ["", "memory=1G"] {
        let seen = boot_with(settings);
        store.add_observation(run, &seen).expect("write succeeds");
    }
    drop(store);
    let file = create_page(&place, "settings.html");
    let text = std::fs::read_to_string(&file).expect("file exists");
    for id in ["wall", "on-basic-getpid", "download"] {
        assert_eq!(text.matches(&format!(" id=\"{id}\"")).count(), 1, "{id}");
    }
    assert_eq!(text.matches("<h1>").count(), 1);
    for name in ["kvm", "kvm:memory=1024M"] {
        let column = format!("data-label=\"{name}, cost\"");
        assert_eq!(text.matches(&column).count(), 1, "{name}");
    }
    if !has_browser("a page of several settings") {
        return;
    }
    let mut browser = open_page(&file);
    let found = browser.audit();
    assert!(found.is_empty(), "{found:#?}");
    assert_no_requests_or_messages(&browser);
}

/// Returns a build of given duration.
fn build(environment: EnvironmentId, column: Column, seconds: u64) -> Observation {
    let ns = seconds * 1_000_000_000;
    let outcome = Outcome::of_build(ns, ns, &"a".repeat(64));
    let operation = Operation::Build(Size::Tiny);
    Observation {
        operations: vec![OperationResult::new(operation, outcome)],
        facts: BTreeMap::from([("build-source".to_owned(), "linux-source-6.1".to_owned())]),
        ..trapline_model::testing::boot(column.config(environment), 0, [])
    }
}

#[test]
fn kernel_builds_have_their_own_section() {
    let place = Place::new();
    let mut store = Store::open(&place.store()).expect("store can be created");
    let environments = [
        EnvironmentId::HOST,
        EnvironmentId::UML,
        EnvironmentId::QEMU_TCG_LINUX,
    ];
    let request = Request {
        configs: kernel_build::configs(&environments, &[1, 2], &kernel_build::Place::ALL),
        long: vec![Operation::Build(Size::Tiny)],
        ..Request::default()
    };
    let run = NewRun {
        request: RecordedRequest::of(&request),
        ..NewRun::default()
    };
    let run = store.begin_run(&run).expect("write succeeds");
    for column in Column::all(&[1, 2], &kernel_build::Place::ALL) {
        for (environment, seconds) in [
            (EnvironmentId::HOST, 100),
            (EnvironmentId::QEMU_TCG_LINUX, 2_150),
        ] {
            let build = build(environment, column, seconds);
            store.add_observation(run, &build).expect("write succeeds");
        }
        let config = column.config(EnvironmentId::UML);
        store
            .add_skip(run, &config, HOSTILE)
            .expect("write succeeds");
    }
    drop(store);
    let file = create_page(&place, "builds.html");
    let text = std::fs::read_to_string(&file).expect("file exists");
    for expected in [
        "Building a kernel takes 21.5 times as long in qemu-tcg/linux as in host",
        "+2050%",
        "tiny: bzImage of tinyconfig",
        "linux-source-6.1",
        ">uml<",
        "\"workload\":\"kernel-build\"",
    ] {
        assert!(text.contains(expected), "no {expected}");
    }
    if !has_browser("the page of kernel builds") {
        return;
    }
    let mut browser = open_page(&file);
    for (scheme, width, height, mobile) in [("light", 1280, 900, false), ("dark", 390, 844, true)] {
        browser.prefer(scheme);
        browser.resize(width, height, mobile);
        let found = browser.audit();
        assert!(found.is_empty(), "{scheme} at {width}: {found:#?}");
    }
    assert_no_requests_or_messages(&browser);
}

/// Text that runs or loads something unless it is escaped.
const HOSTILE: &str = "</script></style><script>window.owned=1;document.title='owned'</script>\
     <img src=http://127.0.0.1:9/x onerror='window.owned=2'>\" onmouseover=\"window.owned=3";

/// Stores a run with such a text wherever one can be.
fn store_hostile_text(place: &Place) {
    let mut store = Store::open(&place.store()).expect("store can be created");
    let facts = |name: &str| BTreeMap::from([(name.to_owned(), HOSTILE.to_owned())]);
    let host = Host {
        id: HOSTILE.to_owned(),
        name: HOSTILE.to_owned(),
        facts: facts("cpu"),
    };
    let run = NewRun {
        request: RecordedRequest {
            unparsed: Some(HOSTILE.to_owned()),
            ..RecordedRequest::default()
        },
        version: HOSTILE,
        facts: facts("cpu"),
        host: Some(&host),
        ..NewRun::default()
    };
    let run = store.begin_run(&run).expect("write succeeds");
    let mut seen = Observation {
        config: EnvironmentId::HOST.into(),
        clock: Clock::Wall,
        replicate: 0,
        unit_per_tick: 1.0,
        operations: vec![],
        launches: vec![],
        facts: facts(HOSTILE),
        log: HOSTILE.to_owned(),
        problems: vec![HOSTILE.to_owned()],
        host: HOSTILE.to_owned(),
    };
    let failed = Outcome::Failed(HOSTILE.to_owned());
    seen.operations = vec![OperationResult::new(trapline_abi::Op::Getpid, failed)];
    store.add_observation(run, &seen).expect("write succeeds");
    store
        .add_skip(run, &EnvironmentId::KVM.into(), HOSTILE)
        .expect("write succeeds");
}

#[test]
fn text_of_guests_and_hosts_is_escaped() {
    let place = Place::new();
    store_hostile_text(&place);
    let file = create_page(&place, "hostile.html");
    let text = std::fs::read_to_string(&file).expect("file exists");
    assert_eq!(
        text.matches("<script").count(),
        2,
        "data and script, no more"
    );
    assert!(!text.contains("<img"), "an element was injected");
    if !has_browser("a hostile page") {
        return;
    }
    let mut browser = open_page(&file);
    assert_eq!(browser.value("window.owned === undefined"), json!(true));
    let title = browser.value("document.title");
    assert!(
        title
            .as_str()
            .is_some_and(|title| title.starts_with("Trapline")),
        "{title}"
    );
    assert!(!browser
        .value("document.body.textContent")
        .to_string()
        .is_empty());
    assert_no_requests_or_messages(&browser);
}

#[test]
fn invalid_reports_are_rejected() {
    let place = Place::new();
    let result = place.run_storing("report", "--run 1");
    assert_eq!(result.status, Some(1), "{}", result.stderr);
    assert!(result.stderr.contains("help: "), "{}", result.stderr);
    let mut store = Store::open(&place.store()).expect("store can be created");
    store.begin_run(&NewRun::default()).expect("write succeeds");
    drop(store);
    let result = place.run_storing("report", "--run 2");
    assert_eq!(result.status, Some(1), "{}", result.stderr);
    let result = place.run_storing("report", "--run 1 --output /no/such/directory/page.html");
    assert_eq!(result.status, Some(1), "{}", result.stderr);
    assert!(
        result.stderr.starts_with("error: --output: "),
        "{}",
        result.stderr
    );
    // An empty run is not the latest, and has a page.
    let result = place.run_storing("report", "--output -");
    assert_eq!(result.status, Some(1), "{}", result.stderr);
    assert!(result.stderr.contains("has a boot"), "{}", result.stderr);
    let result = place.run_storing("report", "--run 1 --output -");
    assert_eq!(result.status, Some(0), "{}", result.stderr);
    assert!(
        result.stdout.contains("Nothing was measured"),
        "{}",
        result.stdout
    );
}
