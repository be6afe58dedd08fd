//! Settings of a configuration that differ from the default.
//!
//! Written `cpus=2,memory=1G`; the default configuration is the empty text.

use crate::environment::EnvironmentId;
use crate::features;
use crate::guest_config::GuestConfig;
use crate::settings::{FileOverride, Options, Setting, Value, SETTINGS};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Settings that differ from the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Overrides {
    /// Values by index in [`SETTINGS`].
    values: BTreeMap<usize, Value>,
    /// The second of two equal configurations of an A/A comparison.
    pub is_control: bool,
}

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSetting {
    /// There is no such setting, or it has no value.
    #[error("unknown setting: {0}: choose from {known}", known = Overrides::names().join(", "))]
    Unknown(String),
    /// The value is invalid.
    #[error("invalid setting: {name}={value}: expected {expected}")]
    Value {
        /// Name of the setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// Description of valid values.
        expected: String,
    },
    /// Set twice.
    #[error("invalid setting: {0}: set twice")]
    Twice(&'static str),
}

/// A setting that an environment does not support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("setting '{setting}' is not supported by {environment}{why}: leave it out, or choose from {supported_by}")]
pub struct UnsupportedSetting {
    /// The environment.
    pub environment: EnvironmentId,
    /// The setting.
    pub setting: &'static str,
    /// The reason as a clause, if it is not that the environment has no such file.
    pub why: String,
    /// The environments that support it.
    pub supported_by: String,
}

/// Text of [`Overrides::is_control`].
const CONTROL: &str = "control";

impl Overrides {
    /// Returns the names of all settings.
    pub fn names() -> Vec<&'static str> {
        SETTINGS.iter().map(|setting| setting.name).collect()
    }

    /// Returns whether nothing is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Sets a value that is given as text.
    ///
    /// # Errors
    /// The setting is unknown, the value is invalid, or the setting has a value.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), InvalidSetting> {
        let setting =
            Setting::from_name(name).ok_or_else(|| InvalidSetting::Unknown(name.to_owned()))?;
        let value = setting.parse(text).ok_or_else(|| InvalidSetting::Value {
            name: setting.name,
            value: text.to_owned(),
            expected: setting.expected(),
        })?;
        match self.insert(setting, value) {
            None => Ok(()),
            Some(_) => Err(InvalidSetting::Twice(setting.name)),
        }
    }

    /// Sets a value, and returns the previous one.
    pub fn insert(&mut self, setting: &Setting, value: Value) -> Option<Value> {
        self.values.insert(index(setting.name)?, value)
    }

    /// Removes the value of a setting, and returns it.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.values.remove(&index(name)?)
    }

    /// Sets the value of a setting, or removes it.
    pub fn replace(&mut self, name: &str, value: Option<Value>) {
        match (index(name), value) {
            (Some(index), Some(value)) => _ = self.values.insert(index, value),
            (_, None) => _ = self.remove(name),
            (None, _) => {}
        }
    }

    /// Sets the value of a setting that is given as text, or removes it if the text is invalid.
    pub(crate) fn replace_text(&mut self, name: &str, text: &str) {
        let value = Setting::from_name(name).and_then(|setting| setting.parse(text));
        self.replace(name, value);
    }

    /// Sets the values that `others` sets.
    pub fn extend(&mut self, others: &Self) {
        for (setting, value) in others.iter() {
            self.insert(setting, value.clone());
        }
    }

    /// Returns the settings that are set, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Setting, &Value)> {
        let all = self.values.iter();
        all.map(|(index, value)| (&SETTINGS[*index], value))
    }

    /// Returns the value of a setting, if it is set.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.values.get(&index(name)?)
    }

    /// Returns the text of a value, if it is set.
    pub fn text(&self, name: &str) -> Option<String> {
        let setting = Setting::from_name(name)?;
        self.value(name).map(|value| setting.text(value))
    }

    /// Applies the values to a guest's configuration.
    pub fn apply(&self, guest: &mut GuestConfig) {
        for (setting, value) in self.iter() {
            (setting.apply)(value, guest);
        }
    }

    /// Returns the replaced files.
    pub fn files(&self) -> BTreeMap<FileOverride, String> {
        let files = self.iter();
        let files = files.filter_map(|(it, value)| Some((it.file()?, it.text(value))));
        files.collect()
    }

    /// Returns the name of the first setting that only a command of its own sets.
    pub(crate) fn setting_of_command(&self) -> Option<&'static str> {
        let mut all = self.iter();
        let found = all.find(|(setting, _)| setting.options == Options::Command);
        found.map(|(setting, _)| setting.name)
    }

    /// Returns the first setting that an environment does not support.
    pub fn unsupported_setting(&self, environment: EnvironmentId) -> Option<UnsupportedSetting> {
        let mut all = self.iter().map(|(setting, _)| setting);
        let setting = all.find(|it| !it.is_supported_by(environment))?;
        Some(UnsupportedSetting {
            environment,
            setting: setting.name,
            why: setting
                .why_not(environment)
                .map_or_else(String::new, |why| format!(", as {why}")),
            supported_by: EnvironmentId::names_of(|id| setting.is_supported_by(id)),
        })
    }

    /// Returns why an environment cannot be measured with these options of a command, with the remedy.
    /// Files are replaced where an environment has them.
    pub fn unsupported_options(&self, environment: EnvironmentId) -> Option<String> {
        let all = self.iter();
        let unsupported: Vec<_> = all
            .filter(|(it, _)| !it.is_supported_by(environment) && !it.is_unconcerned(environment))
            .collect();
        let (first, _) = unsupported.first()?;
        let why = first.why_not(environment)?;
        let options = unsupported.iter().map(|(it, value)| it.option(value));
        let options = options.collect::<Vec<_>>().join(" ");
        let is_supported = |id| unsupported.iter().all(|(it, _)| it.is_supported_by(id));
        let supporting = EnvironmentId::names_of(is_supported);
        Some(features::refusal(&options, environment, why, &supporting))
    }

    /// Returns the values as text by the name of their setting, without those of files.
    pub fn texts(&self) -> BTreeMap<String, String> {
        let all = self.iter().filter(|(it, _)| it.file().is_none());
        all.map(|(it, value)| (it.name.to_owned(), it.text(value)))
            .collect()
    }

    /// Returns the values that `others` does not have.
    pub fn without(&self, others: &Self) -> Self {
        let mut rest = self.clone();
        rest.values
            .retain(|index, value| others.values.get(index) != Some(value));
        rest
    }

    /// Returns the settings that an environment supports.
    pub fn supported_by(&self, environment: EnvironmentId) -> Self {
        let mut supported = self.clone();
        supported
            .values
            .retain(|index, _| SETTINGS[*index].is_supported_by(environment));
        supported
    }
}

