//! `trapline report` as people use it: the page of a real run, in a real browser.

use serde_json::json;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use trapline_model::kernel_build::{self, Build, BuildFigures, Column, PlannedBuild};
use trapline_model::{Clock, EnvironmentId, Observation};
use trapline_store::{NewRun, Store};
use trapline_tests::browser::{has_browser, Browser};
use trapline_tests::has_qemu;
use trapline_tests::processes::{wait_until, TO_BEGIN};
use trapline_tests::run::Place;

/// No page is larger.
const MOST_BYTES: u64 = 2_000_000;

/// The page of a real run, made once for all tests.
fn page() -> &'static Path {
    static MADE: OnceLock<(Place, PathBuf)> = OnceLock::new();
    let (_, file) = MADE.get_or_init(|| {
        let place = Place::new();
        let environments = if has_qemu("environments of QEMU on the page") {
            "host,qemu-tcg,sim,sim/linux"
        } else {
            "host"
        };
        let words = format!("--env {environments} --workload basic,stream,boot --boots 2 --quiet");
        let ended = place.run_storing("run", &words);
        assert_eq!(ended.status, Some(0), "{}", ended.errors);
        let file = made(&place, "page.html");
        (place, file)
    });
    file
}

fn made(place: &Place, name: &str) -> PathBuf {
    let file = place.path().join(name);
    let ended = place.run_storing("report", &format!("--output {}", file.display()));
    assert_eq!(ended.status, Some(0), "{}", ended.errors);
    assert!(ended.output.contains(name), "{}", ended.output);
    file
}

fn shown(file: &Path) -> Browser {
    let mut browser = Browser::start();
    browser.resize(1280, 900, false);
    browser.open(file);
    browser
}

/// Nothing was asked of anybody, and nothing was complained of.
fn assert_calm(browser: &Browser) {
    let foreign = browser.requests.iter();
    let foreign: Vec<_> = foreign
        .filter(|url| {
            !url.starts_with("file:") && !url.starts_with("data:") && !url.starts_with("blob:")
        })
        .collect();
    assert!(foreign.is_empty(), "requests left the page: {foreign:?}");
    assert!(browser.console.is_empty(), "{:?}", browser.console);
}

#[test]
fn page_renders_in_light_and_dark_on_desktop_and_phone() {
    if !has_browser("the page of a run") {
        return;
    }
    assert!(page().metadata().expect("it is there").len() < MOST_BYTES);
    let mut browser = shown(page());
    for scheme in ["light", "dark"] {
        for (width, height, mobile) in [(1280, 900, false), (390, 844, true)] {
            browser.prefer(scheme);
            browser.resize(width, height, mobile);
            let found = browser.audit();
            assert!(found.is_empty(), "{scheme} at {width}: {found:#?}");
        }
    }
    assert_calm(&browser);
}

#[test]
fn closed_sections_can_be_opened() {
    if !has_browser("what is closed on the page of a run") {
        return;
    }
    let mut browser = shown(page());
    browser.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })");
    for (scheme, width) in [("light", 1280), ("dark", 390)] {
        browser.prefer(scheme);
        browser.resize(width, 900, false);
        let found = browser.audit();
        assert!(found.is_empty(), "{scheme} at {width}: {found:#?}");
    }
    assert_calm(&browser);
}

#[test]
fn unreadable_page_is_detected() {
    if !has_browser("the audit of pages") {
        return;
    }
    let mut browser = shown(page());
    for (harm, told) in [
        ("document.querySelector('h2').style.color = '#999'", "contrast "),
        ("document.querySelector('#theme').textContent = ''; document.querySelector('#theme').removeAttribute('aria-label')", "without a name: "),
        ("document.querySelector('footer').style.width = '3000px'; document.querySelector('footer').style.maxWidth = 'none'", "too wide"),
        ("document.querySelector('nav a').href = '#nowhere'", "leads nowhere: #nowhere"),
    ] {
        browser.value(harm);
        let found = browser.audit();
        assert!(found.iter().any(|found| found.contains(told)), "{harm}: {found:#?}");
    }
}

