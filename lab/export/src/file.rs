//! The file: which form its name asks for, and that it is there whole or not at all.

use crate::parquet::Parquet;
use crate::rows::{self, Part};
use crate::text::{Csv, JsonLines};
use crate::{Sink, GROUP};
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;
use thiserror::Error;
use trapline_model::Observation;

/// How samples are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Parquet.
    Parquet,
    /// CSV with a header.
    Csv,
    /// JSON, an object a line.
    JsonLines,
}

/// What is written.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The number of the run.
    pub run: u64,
    /// Its boots.
    pub observations: &'a [Observation],
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// How many samples.
    pub samples: u64,
    /// The size of the file, in bytes.
    pub bytes: u64,
}

/// Why nothing was written.
#[derive(Debug, Error)]
pub enum ExportError {
    /// Its name tells no form.
    #[error("{}: what it shall hold is not known; name FILE.parquet, FILE.csv or FILE.json", .0.display())]
    Form(PathBuf),
    /// It would be lost.
    #[error("{} is there, and would be lost; name another file, or replace it with --force", .0.display())]
    Exists(PathBuf),
    /// The file system does not let it be written.
    #[error("cannot write {}: {}; name a file in a directory that is there, may be written to, and has room", .0.display(), .1)]
    Unwritable(PathBuf, #[source] io::Error),
    /// Somebody asked for an end.
    #[error("interrupted before {} was whole; nothing of it is left", .0.display())]
    Interrupted(PathBuf),
}

impl Form {
    /// That of a file with this name.
    ///
    /// # Errors
    /// [`ExportError::Form`].
    pub fn of(path: &Path) -> Result<Self, ExportError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("parquet") => Ok(Self::Parquet),
            Some("csv") => Ok(Self::Csv),
            Some("json" | "jsonl") => Ok(Self::JsonLines),
            _ => Err(ExportError::Form(path.to_owned())),
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

/// Writes every sample to a file, in the form that its name asks for. `is_asked` is whether
/// somebody wants an end before all is written.
///
/// # Errors
/// See [`ExportError`]. Then there is nothing new under that name, and what was there is.
pub fn write(
    path: &Path,
    source: &Source<'_>,
    replace: bool,
    is_asked: &dyn Fn() -> bool,
) -> Result<Written, ExportError> {
    let form = Form::of(path)?;
    if !replace && path.symlink_metadata().is_ok() {
        return Err(ExportError::Exists(path.to_owned()));
    }
    let unwritable = |error: io::Error| ExportError::Unwritable(path.to_owned(), error);
    let file = beside(path).map_err(unwritable)?;
    let parts = rows::parts(source.run, source.observations);
    let samples = fill(file.as_file(), form, &parts, is_asked).map_err(unwritable)?;
    let Some(samples) = samples else {
        return Err(ExportError::Interrupted(path.to_owned()));
    };
    let bytes = file.as_file().metadata().map_err(unwritable)?.len();
    take_name(file, path, replace)?;
    Ok(Written { samples, bytes })
}

/// A file in the same directory that goes if it gets no other name.
fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    // Readable to whom new files are, not to its owner alone.
    tempfile::Builder::new()
        .prefix(".trapline-export-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(parent.unwrap_or(Path::new(".")))
}

/// How many samples were written; `None` if somebody asked for an end.
fn fill(
    out: &File,
    form: Form,
    parts: &[Part<'_>],
    is_asked: &dyn Fn() -> bool,
) -> io::Result<Option<u64>> {
    let mut sink = form.begin(out)?;
    let mut rows = parts.iter().flat_map(Part::rows);
    let mut samples = 0;
    loop {
        let group: Vec<_> = rows.by_ref().take(GROUP).collect();
        if is_asked() {
            return Ok(None);
        }
        if group.is_empty() {
            break;
        }
        sink.group(&group)?;
        samples += group.len() as u64;
    }
    sink.finish()?;
    // It must not have its name before its bytes are where they stay.
    out.sync_all()?;
    Ok(Some(samples))
}

fn take_name(file: NamedTempFile, path: &Path, replace: bool) -> Result<(), ExportError> {
    let named = match replace {
        true => file.persist(path),
        false => file.persist_noclobber(path),
    };
    named.map(drop).map_err(|error| match error.error.kind() {
        io::ErrorKind::AlreadyExists => ExportError::Exists(path.to_owned()),
        _ => ExportError::Unwritable(path.to_owned(), error.error),
    })
}

#[cfg(test)]
mod tests;
