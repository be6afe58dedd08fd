//! Files that are written, refused, and cut off.

use super::*;
use crate::export::columns::COLUMNS;
use crate::export::example::{boots, SAMPLES};
use std::cell::Cell;
use std::fs;

fn export(path: &Path, replace: bool) -> Result<Written, ExportError> {
    let boots = boots();
    let source = Source {
        run: 9,
        observations: &boots,
    };
    write(path, &source, replace, &|| false)
}

#[test]
fn every_form_has_every_sample_and_every_column() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.parquet", "a.csv", "a.json", "a.jsonl"] {
        let path = folder.path().join(name);
        let written = export(&path, false).unwrap();
        assert_eq!(written.samples, SAMPLES, "{name}");
        assert_eq!(written.bytes, path.metadata().unwrap().len(), "{name}");
    }
    let mut csv = csv::Reader::from_path(folder.path().join("a.csv")).unwrap();
    let header: Vec<_> = csv.headers().unwrap().iter().map(str::to_owned).collect();
    assert_eq!(header, COLUMNS.map(|column| column.name));
    let lines: Vec<_> = csv.records().map(Result::unwrap).collect();
    let json = fs::read_to_string(folder.path().join("a.json")).unwrap();
    let objects: Vec<serde_json::Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len() as u64, SAMPLES);
    assert_eq!(objects.len() as u64, SAMPLES);
    for (line, object) in lines.iter().zip(&objects) {
        assert_eq!(object.as_object().unwrap().len(), COLUMNS.len());
        for (name, field) in header.iter().zip(line) {
            let same = match &object[name] {
                serde_json::Value::Null => field.is_empty(),
                serde_json::Value::String(text) => text == field,
                number => number.as_f64() == field.parse().ok(),
            };
            assert!(same, "{name}: {field} and {}", object[name]);
        }
    }
    assert_eq!(objects[5]["start_tick"], u64::MAX - 20_000, "to the digit");
}

#[test]
fn existing_file_is_replaced_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.csv");
    fs::write(&path, "mine").unwrap();
    let error = export(&path, false).unwrap_err();
    let message = error.to_string();
    assert!(
        message.ends_with("a.csv is there, and would be lost"),
        "{message}"
    );
    assert_eq!(
        error.remedy(),
        Some("name another file, or replace it with --force")
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    export(&path, true).unwrap();
    assert_ne!(fs::read_to_string(&path).unwrap(), "mine");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn an_export_that_is_cut_off_leaves_nothing_and_harms_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    fs::write(&path, "mine").unwrap();
    let boots = boots();
    let source = Source {
        run: 9,
        observations: &boots,
    };
    let groups = Cell::new(0);
    let after_the_first = || groups.replace(groups.get() + 1) > 0;
    let message = write(&path, &source, true, &after_the_first).unwrap_err();
    assert!(matches!(message, ExportError::Interrupted(_)), "{message}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn write_error_has_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str| export(&folder.path().join(name), true).unwrap_err();
    for name in ["samples.xlsx", "samples", ".csv"] {
        let remedy = of(name).remedy();
        assert_eq!(remedy, Some("name FILE.parquet, FILE.csv or FILE.json"));
    }
    let error = of("no/such/a.csv");
    let message = error.to_string();
    assert!(
        message.contains("a.csv: No such file or directory"),
        "{message}"
    );
    let remedy = error.remedy().unwrap();
    assert!(remedy.starts_with("name a file in a directory"), "{remedy}");
    fs::create_dir(folder.path().join("b.csv")).unwrap();
    assert!(of("b.csv").to_string().contains("cannot write"));
}

/// A device that is always full stands for a disk that is.
#[test]
fn full_disk_is_an_error_in_every_format() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let boots = boots();
    let parts = rows::parts(9, &boots);
    for form in [Format::Parquet, Format::Csv, Format::JsonLines] {
        let error = fill(&full, form, &parts, &|| false).unwrap_err();
        assert_eq!(
            error.kind(),
            io::ErrorKind::StorageFull,
            "{form:?}: {error}"
        );
    }
}

#[test]
fn order_in_which_boots_ended_does_not_show() {
    let directory = tempfile::tempdir().expect("temporary directory is made");
    let mut observations = boots();
    let mut written = |name: &str| {
        let path = directory.path().join(name);
        let source = Source {
            run: 9,
            observations: &observations,
        };
        write(&path, &source, false, &|| false).expect("file is written");
        observations.reverse();
        fs::read(path).expect("file is read")
    };
    assert_eq!(written("one.csv"), written("two.csv"));
}
