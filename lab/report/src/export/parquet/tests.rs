//! The reader of the format returns the written rows.

use super::*;
use crate::export::example::{boots, SAMPLES};
use crate::export::rows::{parts, Part};
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::{Field, Row as Read};
use std::fs::File;
use trapline_model::Observation;

/// The file in groups of so many rows.
fn written(boots: &[Observation], group: usize) -> File {
    let file = tempfile::tempfile().unwrap();
    let parts = parts(9, boots);
    let rows: Vec<_> = parts.iter().flat_map(Part::rows).collect();
    let mut sink = Box::new(Parquet::begin(&file).unwrap());
    rows.chunks(group)
        .for_each(|group| sink.group(group).unwrap());
    sink.finish().unwrap();
    file
}

fn read(file: File) -> Vec<Read> {
    let reader = SerializedFileReader::new(file).unwrap();
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(Result::unwrap).collect()
}

fn field<'a>(row: &'a Read, name: &str) -> &'a Field {
    let mut columns = row.get_column_iter();
    let found = columns.find(|(column, _)| *column == name);
    found.unwrap_or_else(|| panic!("no column {name}")).1
}

fn expected(column: &Column, row: &Row<'_>) -> Field {
    let count = |count: Option<u64>| count.map_or(Field::Null, Field::ULong);
    let number = |number: Option<f64>| number.map_or(Field::Null, Field::Double);
    match column.get {
        Get::Text(of) => Field::Str(of(row).to_owned()),
        Get::Count(of) => Field::ULong(of(row)),
        Get::MaybeCount(of) => count(of(row)),
        Get::Number(of) => Field::Double(of(row)),
        Get::MaybeNumber(of) => number(of(row)),
    }
}

#[test]
fn every_value_of_every_sample_is_read_back_in_groups_of_any_size() {
    let boots = boots();
    let parts = parts(9, &boots);
    let rows: Vec<_> = parts.iter().flat_map(Part::rows).collect();
    for group in [1, 4, 1_000] {
        let file = written(&boots, group);
        let groups = SerializedFileReader::new(file.try_clone().unwrap()).unwrap();
        assert_eq!(groups.num_row_groups(), rows.len().div_ceil(group));
        let read = read(file);
        assert_eq!(read.len() as u64, SAMPLES);
        for (read, row) in read.iter().zip(&rows) {
            assert_eq!(read.len(), COLUMNS.len());
            for column in COLUMNS {
                assert_eq!(
                    *field(read, column.name),
                    expected(&column, row),
                    "{column:?}"
                );
            }
        }
    }
}

#[test]
fn figures_and_what_is_unknown_are_as_they_should_be() {
    let rows = read(written(&boots(), 1_000));
    // (1,040 - 40) / 10 - 1 = 99 ticks of half a nanosecond.
    assert_eq!(*field(&rows[0], "value"), Field::Double(49.5));
    assert_eq!(*field(&rows[0], "host_ns"), Field::Null);
    assert_eq!(*field(&rows[0], "exits"), Field::Null);
    assert_eq!(*field(&rows[0], "run"), Field::ULong(9));
    assert_eq!(*field(&rows[5], "exits"), Field::ULong(50));
    assert_eq!(
        *field(&rows[5], "start_tick"),
        Field::ULong(u64::MAX - 20_000)
    );
    let hexadecimal = Field::Str("0xffffffffffffffff".to_owned());
    assert_eq!(*field(&rows[5], "checksum"), hexadecimal);
    assert_eq!(
        *field(&rows[9], "value"),
        Field::Null,
        "nothing was counted"
    );
    assert_eq!(
        *field(&rows[10], "operation"),
        Field::Str("own-timer".to_owned())
    );
    assert_eq!(*field(&rows[10], "start_tick"), Field::ULong(1_000));
    assert_eq!(*field(&rows[10], "end_tick"), Field::ULong(1_300));
}

#[test]
fn a_run_without_samples_is_a_file_without_rows() {
    assert_eq!(read(written(&[], 10)).len(), 0);
}
