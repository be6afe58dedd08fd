//! Text formats: CSV and JSON Lines.

use crate::export::columns::{Column, Get, COLUMNS};
use crate::export::rows::Row;
use crate::export::Sink;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::io::{self, BufWriter, Write};

/// CSV (RFC 4180, but with plain line feeds); unknown values are empty.
pub struct Csv<W: Write>(csv::Writer<W>);

impl<W: Write> Csv<W> {
    /// Writes the header.
    pub fn begin(out: W) -> io::Result<Self> {
        let mut writer = csv::Writer::from_writer(out);
        writer.write_record(COLUMNS.map(|column| column.name))?;
        Ok(Self(writer))
    }
}

impl<W: Write> Sink for Csv<W> {
    fn group(&mut self, rows: &[Row<'_>]) -> io::Result<()> {
        for row in rows {
            self.0
                .write_record(COLUMNS.map(|column| field(&column, row)))?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.0.flush()
    }
}

fn field(column: &Column, row: &Row<'_>) -> String {
    match column.get {
        Get::Text(of) => of(row).to_owned(),
        Get::Count(of) => of(row).to_string(),
        Get::MaybeCount(of) => of(row).map_or_else(String::new, |count| count.to_string()),
        Get::Number(of) => of(row).to_string(),
        Get::MaybeNumber(of) => of(row).map_or_else(String::new, |number| number.to_string()),
    }
}

/// JSON Lines; unknown values are `null`.
pub struct JsonLines<W: Write>(BufWriter<W>);

impl<W: Write> JsonLines<W> {
    /// Creates the writer; there is no header.
    pub fn begin(out: W) -> Self {
        Self(BufWriter::new(out))
    }
}

impl<W: Write> Sink for JsonLines<W> {
    fn group(&mut self, rows: &[Row<'_>]) -> io::Result<()> {
        for row in rows {
            serde_json::to_writer(&mut self.0, &Object(row))?;
            self.0.write_all(b"\n")?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.0.flush()
    }
}

struct Object<'a>(&'a Row<'a>);

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(Some(COLUMNS.len()))?;
        for Column { name, get } in COLUMNS {
            match get {
                Get::Text(of) => object.serialize_entry(name, of(self.0))?,
                Get::Count(of) => object.serialize_entry(name, &of(self.0))?,
                Get::MaybeCount(of) => object.serialize_entry(name, &of(self.0))?,
                Get::Number(of) => object.serialize_entry(name, &of(self.0))?,
                Get::MaybeNumber(of) => object.serialize_entry(name, &of(self.0))?,
            }
        }
        object.end()
    }
}
