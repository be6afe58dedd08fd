//! Export of figures (JUnit, Bencher) and of raw samples (Parquet, CSV, JSON).

use crate::shared::default_run;
use parquet::file::reader::{FileReader, SerializedFileReader};
use quick_xml::events::Event;
use quick_xml::Reader;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use trapline_store::{RunId, Store};
use trapline_tests::measurements::{cell, cells};
use trapline_tests::run::Place;

/// Counts each element, and checks that all are closed.
fn elements(xml: &str) -> BTreeMap<String, usize> {
    let mut reader = Reader::from_str(xml);
    let mut counts = BTreeMap::new();
    loop {
        match reader.read_event().expect("well-formed XML") {
            Event::Eof => return counts,
            Event::Start(tag) | Event::Empty(tag) => {
                let name = String::from_utf8_lossy(tag.name().as_ref()).into_owned();
                *counts.entry(name).or_default() += 1;
            }
            _ => {}
        }
    }
}

#[test]
fn junit_is_well_formed_xml() {
    let place = Place::new();
    let words = "--env host --workload basic/getpid,exits/port-out --boots 2 --quiet";
    let hostile = "--fact why=</property><evil\u{1b}[31m>";
    let result = place.run_storing("run", &format!("{words} {hostile} --format junit"));
    assert_eq!(result.status, Some(0), "{}", result.stderr);
    let counts = elements(&result.stdout);
    assert_eq!(counts["testcase"], 2, "{}", result.stdout);
    assert_eq!(counts["skipped"], 1, "a process has no ports");
    assert_eq!(counts["system-out"], 1, "{}", result.stdout);
    assert!(!counts.contains_key("evil") && !result.stdout.contains('\u{1b}'));
    assert!(result
        .stdout
        .contains("name=\"host/why\" value=\"&lt;/property&gt;"));
    let shown = place.run_storing("show", "--format junit");
    assert_eq!(shown.stdout, result.stdout, "show prints the stored run");
    let compared = place.run_storing("compare", "1/host 1/host --format junit");
    assert_eq!(compared.status, Some(0), "{}", compared.stderr);
    let counts = elements(&compared.stdout);
    assert!(counts["testcase"] >= 1 && !counts.contains_key("failure"));
    assert!(
        compared.stdout.contains("<testsuite name=\"host\""),
        "{}",
        compared.stdout
    );
}

#[test]
fn bencher_has_figures_with_intervals() {
    let run = default_run();
    let show = "--run 1 --format bencher";
    let json = run.place.run_storing("show", show).json();
    let cells = cells(&run.json).iter();
    let measured = cells.filter(|cell| cell["estimate"].is_number()).count();
    assert_eq!(json.as_object().map(|all| all.len()), Some(measured));
    let cell = cell(&run.json, "host", "getpid");
    let metric = &json["host/basic/getpid"]["latency"];
    assert_eq!(metric["value"], cell["estimate"]);
    assert_eq!(metric["lower_value"], cell["low"]);
    assert_eq!(metric["upper_value"], cell["high"]);
    let compare = "1/host 1/host --format bencher";
    let compared = run.place.run_storing("compare", compare).json();
    assert_eq!(compared["host/basic/getpid"]["latency"], *metric);
}

/// Returns the number of stored samples of run 1.
fn stored(place: &Place) -> usize {
    let mut store = Store::open_existing(&place.store()).expect("store exists");
    let run = store.load(RunId(1)).expect("run exists");
    let operations = run.observations.iter().flat_map(|boot| &boot.operations);
    operations.map(|one| one.outcome.batches().len()).sum()
}