/// In the order of [`SETTINGS`]: what is not set comes before what is.
impl Ord for Overrides {
    fn cmp(&self, other: &Self) -> Ordering {
        let all = 0..SETTINGS.len();
        let mut each = all.map(|index| self.values.get(&index).cmp(&other.values.get(&index)));
        let differing = each.find(|order| order.is_ne());
        differing.unwrap_or_else(|| self.is_control.cmp(&other.is_control))
    }
}

impl PartialOrd for Overrides {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns the index of a setting in [`SETTINGS`].
fn index(name: &str) -> Option<usize> {
    SETTINGS.iter().position(|setting| setting.name == name)
}

impl Setting {
    fn option(&self, value: &Value) -> String {
        format!("--{} {}", self.name, self.text(value))
    }
}

impl fmt::Display for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.iter();
        let values = values.map(|(it, value)| format!("{}={}", it.name, it.text(value)));
        let control = self.is_control.then(|| CONTROL.to_owned());
        let words: Vec<_> = values.chain(control).collect();
        f.pad(&words.join(","))
    }
}

impl FromStr for Overrides {
    type Err = InvalidSetting;

    fn from_str(text: &str) -> Result<Self, InvalidSetting> {
        let mut overrides = Self::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some((name, value)) => overrides.set(name, value)?,
                None if word == CONTROL => overrides.is_control = true,
                None => return Err(InvalidSetting::Unknown(word.to_owned())),
            }
        }
        Ok(overrides)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn text_is_parsed_as_it_is_formatted() {
        for text in [
            "",
            "cpus=2",
            "cpus=8,memory=1024M,pages=2m,pin=shared,idle=in-guest,image=/a,vmm=b c,modules=d",
            "sched=credit2,cap=25,weight=512",
            "pin=free,control",
        ] {
            let overrides: Overrides = text.parse().unwrap();
            assert_eq!(overrides.to_string(), text);
            assert_eq!(overrides.is_default(), text.is_empty());
        }
        let overrides: Overrides = "memory=2G".parse().unwrap();
        assert_eq!(overrides.to_string(), "memory=2048M");
    }

    #[test]
    fn invalid_settings_are_rejected_with_the_remedy() {
        let message = |text: &str| text.parse::<Overrides>().unwrap_err().to_string();
        let texts = [
            "cpu=2",
            "fast",
            "cpus=65",
            "cap=0",
            "memory=0",
            "memory=9999999G",
            "pin=loose",
            "image=",
            "pin=free,pin=free",
        ];
        expect![[r#"
            unknown setting: cpu: choose from cpus, guests, memory, pages, crossing, spaces, switch, batching, state, paging, thp, cgroup, mitigations, layout, wake, path, peer, zeroing, isolation, file-mib, pin, competitor, idle, sched, cap, weight, jobs, place, ring, queues, image, agent, vmm, nova, qemu, kernel, modules
            unknown setting: fast: choose from cpus, guests, memory, pages, crossing, spaces, switch, batching, state, paging, thp, cgroup, mitigations, layout, wake, path, peer, zeroing, isolation, file-mib, pin, competitor, idle, sched, cap, weight, jobs, place, ring, queues, image, agent, vmm, nova, qemu, kernel, modules
            invalid setting: cpus=65: expected a number from 1 to 64
            invalid setting: cap=0: expected a number from 1 to 100
            invalid setting: memory=0: expected a size like 512M or 2G
            invalid setting: memory=9999999G: expected a size like 512M or 2G
            invalid setting: pin=loose: expected free, exclusive, shared
            invalid setting: image=: expected a file
            invalid setting: pin: set twice"#]].assert_eq(&texts.map(message).join("\n"));
    }

    #[test]
    fn unsupported_settings_are_left_out() {
        let overrides: Overrides = "cpus=2,memory=1G,pin=shared,kernel=/k".parse().unwrap();
        let supported = |id| overrides.supported_by(id).to_string();
        assert_eq!(supported(EnvironmentId::HOST), "pin=shared");
        let several = "cpus=2,memory=1024M,pin=shared";
        assert_eq!(supported(EnvironmentId::KVM), several);
        assert_eq!(supported(EnvironmentId::KVM_LINUX), several);
        assert_eq!(supported(EnvironmentId::SIM), "cpus=2");
        let simulated = "cpus=2,memory=1024M,kernel=/k";
        assert_eq!(supported(EnvironmentId::SIM_KVM), simulated);
        let unsupported = overrides.unsupported_setting(EnvironmentId::UML).unwrap();
        expect!["setting 'cpus' is not supported by uml, as user-mode Linux has one CPU: leave it out, or choose from kvm, qemu-kvm, qemu-tcg, kvm/linux, qemu-kvm/linux, qemu-tcg/linux, sim, sim/kvm, sim/qemu-kvm, sim/qemu-kvm-pc, sim/kvm/linux, sim/qemu-kvm/linux"].assert_eq(&unsupported.to_string());
    }

    #[test]
    fn unsupported_options_are_reported_with_the_environments_that_support_them() {
        let options: Overrides = "sched=credit2,cap=25".parse().unwrap();
        let reason = options.unsupported_options(EnvironmentId::SIM_KVM).unwrap();
        expect!["--sched credit2 --cap 25 is not supported by sim/kvm, as Xen does not schedule it: leave it out, or choose from sim/xen-pvh, sim/xen-hvm, sim/xen/trapline, sim/kvm/xen-pvh, sim/kvm/xen-hvm, sim-vmx/xen-pvh, sim-vmx/xen/trapline with --env"].assert_eq(&reason);
        assert_eq!(
            options.unsupported_options(EnvironmentId::SIM_XEN_HVM),
            None
        );
        let cpus: Overrides = "cpus=2".parse().unwrap();
        assert_eq!(cpus.unsupported_options(EnvironmentId::HOST), None);
        let reason = cpus.unsupported_options(EnvironmentId::UML).unwrap();
        expect!["--cpus 2 is not supported by uml, as user-mode Linux has one CPU: leave it out, or choose from kvm, qemu-kvm, qemu-tcg, kvm/linux, qemu-kvm/linux, qemu-tcg/linux, sim, sim/kvm, sim/qemu-kvm, sim/qemu-kvm-pc, sim/kvm/linux, sim/qemu-kvm/linux with --env"].assert_eq(&reason);
    }
}
