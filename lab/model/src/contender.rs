//! Who is measured beside whom: an environment, and what sets it apart from others of the
//! same environment. Written `kvm` or `kvm:memory=1G`.

use crate::environment::EnvironmentId;
use crate::names;
use crate::variant::{BadVariant, Variant};
use std::fmt;
use std::str::FromStr;

/// A row of a study.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Contender {
    /// Where.
    pub environment: EnvironmentId,
    /// With which settings.
    pub variant: Variant,
}

/// A setting that an environment does not support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("setting '{setting}' is not supported by {environment}: leave it out, or choose from {supported_by}")]
pub struct UnsupportedSetting {
    /// The environment.
    pub environment: EnvironmentId,
    /// The setting.
    pub setting: String,
    /// The environments that support it.
    pub supported_by: String,
}

/// A text that is no contender.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadContender {
    /// There is no such environment.
    #[error(transparent)]
    Environment(#[from] names::UnknownName),
    /// There is no such setting, or it cannot be that.
    #[error(transparent)]
    Variant(#[from] BadVariant),
    /// That environment does not have such a setting.
    #[error(transparent)]
    UnsupportedSetting(#[from] UnsupportedSetting),
}

impl Contender {
    /// An environment as it usually is.
    pub fn usual(environment: EnvironmentId) -> Self {
        Self {
            environment,
            variant: Variant::default(),
        }
    }

    /// The same a second time: what differs between the two is chance.
    pub fn again(&self) -> Self {
        let mut twin = self.clone();
        twin.variant.again = true;
        twin
    }
}

impl From<EnvironmentId> for Contender {
    fn from(environment: EnvironmentId) -> Self {
        Self::usual(environment)
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.variant.is_usual() {
            true => self.environment.fmt(f),
            false => f.pad(&format!("{}:{}", self.environment, self.variant)),
        }
    }
}

impl FromStr for Contender {
    type Err = BadContender;

    fn from_str(text: &str) -> Result<Self, BadContender> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        let contender = Self {
            environment: names::environment(name)?,
            variant: settings.parse()?,
        };
        match contender.variant.unsupported_reason(contender.environment) {
            Some(unfit) => Err(unfit.into()),
            None => Ok(contender),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_are_read_as_they_are_written() {
        for text in [
            "kvm",
            "sim/kvm:vmm=target/old/trapline-vmm",
            "kvm/linux:cpus=2",
        ] {
            let contender: Contender = text.parse().unwrap();
            assert_eq!(contender.to_string(), text);
        }
        let kvm = Contender::usual(EnvironmentId::KVM);
        assert_eq!(kvm.again().to_string(), "kvm:again");
        assert_eq!("kvm:again".parse(), Ok(kvm.again()));
    }

    #[test]
    fn what_is_no_contender_is_told_with_the_remedy() {
        let told = |text: &str| text.parse::<Contender>().unwrap_err().to_string();
        assert!(told("qemu-kmv").contains("did you mean 'qemu-kvm'?"));
        assert!(told("kvm:memory=little").contains("a size like 512M"));
        assert!(told("host:memory=1G").contains("setting 'memory' is not supported by host"));
    }
}
