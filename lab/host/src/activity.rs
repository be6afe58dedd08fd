//! The current activity of this process that takes long, for progress messages.

use std::sync::{Mutex, PoisonError};

static CURRENT: Mutex<Vec<(u64, String)>> = Mutex::new(Vec::new());

/// An activity. It ends when dropped.
#[derive(Debug)]
pub struct Activity(u64);

impl Activity {
    /// Begins an activity, as `downloading user-mode-linux`.
    pub fn begin(text: impl Into<String>) -> Self {
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        let number = current.last().map_or(0, |(number, _)| number + 1);
        current.push((number, text.into()));
        Self(number)
    }

    /// Returns the activity that began last, if there is one.
    pub fn current() -> Option<String> {
        let current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        current.last().map(|(_, text)| text.clone())
    }
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
    fn last_activity_is_current_until_it_ends() {
        let download = Activity::begin("downloading");
        let unpack = Activity::begin("unpacking");
        drop(download);
        assert_eq!(Activity::current().as_deref(), Some("unpacking"));
        drop(unpack);
        assert_eq!(Activity::current(), None);
    }
}