/// The names of the operations that a table shows, in its order.
const NAMES: &str = "[...document.querySelectorAll('#table-wall tbody tr:not(.group)')]\
     .filter((row) => row.checkVisibility()).map((row) => row.cells[0].textContent)";
/// The figures of the first column in that order.
const COSTS: &str = "[...document.querySelectorAll('#table-wall td.v.c0[data-v]')]\
     .map((cell) => Number(cell.dataset.v))";

#[test]
fn tables_are_sorted_and_filtered_by_mouse() {
    if !has_browser("tables on the page of a run") {
        return;
    }
    let mut browser = shown(page());
    let at_first = browser.value(NAMES);
    browser.click("#table-wall th.v.c0 button");
    let costs = browser.value(COSTS);
    let costs: Vec<f64> = serde_json::from_value(costs).expect("numbers");
    assert!(
        costs.len() > 3 && costs.is_sorted_by(|a, b| a >= b),
        "{costs:?}"
    );
    browser.click("#table-wall th.v.c0 button");
    let turned: Vec<f64> = serde_json::from_value(browser.value(COSTS)).expect("numbers");
    assert!(turned.is_sorted(), "{turned:?}");
    let said = "document.querySelector('#table-wall th.v.c0').getAttribute('aria-sort')";
    assert_eq!(browser.value(said), json!("ascending"));
    browser.click("#table-wall th.v.c0 button");
    assert_eq!(
        browser.value(NAMES),
        at_first,
        "a third click brings back the order"
    );

    browser.click(".controls[data-for=table-wall] input[type=checkbox]");
    let gone = "[...document.querySelectorAll('#table-wall .c0')].every((cell) => !cell.checkVisibility())";
    assert_eq!(browser.value(gone), json!(true));
    assert_calm(&browser);
}

#[test]
fn tables_are_sorted_and_filtered_by_keyboard() {
    if !has_browser("the keyboard on the page of a run") {
        return;
    }
    let mut browser = shown(page());
    let focus = |selector: &str| format!("document.activeElement.matches({selector:?})");
    let search = ".controls[data-for=table-wall] input[type=search]";
    tab_to(&mut browser, &focus(search));
    for letter in ["y", "i", "e", "l"] {
        browser.press(letter);
    }
    assert_eq!(browser.value(NAMES), json!(["basic/yield"]));
    let told = "document.querySelector('.controls[data-for=table-wall] output').textContent";
    let told = browser.value(told);
    assert!(
        told.as_str().is_some_and(|text| text.starts_with("1 of ")),
        "{told}"
    );
    browser.press("Escape");
    browser.wait_for(&format!("({NAMES}).length > 3"));
    tab_to(&mut browser, &focus("#table-wall th.v.c0 button"));
    browser.press("Enter");
    let said = "document.querySelector('#table-wall th.v.c0').getAttribute('aria-sort')";
    assert_eq!(browser.value(said), json!("descending"));
    assert_calm(&browser);
}

#[test]
fn operation_links_to_its_values() {
    if !has_browser("distributions on the page of a run") {
        return;
    }
    let mut browser = shown(page());
    let open = "[...document.querySelectorAll('.operations details[open]')].map((one) => one.id)";
    assert_eq!(browser.value(open), json!([]));
    browser.click("#table-wall a.op[href='#on-basic-yield']");
    browser.wait_for("document.querySelector('#on-basic-yield').open");
    let told =
        browser.value("document.querySelector('#on-basic-yield svg').getAttribute('aria-label')");
    let told = told.as_str().expect("a sentence");
    assert!(
        told.starts_with("host: ") && told.contains(" of 2 boots from "),
        "{told}"
    );
    // Nothing is drawn outside of its picture.
    let outside = "[...document.querySelectorAll('details[open] .cloud svg')].map((svg) => { \
         const all = svg.getBBox(), box = svg.viewBox.baseVal; \
         return [all.x, all.y, all.x + all.width - box.width, all.y + all.height - box.height]; }) \
         .filter(([left, top, right, bottom]) => left < -1 || top < -1 || right > 1 || bottom > 1)";
    assert_eq!(browser.value(outside), json!([]));
    assert_calm(&browser);
}

