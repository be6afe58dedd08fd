//! Snapshots of each output format of a report. `TRAPLINE_BLESS=1 cargo test` updates them.

use crate::{common, formats, snapshot};

use formats::{brief, csv, json, markdown, terminal};
use snapshot::assert_snapshot;
use trapline_abi::Op;
use trapline_model::EnvironmentId;
use trapline_report::{page, Style};
use trapline_stats::order::Interval;
use trapline_stats::{Cell, Value};

fn styled(width: usize, colour: bool, unicode: bool) -> String {
    let style = Style {
        width,
        colour,
        unicode,
    };
    terminal(&common::report(), &style)
}

fn brief_of(width: usize) -> String {
    let style = Style {
        width,
        ..Style::default()
    };
    brief(&common::report(), &style)
}

fn columns(text: &str) -> usize {
    text.lines()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0)
}

#[test]
fn the_terminal_form_at_80_columns() {
    let text = styled(80, false, true);
    assert_snapshot("terminal-80.txt", &text);
    assert!(columns(&text) <= 80);
}

#[test]
fn the_terminal_form_at_120_columns_in_ascii() {
    let text = styled(120, false, false);
    assert_snapshot("terminal-120-ascii.txt", &text);
    assert!(columns(&text) <= 120);
    assert!(text.is_ascii());
}

#[test]
fn the_brief_form_at_80_columns() {
    assert_snapshot("brief-80.txt", &brief_of(80));
}

#[test]
fn a_wider_terminal_never_needs_more_lines() {
    for form in [brief_of, |width| styled(width, false, true)] {
        let lines = [60, 80, 100, 120, 200].map(|width| {
            let text = form(width);
            assert!(columns(&text) <= width, "{width}:\n{text}");
            text.lines().count()
        });
        let is_sorted = lines.is_sorted_by(|narrow, wide| narrow >= wide);
        assert!(is_sorted, "{lines:?}");
    }
}

#[test]
fn a_wider_terminal_shows_spreads_in_the_brief_form() {
    assert!(!brief_of(80).contains("±2%"));
    let text = brief_of(200);
    assert!(
        text.contains("±2%") && text.contains("(5,204..8,118)"),
        "{text}"
    );
}

#[test]
fn an_unusable_figure_is_shown_as_its_interval() {
    let mut report = common::report();
    let mut cells = report.summary.cells.iter_mut();
    let is_it =
        |cell: &&mut Cell| cell.config == EnvironmentId::KVM.into() && cell.op == Op::BootMain;
    let cell = cells.find(is_it).unwrap();
    let Value::Measured(figure) = &mut cell.value else {
        panic!("it was measured");
    };
    figure.interval = Some(Interval {
        level: 0.9375,
        low: 1.2e6,
        high: 12.6e6,
    });
    let style = Style::default();
    for text in [brief(&report, &style), terminal(&report, &style)] {
        assert!(text.contains("1.20..12.6 ms"), "{text}");
        assert!(!text.contains("±860%"), "{text}");
    }
}

#[test]
fn colour_changes_nothing_but_colour() {
    let coloured = styled(80, true, true);
    assert!(coloured.contains("\u{1b}["));
    let mut plain = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after
            .split_once('m')
            .expect("an unfinished escape sequence")
            .1;
    }
    plain.push_str(rest);
    assert_eq!(plain, styled(80, false, true));
}

/// An interval, or a share that batches lie off, is nothing that an exact figure has.
#[test]
fn an_exact_figure_has_a_range_where_its_batches_differ_and_no_interval() {
    let text = styled(80, false, true);
    let (_, exact) = text.split_once("\nInstruction clock\n").unwrap();
    let (exact, _) = exact.split_once("Exits and host CPU time").unwrap();
    assert!(exact.contains("5,587.4 1,862×"), "{exact}");
    assert!(exact.contains("(5,204..8,117.5)"), "{exact}");
    assert_eq!(exact.matches("..").count(), 2, "{exact}");
    assert!(!exact.contains(['±', '%']), "{exact}");
    let text = markdown(&common::report());
    assert!(
        text.contains("| 5,587.4, 1,862× (5,204..8,117.5) |"),
        "{text}"
    );
}

