//! `trapline report`: the page of a run in a browser.

use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use trapline_tests::browser::{has_browser, Browser};
use trapline_tests::has_qemu;
use trapline_tests::run::Place;

mod stored;

/// Size limit of a page.
const MOST_BYTES: u64 = 2_000_000;

/// Returns the page of a run, which all tests share.
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
        let result = place.run_storing("run", &words);
        assert_eq!(result.status, Some(0), "{}", result.stderr);
        let file = create_page(&place, "page.html");
        (place, file)
    });
    file
}

pub(super) fn create_page(place: &Place, name: &str) -> PathBuf {
    let file = place.path().join(name);
    let result = place.run_storing("report", &format!("--output {}", file.display()));
    assert_eq!(result.status, Some(0), "{}", result.stderr);
    assert!(result.stdout.contains(name), "{}", result.stdout);
    file
}

pub fn open_page(file: &Path) -> Browser {
    let mut browser = Browser::start();
    browser.resize(1280, 900, false);
    browser.open(file);
    browser
}

/// Checks that the page requested no other URL and logged nothing.
pub fn assert_no_requests_or_messages(browser: &Browser) {
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
    assert!(page().metadata().expect("file exists").len() < MOST_BYTES);
    assert_accessible(&mut open_page(page()));
}

/// Checks that an open page is accessible in both schemes on desktop and phone, and requests and logs nothing.
pub fn assert_accessible(browser: &mut Browser) {
    for scheme in ["light", "dark"] {
        for (width, height, mobile) in [(1280, 900, false), (390, 844, true)] {
            browser.prefer(scheme);
            browser.resize(width, height, mobile);
            let found = browser.audit();
            assert!(found.is_empty(), "{scheme} at {width}: {found:#?}");
        }
    }
    assert_no_requests_or_messages(browser);
}

#[test]
fn closed_sections_can_be_opened() {
    if !has_browser("what is closed on the page of a run") {
        return;
    }
    let mut browser = open_page(page());
    browser.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })");
    for (scheme, width) in [("light", 1280), ("dark", 390)] {
        browser.prefer(scheme);
        browser.resize(width, 900, false);
        let found = browser.audit();
        assert!(found.is_empty(), "{scheme} at {width}: {found:#?}");
    }
    assert_no_requests_or_messages(&browser);
}

#[test]
fn unreadable_page_is_detected() {
    if !has_browser("the audit of pages") {
        return;
    }
    let mut browser = open_page(page());
    for (harm, problem) in [
        ("document.querySelector('h2').style.color = '#999'", "contrast "),
        ("document.querySelector('#theme').textContent = ''; document.querySelector('#theme').removeAttribute('aria-label')", "without a name: "),
        ("document.querySelector('footer').style.width = '3000px'; document.querySelector('footer').style.maxWidth = 'none'", "too wide"),
        ("document.querySelector('nav a').href = '#nowhere'", "leads nowhere: #nowhere"),
    ] {
        browser.value(harm);
        let found = browser.audit();
        assert!(found.iter().any(|found| found.contains(problem)), "{harm}: {found:#?}");
    }
}

/// Script that returns the operations of a table, in its order.
const NAMES: &str = "[...document.querySelectorAll('#table-wall tbody tr:not(.group)')]\
     .filter((row) => row.checkVisibility()).map((row) => row.cells[0].textContent)";
/// Script that returns the figures of the first column, in that order.
const COSTS: &str = "[...document.querySelectorAll('#table-wall td.v.c0[data-v]')]\
     .map((cell) => Number(cell.dataset.v))";

#[test]
fn tables_are_sorted_and_filtered_by_mouse() {
    if !has_browser("tables on the page of a run") {
        return;
    }
    let mut browser = open_page(page());
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
        "a third click restores the order"
    );

    browser.click(".controls[data-for=table-wall] input[type=checkbox]");
    let gone = "[...document.querySelectorAll('#table-wall .c0')].every((cell) => !cell.checkVisibility())";
    assert_eq!(browser.value(gone), json!(true));
    assert_no_requests_or_messages(&browser);
}

