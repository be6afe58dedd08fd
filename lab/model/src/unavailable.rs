//! Reasons why something cannot be measured here.

use std::fmt;

/// A missing capability: why something cannot run here, and what would change that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// The missing capability, in one line without a full stop.
    pub reason: String,
    /// A command or option that provides it, if any does.
    pub remedy: Option<String>,
}

impl Unavailable {
    /// Returns a missing capability without a remedy.
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            remedy: None,
        }
    }

    /// Adds the remedy.
    #[must_use]
    pub fn help(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..self
        }
    }
}

/// Formats `reason: remedy`, as skips are stored and shown.
impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        match &self.remedy {
            Some(remedy) => write!(f, ": {remedy}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_joins_reason_and_remedy() {
        let missing = Unavailable::new("/dev/kvm does not exist");
        assert_eq!(missing.to_string(), "/dev/kvm does not exist");
        let remedied = missing.help("sudo modprobe kvm_amd");
        let text = "/dev/kvm does not exist: sudo modprobe kvm_amd";
        assert_eq!(remedied.to_string(), text);
    }
}