#[test]
fn interrupts_have_a_section() {
    if !has_browser("interrupts on a page") {
        return;
    }
    let place = Place::new();
    let words = "--env host --samples 1000 --period 1ms --boots 2 --quiet";
    let ended = place.run_storing("irq", words);
    assert!(
        ended.status.is_some_and(|status| status < 2),
        "{}",
        ended.errors
    );
    let mut browser = shown(&made(&place, "interrupts.html"));
    let said = "[...document.querySelectorAll('#interrupts svg')].map((svg) => svg.getAttribute('aria-label'))";
    let said = browser.value(said);
    let first = said[0].as_str().expect("a picture with words");
    assert!(
        first.contains("share of 2,000 expiries later than a time"),
        "{first}"
    );
    for width in [1280, 390] {
        browser.resize(width, 900, false);
        let found = browser.audit();
        assert!(found.is_empty(), "at {width}: {found:#?}");
    }
    assert_calm(&browser);
}

/// A page with two small profiles.
fn page_with_profiles(place: &Place) -> PathBuf {
    let mut store = Store::open(&place.store()).expect("the store is new");
    store.begin_run(&NewRun::default()).expect("there is room");
    drop(store);
    let folded = place.path().join("port-out.folded");
    let stacks = "vmm`main;kernel`ioctl;kvm`run 60\nvmm`main;kernel`ioctl;kvm`emulate 20\n\
                  vmm`main;kernel`exit 15\nvmm`main 5\n";
    std::fs::write(&folded, stacks).expect("there is room");
    let explained = place.path().join("explained.json");
    let json = json!({"environment": HOSTILE, "operation": "exits/port-out",
        "stacks": [{"frames": ["guest`loop", HOSTILE], "insn": 7.5}]});
    std::fs::write(&explained, json.to_string()).expect("there is room");
    let file = place.path().join("profiles.html");
    let words = [file.display(), folded.display(), explained.display()].map(|it| it.to_string());
    let words = format!("--output {} --profile {} {}", words[0], words[1], words[2]);
    let ended = place.run_storing("report", &words);
    assert_eq!(ended.status, Some(0), "{}", ended.errors);
    file
}