#[test]
fn every_stored_sample_is_exported() {
    let run = default_run();
    let samples = stored(&run.place);
    let directory = tempfile::tempdir().expect("temporary directory");
    let file = |name: &str| {
        let path = directory.path().join(name);
        let words = format!("{} --run 1", path.display());
        let result = run.place.run_storing("export", &words);
        assert_eq!(result.status, Some(0), "{}", result.stderr);
        let expected = format!("{name} ({samples} samples of run 1, ");
        assert!(result.stdout.contains(&expected), "{}", result.stdout);
        path
    };
    let parquet = File::open(file("a.parquet")).expect("file exists");
    let parquet = SerializedFileReader::new(parquet).expect("Parquet file");
    let rows = parquet.metadata().file_metadata().num_rows();
    assert_eq!(usize::try_from(rows), Ok(samples));
    let read = |name: &str| fs::read_to_string(file(name)).expect("file exists");
    let csv = read("a.csv");
    assert_eq!(csv.lines().count(), 1 + samples);
    assert!(
        csv.starts_with("run,environment,settings,boot,clock,"),
        "{csv}"
    );
    let json = read("a.json");
    let rows: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON object per line"))
        .collect();
    assert_eq!(rows.len(), samples);
    let of_boot = |boot: u64| rows.iter().filter(move |row| row["boot"] == boot).count();
    assert_eq!(of_boot(0) + of_boot(1), samples);
    for cell in cells(&run.json) {
        let keys = ["environment", "workload", "operation"];
        let is_of_cell = |row: &&Value| keys.iter().all(|key| row[key] == cell[key]);
        let its = rows.iter().filter(is_of_cell);
        let values: Vec<f64> = its.filter_map(|row| row["value"].as_f64()).collect();
        let least = values.iter().copied().min_by(f64::total_cmp);
        assert_eq!(least, cell["min"].as_f64(), "{cell}");
        // Both boots on an exact clock have the same samples.
        let equal = if cell["clock"] == "insn" { 2 } else { 1 };
        let expected = cell["samples"].as_u64().unwrap_or(0) * equal;
        assert_eq!(values.len() as u64, expected, "{cell}");
    }
}

#[test]
fn disk_requests_are_exported() {
    let place = Place::new();
    let file = place.path().join("measured");
    let words = format!(
        "--env host --size 4M --requests 512 --boots 1 --quiet --file {}",
        file.display()
    );
    let result = place.run_storing("block", &words);
    assert_eq!(result.status, Some(0), "{}", result.stderr);
    let csv = place.path().join("requests.csv");
    let result = place.run_storing("export", csv.to_str().expect("text"));
    assert_eq!(result.status, Some(0), "{}", result.stderr);
    let text = fs::read_to_string(&csv).expect("file exists");
    assert_eq!(text.lines().count(), 1 + stored(&place));
    let of = |operation: &str| text.lines().filter(|line| line.contains(operation)).count();
    assert_eq!(of(",read-4k-32,"), 512);
}

#[test]
fn invalid_exports_are_rejected_with_a_remedy() {
    let place = &default_run().place;
    let directory = tempfile::tempdir().expect("temporary directory");
    let there = directory.path().join("there.csv");
    fs::write(&there, "mine").expect("write succeeds");
    let there = there.to_str().expect("text");
    for (words, status, message, help) in [
        (
            there,
            2,
            "there.csv is there, and would be lost",
            "name another file, or replace it with --force",
        ),
        (
            "samples.xlsx",
            2,
            "no format has this extension",
            "name FILE.parquet, FILE.csv or FILE.json",
        ),
        (
            "/no/such/a.csv",
            1,
            "cannot write /no/such/a.csv: No such file",
            "name a file in a directory",
        ),
        ("/no/such/a.csv --run 9999", 1, "run 9999", "--list"),
    ] {
        let result = place.run_storing("export", words);
        assert_eq!(result.status, Some(status), "{words}: {}", result.stderr);
        let (error, remedy) = result
            .stderr
            .split_once("\n  help: ")
            .expect("message has a help line");
        assert!(error.contains(message), "{words}: {}", result.stderr);
        assert!(remedy.contains(help), "{words}: {}", result.stderr);
    }
    assert_eq!(fs::read_to_string(there).expect("file exists"), "mine");
    let result = place.run_storing("export", &format!("--force {there} --run 1"));
    assert_eq!(result.status, Some(0), "{}", result.stderr);
}
