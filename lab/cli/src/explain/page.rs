//! The profiles that are printed together.

use trapline_abi::Op;
use trapline_model::{names, Config};
use trapline_profile::Profile;

/// A profile and its configuration.
pub struct Explained<'a> {
    pub config: Config,
    pub profile: &'a Profile,
}

/// The profile of an operation in one configuration, or in two to be compared.
pub struct Page<'a> {
    pub op: Op,
    pub first: Explained<'a>,
    pub second: Option<Explained<'a>>,
}

impl<'a> Page<'a> {
    /// Returns the profiles.
    pub fn explained(&self) -> impl Iterator<Item = &Explained<'a>> {
        std::iter::once(&self.first).chain(&self.second)
    }

    /// Returns the title of a profile.
    pub fn title(&self, explained: &Explained<'_>) -> String {
        format!("{} in {}", names::path(self.op), explained.config)
    }
}