#[test]
fn flame_graph_zooms_by_mouse_and_keyboard() {
    if !has_browser("flame graphs on a page") {
        return;
    }
    let place = Place::new();
    let mut browser = shown(&page_with_profiles(&place));
    let names = "[...document.querySelector('.flame').children] \
         .filter((frame) => !frame.hidden).map((frame) => frame.textContent)";
    let all = json!(["all", "main", "exit", "ioctl", "emulate", "run"]);
    assert_eq!(browser.value(names), all);
    tab_to(
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
    let told = "document.querySelector('.told').textContent";
    assert_eq!(browser.value(told), json!("all: 100 insn, 100%"));
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
    assert_calm(&browser);
}

#[test]
fn invalid_profile_is_rejected() {
    let place = Place::new();
    let mut store = Store::open(&place.store()).expect("the store is new");
    store.begin_run(&NewRun::default()).expect("there is room");
    drop(store);
    let file = place.path().join("some.txt");
    std::fs::write(&file, "no stacks").expect("there is room");
    let ended = place.run_storing(
        "report",
        &format!("--output - --profile {}", file.display()),
    );
    assert_eq!(
        (ended.status, ended.output.as_str()),
        (Some(1), ""),
        "{}",
        ended.errors
    );
    assert!(
        ended.errors.contains("some.txt: line 1 is no stack"),
        "{}",
        ended.errors
    );
    let ended = place.run_storing("report", "--output - --profile /no/such/file");
    assert!(
        ended.errors.starts_with("error: --profile /no/such/file: "),
        "{}",
        ended.errors
    );
}

#[test]
fn page_is_opened_by_the_desktop() {
    let place = Place::new();
    let mut store = Store::open(&place.store()).expect("the store is new");
    store.begin_run(&NewRun::default()).expect("there is room");
    drop(store);
    let bin = place.path().join("bin");
    std::fs::create_dir(&bin).expect("it is new");
    let (opener, told) = (bin.join("xdg-open"), place.path().join("opened"));
    let script = format!(
        "#!/bin/sh\nprintf %s \"$1\" > {0}.new && mv {0}.new {0}\n",
        told.display()
    );
    std::fs::write(&opener, script).expect("there is room");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&opener, executable).expect("it is ours");
    let file = place.path().join("open.html");
    let ended = place.run_storing("report", &format!("--open --output {}", file.display()));
    assert_eq!(ended.status, Some(0), "{}", ended.errors);
    assert!(wait_until(TO_BEGIN, || told.exists()), "nothing was opened");
    let opened = std::fs::read_to_string(&told).expect("it was written");
    assert_eq!(Path::new(&opened), file);
    let ended = place.run_storing("report", "--open --output -");
    assert_eq!(
        (ended.status, ended.output.as_str()),
        (Some(2), ""),
        "{}",
        ended.errors
    );
}

fn tab_to(browser: &mut Browser, there: &str) {
    for _ in 0..200 {
        if browser.value(there) == json!(true) {
            return;
        }
        browser.press("Tab");
    }
    panic!("the Tab key does not lead there: {there}");
}

#[test]
fn theme_is_selectable_and_data_downloadable() {
    if !has_browser("the switch and the data on the page of a run") {
        return;
    }
    let mut browser = shown(page());
    browser.prefer("light");
    let paper = "getComputedStyle(document.body).backgroundColor";
    let light = browser.value(paper);
    browser.click("#theme");
    assert_eq!(browser.value(paper), light, "light was chosen");
    browser.click("#theme");
    assert_ne!(browser.value(paper), light, "dark was chosen");
    // The figures are the ones that `show` prints.
    let data = browser.value("document.getElementById('data').textContent");
    let data: serde_json::Value =
        serde_json::from_str(data.as_str().expect("a text")).expect("it is JSON");
    assert!(
        data["cells"]
            .as_array()
            .is_some_and(|cells| cells.len() > 3),
        "{data}"
    );
    browser.value("URL.createObjectURL = (blob) => { window.taken = blob.size; return '#facts'; }");
    browser.click("#download");
    browser.wait_for("window.taken > 1000");
    assert_calm(&browser);
}

#[test]
fn page_is_complete_without_script() {
    if !has_browser("a page without its script") {
        return;
    }
    let mut browser = Browser::start();
    browser.resize(1280, 900, false);
    browser.forbid_scripts();
    browser.open(page());
    assert_eq!(
        browser.value("document.documentElement.className"),
        json!("")
    );
    let names = browser.value(NAMES);
    assert!(
        names.as_array().is_some_and(|names| names.len() > 3),
        "{names}"
    );
    let seen = |selector: &str| format!("document.querySelector({selector:?}).checkVisibility()");
    assert_eq!(browser.value(&seen(".controls")), json!(false));
    assert_eq!(browser.value(&seen("#theme")), json!(false));
    browser.click("#distributions summary[aria-label]");
    assert_eq!(browser.value(&seen("#distributions .help p")), json!(true));
    let told = browser.value("document.querySelector('.run noscript').textContent");
    assert!(
        told.as_str()
            .is_some_and(|told| told.contains("--format json")),
        "{told}"
    );
    assert_calm(&browser);
}

