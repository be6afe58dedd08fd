//! Attempts of hosts to execute slices: a file for each, which only reports. A slice is done if its result is there.

use crate::error::FleetError;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use trapline_model::time::now;

/// An attempt to execute a slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Attempt {
    /// The slice.
    pub slice: u32,
    /// Id of the host.
    pub host: String,
    /// Name of the host for people.
    pub label: String,
    /// Name of the host for the engine, if it has one.
    pub node: Option<String>,
    /// Start, in milliseconds since 1970.
    pub started_at: u64,
    /// End; `None` while it goes on, or if the host died.
    pub ended_at: Option<u64>,
    /// Why there is no result.
    pub failure: Option<String>,
    /// True if the host itself is unfit: its self-test failed.
    pub is_unfit: bool,
}

impl Attempt {
    /// Returns an attempt that begins now.
    pub(crate) fn begin(slice: u32, host: &trapline_model::Host) -> Self {
        Self {
            slice,
            host: host.id.clone(),
            label: host.label().to_owned(),
            node: std::env::var("SLURMD_NODENAME").ok(),
            started_at: now(),
            ended_at: None,
            failure: None,
            is_unfit: false,
        }
    }

    /// Writes it to the file of this process.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), FleetError> {
        let name = format!("{}-{}-{}.json", self.slice, self.host, std::process::id());
        let path = directory.join(&name);
        let new = directory.join(format!(".{name}"));
        let text = serde_json::to_string(self).unwrap_or_default();
        fs::write(&new, text).map_err(FleetError::file(&new))?;
        fs::rename(&new, &path).map_err(FleetError::file(&path))
    }

    /// Ends it, with the reason if there is no result.
    pub(crate) fn end(&mut self, failure: Option<String>) {
        self.ended_at = Some(now());
        self.failure = failure;
    }
}

/// Returns all attempts in a directory, the earliest first. What cannot be read is none.
pub(crate) fn all(directory: &Path) -> Vec<Attempt> {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let texts = files.filter_map(|file| {
        let name = file.file_name();
        let is_one = name
            .to_str()
            .is_some_and(|name| name.ends_with(".json") && !name.starts_with('.'));
        is_one
            .then(|| fs::read_to_string(file.path()).ok())
            .flatten()
    });
    let mut all: Vec<Attempt> = texts
        .filter_map(|text| serde_json::from_str(&text).ok())
        .collect();
    all.sort_by_key(|attempt| (attempt.started_at, attempt.slice));
    all
}
