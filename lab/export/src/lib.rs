//! Raw samples as a file for other programs: Parquet, CSV, or JSON, one object a line.
//!
//! A sample is a row ([`rows`]), and what is known of it a column ([`columns`]), the same in
//! every form. Rows are written in groups to a temporary file beside the one that is wanted,
//! which then takes its name: there is all of it, or nothing. Pure but for that file.
#![forbid(unsafe_code)]

mod columns;
mod file;
mod parquet;
mod rows;
mod text;

pub use columns::{Column, Get, COLUMNS};
pub use file::{write, ExportError, Form, Source, Written};
pub use rows::{parts, Part, Row};

use std::io;

/// Rows that are written at a time. A reader that wants few of them passes over whole
/// groups.
const GROUP: usize = 1 << 16;

/// What rows are written to.
trait Sink {
    /// Writes these rows after those before.
    fn group(&mut self, rows: &[Row<'_>]) -> io::Result<()>;

    /// Writes what has to follow the last row.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

#[cfg(test)]
mod example;