/// A boot that measured one operation.
fn boot_with(settings: &str) -> Observation {
    let sample = |number: u64| trapline_model::Sample {
        start: number * 1_000_000,
        end: number * 1_000_000 + 40_000 + number,
        count: 100,
        host_ns: None,
    };
    Observation {
        environment: EnvironmentId::KVM,
        overrides: settings.parse().expect("there is such a setting"),
        clock: Clock::Wall,
        replicate: 0,
        unit_per_tick: 1.0,
        operations: vec![trapline_model::Operation {
            op: trapline_abi::Op::Getpid,
            outcome: trapline_model::Outcome::Measured {
                clock_cost: 40,
                loop_cost: 1_024,
                samples: (0..20).map(sample).collect(),
                interrupts: vec![],
                check: 1,
                exits: None,
                host_cpu_ns: None,
                elapsed: None,
            },
        }],
        launches: vec![],
        facts: BTreeMap::new(),
        log: String::new(),
        problems: vec![],
    }
}

#[test]
fn each_config_has_a_section() {
    let place = Place::new();
    let mut store = Store::open(&place.store()).expect("the store is new");
    let run = store.begin_run(&NewRun::default()).expect("there is room");
    for settings in ["", "memory=1G"] {
        let seen = boot_with(settings);
        store.add_observation(run, &seen).expect("there is room");
    }
    drop(store);
    let file = made(&place, "settings.html");
    let text = std::fs::read_to_string(&file).expect("it was written");
    for id in [
        "wall",
        "wall-1",
        "on-basic-getpid",
        "on-basic-getpid-1",
        "download",
    ] {
        assert_eq!(text.matches(&format!(" id=\"{id}\"")).count(), 1, "{id}");
    }
    assert_eq!(text.matches("<h1>").count(), 1);
    assert!(text.contains("memory=1024M"), "the settings are not told");
    if !has_browser("a page of several settings") {
        return;
    }
    let mut browser = shown(&file);
    let found = browser.audit();
    assert!(found.is_empty(), "{found:#?}");
    assert_calm(&browser);
}

/// A build by made-up clocks, with a reason that a page might take for more than text.
fn build(environment: EnvironmentId, column: Column, seconds: Option<u64>) -> Build {
    let done = |seconds| BuildFigures {
        own_ns: seconds * 1_000_000_000,
        took: seconds * 1_000_000_000,
        objects: 525,
        proof: "a".repeat(64),
    };
    let skipped = || kernel_build::BuildOutcome::Skipped(HOSTILE.to_owned());
    Build {
        planned: PlannedBuild {
            round: 0,
            environment,
            column,
        },
        outcome: seconds.map_or_else(skipped, |seconds| {
            kernel_build::BuildOutcome::Done(done(seconds))
        }),
        facts: BTreeMap::from([("build-source".to_owned(), "linux-source-6.1".to_owned())]),
    }
}

#[test]
fn kernel_builds_have_their_own_page() {
    let place = Place::new();
    let mut store = Store::open(&place.store()).expect("the store is new");
    let run = NewRun {
        request: "kernel-build --env host,uml,qemu-tcg/linux --size tiny --cpus 1,2 \
                  --place same,disjoint --seed 1",
        ..NewRun::default()
    };
    let run = store.begin_run(&run).expect("there is room");
    for column in Column::all(&[1, 2], &kernel_build::Place::ALL) {
        for (environment, seconds) in [
            (EnvironmentId::HOST, Some(100)),
            (EnvironmentId::QEMU_TCG_LINUX, Some(2_150)),
            (EnvironmentId::UML, None),
        ] {
            let build = build(environment, column, seconds);
            store.add_build(run, &build).expect("there is room");
        }
    }
    drop(store);
    let file = made(&place, "builds.html");
    let text = std::fs::read_to_string(&file).expect("it was written");
    for told in [
        "Building a kernel takes 21.5 times as long in qemu-tcg/linux as in host",
        "+2050%",
        "tiny: bzImage of tinyconfig",
        "linux-source-6.1",
        "uml 1(s), uml 1(d), uml 2(s), uml 2(d) not built: ",
        "\"workload\":\"kernel-build\"",
    ] {
        assert!(text.contains(told), "no {told}");
    }
    if !has_browser("the page of kernel builds") {
        return;
    }
    let mut browser = shown(&file);
    for (scheme, width, height, mobile) in [("light", 1280, 900, false), ("dark", 390, 844, true)] {
        browser.prefer(scheme);
        browser.resize(width, height, mobile);
        let found = browser.audit();
        assert!(found.is_empty(), "{scheme} at {width}: {found:#?}");
    }
    assert_calm(&browser);
}

