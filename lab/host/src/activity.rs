//! The current activity of this process that takes long, for progress messages.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

static CURRENT: Mutex<Vec<(u64, Entry)>> = Mutex::new(Vec::new());

struct Entry {
    text: String,
    transfer: Option<Transfer>,
}

/// Files that are being written.
struct Transfer {
    directory: PathBuf,
    /// Bytes of all files when they are complete.
    total: u64,
    begin: Instant,
}

/// An activity. It ends when dropped.
#[derive(Debug)]
pub struct Activity(u64);

impl Activity {
    /// Begins an activity, as `unpacking user-mode-linux`.
    pub fn begin(text: impl Into<String>) -> Self {
        let text = text.into();
        Self::push(Entry {
            text,
            transfer: None,
        })
    }

    /// Begins a download of files of `total` bytes into `directory`. It has no other files.
    pub fn begin_download(text: impl Into<String>, directory: &Path, total: u64) -> Self {
        let transfer = Transfer {
            directory: directory.to_owned(),
            total,
            begin: Instant::now(),
        };
        Self::push(Entry {
            text: text.into(),
            transfer: (total > 0).then_some(transfer),
        })
    }

    fn push(entry: Entry) -> Self {
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        let number = current.last().map_or(0, |(number, _)| number + 1);
        current.push((number, entry));
        Self(number)
    }

    /// Returns the text of the activity that began last, if there is one.
    pub fn title() -> Option<String> {
        let current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        current.last().map(|(_, entry)| entry.text.clone())
    }

    /// Returns the activity that began last, if there is one. A download has its progress and remaining time.
    pub fn current() -> Option<String> {
        let current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        current.last().map(|(_, entry)| match &entry.transfer {
            None => entry.text.clone(),
            Some(transfer) => format!("{} {}", transfer.progress(), entry.text),
        })
    }
}

impl Transfer {
    fn progress(&self) -> String {
        let files = std::fs::read_dir(&self.directory).into_iter().flatten();
        let sizes = files.flatten().filter_map(|file| file.metadata().ok());
        let written = sizes
            .filter(std::fs::Metadata::is_file)
            .map(|file| file.len());
        progress(written.sum(), self.total, self.begin.elapsed())
    }
}

/// Formats the progress of a transfer, with the remaining time at its mean rate: `12/283 MB, 40s left:`.
fn progress(written: u64, total: u64, elapsed: Duration) -> String {
    let megabytes = |bytes: u64| match bytes {
        0..10_000_000 => format!("{:.1}", bytes as f64 / 1e6),
        _ => format!("{:.0}", bytes as f64 / 1e6),
    };
    let written = written.min(total);
    let done = format!("{}/{} MB", megabytes(written), megabytes(total));
    if written == 0 {
        return done + ":";
    }
    let left = elapsed.as_secs_f64() * (total - written) as f64 / written as f64;
    format!("{done}, {:.0}s left:", left.ceil())
}

impl Drop for Activity {
    fn drop(&mut self) {
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        current.retain(|(number, _)| *number != self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_follows_from_the_rate() {
        let after = |seconds, written| progress(written, 283_308_068, Duration::from_secs(seconds));
        assert_eq!(after(0, 0), "0.0/283 MB:");
        assert_eq!(after(4, 28_330_806), "28/283 MB, 37s left:");
        assert_eq!(after(4, 300_000_000), "283/283 MB, 0s left:");
    }

    #[test]
    fn last_activity_is_current_until_it_ends() {
        let download = Activity::begin("downloading");
        let unpack = Activity::begin("unpacking");
        drop(download);
        assert_eq!(Activity::current().as_deref(), Some("unpacking"));
        drop(unpack);
        assert_eq!(Activity::current(), None);
        let directory = tempfile::tempdir().unwrap();
        let download = Activity::begin_download("downloading xen", directory.path(), 4_200_000);
        let current = || Activity::current().unwrap();
        assert_eq!(current(), "0.0/4.2 MB: downloading xen");
        assert_eq!(Activity::title().as_deref(), Some("downloading xen"));
        std::fs::write(directory.path().join("xen.deb"), vec![0; 2_100_000]).unwrap();
        assert!(current().starts_with("2.1/4.2 MB, "), "{}", current());
        assert!(
            current().ends_with("s left: downloading xen"),
            "{}",
            current()
        );
        drop(download);
        let unknown = Activity::begin_download("downloading xen", directory.path(), 0);
        assert_eq!(current(), "downloading xen");
        drop(unknown);
    }
}