#[test]
fn tables_are_sorted_and_filtered_by_keyboard() {
    if !has_browser("the keyboard on the page of a run") {
        return;
    }
    let mut browser = open_page(page());
    let focus = |selector: &str| format!("document.activeElement.matches({selector:?})");
    let search = ".controls[data-for=table-wall] input[type=search]";
    press_tab_until(&mut browser, &focus(search));
    for letter in ["y", "i", "e", "l"] {
        browser.press(letter);
    }
    assert_eq!(browser.value(NAMES), json!(["basic/yield"]));
    let count = "document.querySelector('.controls[data-for=table-wall] output').textContent";
    let count = browser.value(count);
    assert!(
        count.as_str().is_some_and(|text| text.starts_with("1 of ")),
        "{count}"
    );
    browser.press("Escape");
    browser.wait_for(&format!("({NAMES}).length > 3"));
    press_tab_until(&mut browser, &focus("#table-wall th.v.c0 button"));
    browser.press("Enter");
    let said = "document.querySelector('#table-wall th.v.c0').getAttribute('aria-sort')";
    assert_eq!(browser.value(said), json!("descending"));
    assert_no_requests_or_messages(&browser);
}

#[test]
fn operation_links_to_its_values() {
    if !has_browser("distributions on the page of a run") {
        return;
    }
    let mut browser = open_page(page());
    let open = "[...document.querySelectorAll('.operations details[open]')].map((one) => one.id)";
    assert_eq!(browser.value(open), json!([]));
    browser.click("#table-wall a.op[href='#on-basic-yield']");
    browser.wait_for("document.querySelector('#on-basic-yield').open");
    let label =
        browser.value("document.querySelector('#on-basic-yield svg').getAttribute('aria-label')");
    let label = label.as_str().expect("text");
    assert!(
        label.starts_with("host: ") && label.contains(" of 2 boots from "),
        "{label}"
    );
    // No element extends beyond its picture.
    let outside = "[...document.querySelectorAll('details[open] .cloud svg')].map((svg) => { \
         const all = svg.getBBox(), box = svg.viewBox.baseVal; \
         return [all.x, all.y, all.x + all.width - box.width, all.y + all.height - box.height]; }) \
         .filter(([left, top, right, bottom]) => left < -1 || top < -1 || right > 1 || bottom > 1)";
    assert_eq!(browser.value(outside), json!([]));
    assert_no_requests_or_messages(&browser);
}

#[test]
fn interrupts_have_a_section() {
    if !has_browser("interrupts on a page") {
        return;
    }
    let place = Place::new();
    let words = "--env host --samples 1000 --period 1ms --boots 2 --quiet";
    let result = place.run_storing("irq", words);
    assert!(
        result.status.is_some_and(|status| status < 2),
        "{}",
        result.stderr
    );
    let mut browser = open_page(&create_page(&place, "interrupts.html"));
    let said = "[...document.querySelectorAll('#interrupts svg')].map((svg) => svg.getAttribute('aria-label'))";
    let said = browser.value(said);
    let first = said[0].as_str().expect("label");
    assert!(
        first.contains("share of 2,000 expiries later than a time"),
        "{first}"
    );
    for width in [1280, 390] {
        browser.resize(width, 900, false);
        let found = browser.audit();
        assert!(found.is_empty(), "at {width}: {found:#?}");
    }
    assert_no_requests_or_messages(&browser);
}

fn press_tab_until(browser: &mut Browser, there: &str) {
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
    let mut browser = open_page(page());
    browser.prefer("light");
    let paper = "getComputedStyle(document.body).backgroundColor";
    let light = browser.value(paper);
    browser.click("#theme");
    assert_eq!(browser.value(paper), light, "light was chosen");
    browser.click("#theme");
    assert_ne!(browser.value(paper), light, "dark was chosen");
    // The data has the figures of `show`.
    let data = browser.value("document.getElementById('data').textContent");
    let data: serde_json::Value = serde_json::from_str(data.as_str().expect("text")).expect("JSON");
    assert!(
        data["cells"]
            .as_array()
            .is_some_and(|cells| cells.len() > 3),
        "{data}"
    );
    browser.value("URL.createObjectURL = (blob) => { window.taken = blob.size; return '#facts'; }");
    browser.click("#download");
    browser.wait_for("window.taken > 1000");
    assert_no_requests_or_messages(&browser);
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
    let notice = browser.value("document.querySelector('.run noscript').textContent");
    assert!(
        notice
            .as_str()
            .is_some_and(|notice| notice.contains("--format json")),
        "{notice}"
    );
    assert_no_requests_or_messages(&browser);
}