/// Text that would run or load something if it were not escaped.
const HOSTILE: &str = "</script></style><script>window.owned=1;document.title='owned'</script>\
     <img src=http://127.0.0.1:9/x onerror='window.owned=2'>\" onmouseover=\"window.owned=3";

#[test]
fn text_of_guests_and_hosts_is_escaped() {
    let place = Place::new();
    let mut store = Store::open(&place.store()).expect("the store is new");
    let facts = |name: &str| BTreeMap::from([(name.to_owned(), HOSTILE.to_owned())]);
    let run = NewRun {
        request: HOSTILE,
        version: HOSTILE,
        facts: facts("cpu"),
        ..NewRun::default()
    };
    let run = store.begin_run(&run).expect("there is room");
    let mut seen = Observation {
        environment: EnvironmentId::HOST,
        overrides: Default::default(),
        clock: Clock::Wall,
        replicate: 0,
        unit_per_tick: 1.0,
        operations: vec![],
        launches: vec![],
        facts: facts(HOSTILE),
        log: HOSTILE.to_owned(),
        problems: vec![HOSTILE.to_owned()],
    };
    seen.operations = vec![trapline_model::Operation {
        op: trapline_abi::Op::Getpid,
        outcome: trapline_model::Outcome::Failed(HOSTILE.to_owned()),
    }];
    store.add_observation(run, &seen).expect("there is room");
    store
        .add_skip(run, &EnvironmentId::KVM.into(), HOSTILE)
        .expect("there is room");
    drop(store);

    let file = made(&place, "hostile.html");
    let text = std::fs::read_to_string(&file).expect("it was written");
    assert_eq!(
        text.matches("<script").count(),
        2,
        "data and script, no more"
    );
    assert!(!text.contains("<img"), "a picture was smuggled in");
    if !has_browser("a hostile page") {
        return;
    }
    let mut browser = shown(&file);
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
    assert_calm(&browser);
}

#[test]
fn invalid_reports_are_rejected() {
    let place = Place::new();
    let ended = place.run_storing("report", "--run 1");
    assert_eq!(ended.status, Some(1), "{}", ended.errors);
    assert!(ended.errors.contains("help: "), "{}", ended.errors);
    let mut store = Store::open(&place.store()).expect("the store is new");
    store.begin_run(&NewRun::default()).expect("there is room");
    drop(store);
    let ended = place.run_storing("report", "--run 2");
    assert_eq!(ended.status, Some(1), "{}", ended.errors);
    let ended = place.run_storing("report", "--output /no/such/directory/page.html");
    assert_eq!(ended.status, Some(1), "{}", ended.errors);
    assert!(
        ended.errors.starts_with("error: --output: "),
        "{}",
        ended.errors
    );
    // A run of which nothing is stored is a page, too.
    let ended = place.run_storing("report", "--output -");
    assert_eq!(ended.status, Some(0), "{}", ended.errors);
    assert!(
        ended.output.contains("Nothing could be measured"),
        "{}",
        ended.output
    );
}
