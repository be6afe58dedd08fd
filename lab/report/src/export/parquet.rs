//! Parquet: repeated texts as a dictionary, increasing numbers as differences.

use crate::export::columns::{Column, Get, COLUMNS};
use crate::export::rows::Row;
use crate::export::Sink;
use ::parquet::basic::Encoding;
use ::parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use ::parquet::schema::parser::parse_message_type;
use ::parquet::schema::types::ColumnPath;
use std::io::{self, Write};
use std::sync::Arc;

/// Columns whose values increase slowly.
const GROWING: [&str; 4] = ["number", "start_tick", "end_tick", "host_ns"];

/// A Parquet file being written.
pub struct Parquet<W: Write + Send>(SerializedFileWriter<W>);

impl<W: Write + Send> Parquet<W> {
    /// Writes the header.
    pub fn begin(out: W) -> io::Result<Self> {
        let schema = parse_message_type(&schema()).map_err(failed)?;
        let writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties()));
        writer.map(Self).map_err(failed)
    }

    fn write(&mut self, rows: &[Row<'_>]) -> Result<(), ParquetError> {
        let mut group = self.0.next_row_group()?;
        for column in COLUMNS {
            // The schema has as many columns.
            if let Some(mut writer) = group.next_column()? {
                write_column(&column, rows, &mut writer)?;
                writer.close()?;
            }
        }
        group.close().map(drop)
    }
}

impl<W: Write + Send> Sink for Parquet<W> {
    fn group(&mut self, rows: &[Row<'_>]) -> io::Result<()> {
        self.write(rows).map_err(failed)
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        self.0.close().map(drop).map_err(failed)
    }
}

/// The schema in Parquet's own language.
fn schema() -> String {
    let fields = COLUMNS.map(|Column { name, get }| match get {
        Get::Text(_) => format!("required binary {name} (STRING);"),
        Get::Count(_) => format!("required int64 {name} (INTEGER(64,false));"),
        Get::MaybeCount(_) => format!("optional int64 {name} (INTEGER(64,false));"),
        Get::Number(_) => format!("required double {name};"),
        Get::MaybeNumber(_) => format!("optional double {name};"),
    });
    format!("message samples {{ {} }}", fields.join(" "))
}

fn properties() -> WriterProperties {
    let mut properties = WriterProperties::builder();
    for name in GROWING {
        properties = properties
            .set_column_dictionary_enabled(ColumnPath::from(name), false)
            .set_column_encoding(ColumnPath::from(name), Encoding::DELTA_BINARY_PACKED);
    }
    properties.build()
}

fn write_column(
    column: &Column,
    rows: &[Row<'_>],
    writer: &mut SerializedColumnWriter<'_>,
) -> Result<(), ParquetError> {
    // Parquet stores unsigned numbers as signed ones with the same bits.
    let bits = |count: u64| count as i64;
    match column.get {
        Get::Text(of) => put::<ByteArrayType>(writer, rows, |row| ByteArray::from(of(row))),
        Get::Count(of) => put::<Int64Type>(writer, rows, |row| bits(of(row))),
        Get::MaybeCount(of) => maybe_put::<Int64Type>(writer, rows, |row| of(row).map(bits)),
        Get::Number(of) => put::<DoubleType>(writer, rows, of),
        Get::MaybeNumber(of) => maybe_put::<DoubleType>(writer, rows, of),
    }
}

fn put<T: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    rows: &[Row<'_>],
    of: impl Fn(&Row<'_>) -> T::T,
) -> Result<(), ParquetError> {
    let values: Vec<T::T> = rows.iter().map(of).collect();
    let typed = writer.typed::<T>();
    typed.write_batch(&values, None, None).map(drop)
}

/// Writes the known values and the definition level of each row.
fn maybe_put<T: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    rows: &[Row<'_>],
    of: impl Fn(&Row<'_>) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let all: Vec<Option<T::T>> = rows.iter().map(of).collect();
    let known: Vec<i16> = all.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = all.into_iter().flatten().collect();
    let typed = writer.typed::<T>();
    typed.write_batch(&values, Some(&known), None).map(drop)
}

/// Returns the I/O error below an error of Parquet, if there is one.
fn failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(cause) => io::Error::other(cause),
        },
        error => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests;
