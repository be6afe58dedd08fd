//! The page of a comparison (`--html`).

use super::Compared;
use crate::args::CompareArgs;
use crate::output_file::OutputFile;
use std::path::Path;
use trapline_host::files::{read_text, TEXT_LIMIT};
use trapline_report::page::{self, BadChanges, Changes};
use trapline_runner::Failure;

/// A page to be written when both sides are measured.
pub struct RequestedPage {
    file: OutputFile,
    changes: Vec<Changes>,
}

/// Returns the requested page, if there is one.
///
/// # Errors
/// Its file cannot be opened, or a profile cannot be read.
pub fn requested(args: &CompareArgs) -> Result<Option<RequestedPage>, Failure> {
    let Some(path) = &args.html else {
        return Ok(None);
    };
    let mut changes = Vec::new();
    for profile in &args.profiles {
        changes.extend(read(profile)?);
    }
    let file = OutputFile::open("--html", path)?;
    Ok(Some(RequestedPage { file, changes }))
}

fn read(path: &Path) -> Result<Vec<Changes>, Failure> {
    let about = format!("--profile {}", path.display());
    let text = read_text(path, TEXT_LIMIT);
    let text = text.map_err(|error| Failure::from_error(&error).about(&about))?;
    let changes = Changes::parse(&text);
    changes.map_err(|error| Failure::usage(&error, BadChanges::REMEDY).about(&about))
}

impl RequestedPage {
    /// Writes the page.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(self, compared: &Compared) -> Result<(), Failure> {
        let [a, b] = &compared.boots;
        self.file.write(&page::comparison_page(&page::Compared {
            report: &compared.versus,
            boots: [a, b],
            changes: &self.changes,
        }))
    }
}