#[test]
fn control_characters_of_guests_are_removed() {
    let text = styled(80, false, true);
    assert!(text.contains("a damaged frame"));
    assert!(!text.contains('\u{1b}'));
    assert!(!markdown(&common::report()).contains('\u{1b}'));
}

#[test]
fn the_markdown_form() {
    assert_snapshot("report.md", &markdown(&common::report()));
}

#[test]
fn the_csv_form() {
    let text = csv(&common::report());
    assert_snapshot("report.csv", &text);
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    assert_eq!(reader.records().count(), common::report().cells().len());
}

#[test]
fn the_json_form() {
    assert_snapshot("report.json", &json(&common::report()));
}

/// The keys that `docs/json.md` promises.
#[test]
fn json_has_the_documented_keys() {
    let document: serde_json::Value = serde_json::from_str(&json(&common::report())).unwrap();
    assert_eq!(document["trapline"], "0.1.0");
    assert_eq!(document["facts"]["governor"], "performance");
    let cells = document["cells"].as_array().unwrap();
    let find = |environment: &str, operation: &str| {
        let mut found = cells
            .iter()
            .filter(|cell| cell["environment"] == environment);
        found.find(|cell| cell["operation"] == operation).unwrap()
    };
    let measured = find("kvm", "port-out").as_object().unwrap();
    for key in [
        "environment",
        "workload",
        "operation",
        "clock",
        "unit",
        "estimate",
        "low",
        "high",
        "min",
        "samples",
        "boots",
        "ratio",
        "exits",
        "host_cpu_ns",
    ] {
        assert!(measured.contains_key(key), "{key}");
    }
    assert!(measured["low"].is_number() && measured["ratio_low"].is_number());
    let exact = find("sim/qemu-kvm", "port-out");
    for key in ["low", "high", "ratio_low", "ratio_high"] {
        assert!(exact[key].is_null(), "an exact figure has no {key}");
    }
    assert_eq!(
        (&exact["min"], &exact["max"]),
        (&5204.0.into(), &8117.5.into())
    );
    assert!(find("host", "port-out")["skip"].is_string());
    assert!(find("sim/linux", "getpid")["skip"].is_string());
    assert_eq!(
        find("sim/qemu-kvm", "timer-wake")["failure"],
        "not-deterministic"
    );
}

#[test]
fn empty_report_is_rendered() {
    let empty = trapline_report::Report::default();
    assert!(serde_json::from_str::<serde_json::Value>(&json(&empty)).is_ok());
    assert_eq!(csv(&empty).lines().count(), 1);
    terminal(&empty, &Style::default());
    markdown(&empty);
}

/// The page of the made-up report, without what a browser is needed for.
#[test]
fn the_page_has_each_part_once_and_its_clocks_apart() {
    let source = page::Source {
        report: &common::report(),
        observations: &[],
        profiles: &[],
        run: &page::Run {
            number: 7,
            ..page::Run::default()
        },
    };
    let text = page::page(&source);
    for id in [
        "headline", "map", "wall", "insn", "insn-vmx", "against", "remarks", "facts",
    ] {
        let begin = format!("<section id=\"{id}\"");
        assert_eq!(text.matches(&begin).count(), 1, "{id}");
    }
    for shown in [
        "134,123,456",
        "24.1 µs",
        "&lt;0.410 ns",
        "failed",
        "3% fast",
    ] {
        assert!(text.contains(shown), "no {shown}");
    }
    // Control characters of guests are gone.
    assert!(!text.contains('\u{1b}'));
    assert_eq!(text.matches("<script").count(), 2);
    assert!(text.len() < 200_000, "{} bytes", text.len());
}
