//! Environments that support settings.

use super::{FileOverride, Setting};
use crate::environment::EnvironmentId;
use crate::layers::OPTION_VMM;

impl Setting {
    /// Returns whether an environment supports the setting.
    pub fn is_supported_by(&self, environment: EnvironmentId) -> bool {
        let has_file = self.file().is_none_or(|file| file.is_of(environment));
        has_file && self.feature.is_none_or(|feature| environment.has(feature))
    }

    /// Returns whether a value for all environments does not concern this one, which is measured without it. A file concerns
    /// only those that have it.
    pub(crate) fn is_unconcerned(&self, environment: EnvironmentId) -> bool {
        let is_of_feature = self.feature.map(|it| environment.is_unconcerned(it));
        is_of_feature.unwrap_or(self.file().is_some())
    }

    /// Returns why an environment does not support the setting. `None` if it does, and for files.
    pub(crate) fn why_not(&self, environment: EnvironmentId) -> Option<&'static str> {
        environment.why_not(self.feature?)
    }
}

impl FileOverride {
    /// Returns whether an environment has such a file.
    fn is_of(self, id: EnvironmentId) -> bool {
        match self {
            Self::Image => !id.has_processes(),
            Self::Agent => id.has_processes() || id.has_machine_linux(),
            Self::Vmm => id.has_trapline_vmm() || id.custom_vmm() == Some(OPTION_VMM),
            Self::Nova => id.is_nova(),
            Self::Qemu => id.has_qemu(),
            Self::Kernel | Self::Modules => {
                id.has_machine_linux() || id.is_nova() && id.has_processes()
            }
        }
    }
}
