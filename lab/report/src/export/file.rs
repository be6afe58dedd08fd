//! Writes the file atomically, in the format of its extension.

use crate::export::parquet::Parquet;
use crate::export::rows::{self, Part};
use crate::export::text::{Csv, JsonLines};
use crate::export::{Sink, GROUP};
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;
use thiserror::Error;
use trapline_model::Observation;

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Parquet.
    Parquet,
    /// CSV with a header.
    Csv,
    /// JSON, an object a line.
    JsonLines,
}

/// The samples to be written.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The number of the run.
    pub run: u64,
    /// Its boots.
    pub observations: &'a [Observation],
}

/// Size of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Number of samples.
    pub samples: u64,
    /// The size of the file, in bytes.
    pub bytes: u64,
}

/// The reason why nothing was written.
#[derive(Debug, Error)]
pub enum ExportError {
    /// The extension is not that of a format.
    #[error("{}: no format has this extension", .0.display())]
    Format(PathBuf),
    /// The file exists.
    #[error("{} is there, and would be lost", .0.display())]
    Exists(PathBuf),
    /// The file system reports an error.
    #[error("cannot write {}: {}", .0.display(), .1)]
    Unwritable(PathBuf, #[source] io::Error),
    /// The export was cancelled.
    #[error("interrupted before {} was whole; nothing of it is left", .0.display())]
    Interrupted(PathBuf),
}

impl ExportError {
    /// Returns the remedy, if there is one.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Format(_) => Some("name FILE.parquet, FILE.csv or FILE.json"),
            Self::Exists(_) => Some("name another file, or replace it with --force"),
            Self::Unwritable(..) => {
                Some("name a file in a directory that exists, is writable, and has space")
            }
            Self::Interrupted(_) => None,
        }
    }
}

impl Format {
    /// Returns the format for the extension of `path`.
    ///
    /// # Errors
    /// [`ExportError::Format`].
    pub fn of(path: &Path) -> Result<Self, ExportError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("parquet") => Ok(Self::Parquet),
            Some("csv") => Ok(Self::Csv),
            Some("json" | "jsonl") => Ok(Self::JsonLines),
            _ => Err(ExportError::Format(path.to_owned())),
        }
    }

    fn begin<'a>(self, out: &'a File) -> io::Result<Box<dyn Sink + 'a>> {
        Ok(match self {
            Self::Parquet => Box::new(Parquet::begin(out)?),
            Self::Csv => Box::new(Csv::begin(out)?),
            Self::JsonLines => Box::new(JsonLines::begin(out)),
        })
    }
}

/// Writes every sample to a file, in the format of its extension, until `is_cancelled` returns true.
///
/// # Errors
/// See [`ExportError`]; an existing file is unchanged then.
pub fn write(
    path: &Path,
    source: &Source<'_>,
    replace: bool,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Written, ExportError> {
    let format = Format::of(path)?;
    if !replace && path.symlink_metadata().is_ok() {
        return Err(ExportError::Exists(path.to_owned()));
    }
    let unwritable = |error: io::Error| ExportError::Unwritable(path.to_owned(), error);
    let file = temporary_file(path).map_err(unwritable)?;
    let parts = rows::parts(source.run, source.observations);
    let samples = fill(file.as_file(), format, &parts, is_cancelled).map_err(unwritable)?;
    let Some(samples) = samples else {
        return Err(ExportError::Interrupted(path.to_owned()));
    };
    let bytes = file.as_file().metadata().map_err(unwritable)?.len();
    rename(file, path, replace)?;
    Ok(Written { samples, bytes })
}

/// Creates a temporary file in the same directory.
fn temporary_file(path: &Path) -> io::Result<NamedTempFile> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    // The mode of other new files; the default is the owner alone.
    tempfile::Builder::new()
        .prefix(".trapline-export-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(parent.unwrap_or(Path::new(".")))
}

/// Returns the number of samples written, or `None` if cancelled.
fn fill(
    out: &File,
    format: Format,
    parts: &[Part<'_>],
    is_cancelled: &dyn Fn() -> bool,
) -> io::Result<Option<u64>> {
    let mut sink = format.begin(out)?;
    let mut rows = parts.iter().flat_map(Part::rows);
    let mut samples = 0;
    loop {
        let group: Vec<_> = rows.by_ref().take(GROUP).collect();
        if is_cancelled() {
            return Ok(None);
        }
        if group.is_empty() {
            break;
        }
        sink.group(&group)?;
        samples += group.len() as u64;
    }
    sink.finish()?;
    // The data must be on disk before the file has its name.
    out.sync_all()?;
    Ok(Some(samples))
}

fn rename(file: NamedTempFile, path: &Path, replace: bool) -> Result<(), ExportError> {
    let named = if replace {
        file.persist(path)
    } else {
        file.persist_noclobber(path)
    };
    named.map(drop).map_err(|error| match error.error.kind() {
        io::ErrorKind::AlreadyExists => ExportError::Exists(path.to_owned()),
        _ => ExportError::Unwritable(path.to_owned(), error.error),
    })
}

#[cfg(test)]
mod tests;
