//! A configuration: an environment and its settings, written `kvm` or `kvm:memory=1G`.

use crate::clock::Clock;
use crate::environment::EnvironmentId;
use crate::features::Feature;
use crate::names;
use crate::overrides::{InvalidSetting, Overrides, UnsupportedSetting};
use crate::settings::{self, SETTINGS};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// An environment and its settings.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Config {
    /// The environment.
    pub environment: EnvironmentId,
    /// Settings that differ from the default.
    pub overrides: Overrides,
}

/// An invalid configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidConfig {
    /// There is no such environment.
    #[error(transparent)]
    Environment(#[from] names::UnknownName),
    /// A colon without a setting behind it.
    #[error("no setting behind '{0}:': add one, or leave the colon out")]
    NoSetting(String),
    /// A setting is unknown, or its value invalid.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// A setting of a command.
    #[error("setting '{0}' is one of kernel builds or packets: measure them with 'trapline kernel-build' or 'trapline net'")]
    SettingOfCommand(&'static str),
    /// The environment does not support a setting.
    #[error(transparent)]
    UnsupportedSetting(#[from] UnsupportedSetting),
}

impl Config {
    /// Returns the default configuration of an environment.
    pub fn new(environment: EnvironmentId) -> Self {
        Self {
            environment,
            overrides: Overrides::default(),
        }
    }

    /// Returns the configuration that a store or file calls `text`, also if its VMM is not defined here; `None` if no
    /// configuration can have this name.
    pub fn from_recorded(text: &str) -> Option<Self> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        Some(Self {
            environment: EnvironmentId::from_recorded(name)?,
            overrides: settings.parse().ok()?,
        })
    }

    /// Returns the clock of its figures.
    pub fn clock(&self) -> Clock {
        self.environment.clock()
    }

    /// Returns another environment with these settings, as far as it supports them.
    pub fn in_environment(&self, environment: EnvironmentId) -> Self {
        Self {
            environment,
            overrides: self.overrides.supported_by(environment),
        }
    }

    /// Returns the bare row of the same clock, with these settings as far as it supports them.
    pub fn bare(&self) -> Self {
        self.in_environment(self.clock().bare())
    }

    /// Returns the values that all of `configs` have whose environments support the setting.
    pub fn common_settings(configs: &BTreeSet<&Self>) -> Overrides {
        let mut common = Overrides::default();
        for setting in SETTINGS {
            let all = configs.iter();
            let supporting = all.filter(|config| setting.is_supported_by(config.environment));
            let mut values = supporting.map(|config| config.overrides.value(setting.name));
            if let Some(Some(first)) = values.next() {
                if values.all(|value| value == Some(first)) {
                    common.insert(setting, first.clone());
                }
            }
        }
        common
    }

    /// Returns these configurations, and each with further layouts of its machine's memory, up to `count` in all, where it
    /// has layouts.
    pub fn in_layouts(configs: &[Self], count: u32) -> Vec<Self> {
        let mut all = configs.to_vec();
        let further = configs
            .iter()
            .filter(|config| config.environment.has(Feature::Layout));
        for config in further {
            for layout in 1..count {
                let mut config = config.clone();
                let set = config.overrides.set(settings::LAYOUT, &layout.to_string());
                debug_assert_eq!(set, Ok(()), "a number of a layout");
                all.push(config);
            }
        }
        all
    }

    /// Returns it in the default layout, with the number of its layout.
    pub fn without_layout(&self) -> (Self, u32) {
        let mut config = self.clone();
        let layout = config.overrides.remove(settings::LAYOUT);
        let number = layout.map_or(0, |layout| layout.number());
        (config, number)
    }

    /// Returns the same configuration as the second of an A/A comparison.
    pub fn control(&self) -> Self {
        let mut control = self.clone();
        control.overrides.is_control = true;
        control
    }
}

impl From<EnvironmentId> for Config {
    fn from(environment: EnvironmentId) -> Self {
        Self::new(environment)
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.overrides.is_default() {
            self.environment.fmt(f)
        } else {
            f.pad(&format!("{}:{}", self.environment, self.overrides))
        }
    }
}

impl FromStr for Config {
    type Err = InvalidConfig;

    fn from_str(text: &str) -> Result<Self, InvalidConfig> {
        let (name, settings) = match text.split_once(':') {
            Some((name, settings)) => (name, Some(settings)),
            None => (text, None),
        };
        let environment = names::environment(name)?;
        if settings == Some("") {
            return Err(InvalidConfig::NoSetting(name.to_owned()));
        }
        let config = Self {
            environment,
            overrides: settings.unwrap_or_default().parse()?,
        };
        if let Some(setting) = config.overrides.setting_of_command() {
            return Err(InvalidConfig::SettingOfCommand(setting));
        }
        match config.overrides.unsupported_setting(config.environment) {
            Some(unsupported) => Err(unsupported.into()),
            None => Ok(config),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn text_is_parsed_as_it_is_formatted() {
        for text in [
            "kvm",
            "sim/kvm:vmm=target/old/trapline-vmm",
            "kvm/linux:cpus=2",
        ] {
            let config: Config = text.parse().unwrap();
            assert_eq!(config.to_string(), text);
        }
        let kvm = Config::new(EnvironmentId::KVM);
        assert_eq!(kvm.control().to_string(), "kvm:control");
        assert_eq!("kvm:control".parse(), Ok(kvm.control()));
    }

    #[test]
    fn invalid_configurations_are_rejected_with_the_remedy() {
        let message = |text: &str| text.parse::<Config>().unwrap_err().to_string();
        let texts = [
            "qemu-kmv",
            "kvm:",
            "kvm:memory=little",
            "host:jobs=2",
            "host:memory=1G",
        ];
        let messages = texts.map(message);
        expect![[r#"
            unknown environment 'qemu-kmv'; did you mean 'qemu-kvm'?
            no setting behind 'kvm:': add one, or leave the colon out
            invalid setting: memory=little: expected a size like 512M or 2G
            setting 'jobs' is one of kernel builds or packets: measure them with 'trapline kernel-build' or 'trapline net'
            setting 'memory' is not supported by host, as nothing is virtualized there: leave it out, or choose from kvm, process, qemu-kvm, qemu-tcg, custom, kvm/linux, qemu-kvm/linux, qemu-tcg/linux, uml, sim/kvm, sim/kvm-user-apic, sim/process, sim/qemu-kvm, sim/qemu-kvm-pc, sim/kvm/linux, sim/qemu-kvm/linux, sim/kvm/kvm, sim/kvm/kvm/kvm, sim/xen-pvh, sim/xen-hvm, sim/xen/trapline, sim/kvm/xen-pvh, sim/kvm/xen-hvm, sim/custom, sim-vmx/kvm, sim-vmx/qemu-kvm, sim-vmx/xen-pvh, sim-vmx/xen/trapline"#]].assert_eq(&messages.join("\n"));
    }
}
