//! Exports raw samples as Parquet, CSV or JSON Lines.
//!
//! Every format has a row for each sample ([`rows`]) and the same [`columns`]. Rows are written in
//! groups to a temporary file, which is renamed when it is complete.
mod columns;
mod file;
mod parquet;
mod rows;
mod text;

pub use columns::{Column, Get, COLUMNS};
pub use file::{write, ExportError, Format, Source, Written};
pub use rows::{parts, Part, Row};

use std::io;

/// Rows of a group; readers skip whole groups.
const GROUP: usize = 1 << 16;

/// A writer of rows in one format.
trait Sink {
    /// Appends rows.
    fn group(&mut self, rows: &[Row<'_>]) -> io::Result<()>;

    /// Completes the file after the last row.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

#[cfg(test)]
mod example;
