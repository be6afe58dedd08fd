//! Arguments of `store`, and names of runs in files.

use clap::{Args, Subcommand};
use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Arguments of `trapline store`.
#[derive(Args, Debug)]
pub struct StoreArgs {
    /// Command
    #[command(subcommand)]
    pub command: StoreCommand,
}

/// A command about stores.
#[derive(Subcommand, Debug)]
pub enum StoreCommand {
    /// Unite the slices of a plan, or runs of the same plan on several hosts, to one run
    Merge {
        /// File to which the run is added
        #[arg(value_name = "OUT")]
        out: PathBuf,
        /// Files of which the last run is merged, or run N of a file: FILE#N
        #[arg(value_name = "FILE[#N]", required = true)]
        runs: Vec<RunOfFile>,
    },
}

/// A run of a file, `FILE#N`: the last one if there is no number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOfFile {
    /// The file.
    pub file: PathBuf,
    /// Number of the run.
    pub run: Option<u32>,
}

impl FromStr for RunOfFile {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        // A file may have such a name.
        let named = text.rsplit_once('#').filter(|_| !Path::new(text).exists());
        let numbered = named.and_then(|(file, run)| Some((file, run.parse().ok()?)));
        Ok(match numbered {
            Some((file, run)) => Self {
                file: file.into(),
                run: Some(run),
            },
            None => Self {
                file: text.into(),
                run: None,
            },
        })
    }
}

impl fmt::Display for RunOfFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        self.run.map_or(Ok(()), |run| write!(f, "#{run}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_a_file_may_have_a_number() {
        for (text, file, run) in [
            ("a.db", "a.db", None),
            ("a.db#3", "a.db", Some(3)),
            ("a#b/c.db#12", "a#b/c.db", Some(12)),
            ("a.db#x", "a.db#x", None),
        ] {
            let Ok(named) = text.parse::<RunOfFile>();
            assert_eq!((named.file.to_str(), named.run), (Some(file), run));
            assert_eq!(named.to_string(), text);
        }
    }

    #[test]
    fn a_file_with_such_a_name_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a#1");
        std::fs::write(&file, "").unwrap();
        let Ok(named) = file.to_str().unwrap().parse::<RunOfFile>();
        assert_eq!((named.file, named.run), (file, None));
    }
}
