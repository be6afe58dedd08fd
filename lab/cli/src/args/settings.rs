//! Options for the settings of configurations, made from their table.

use clap::builder::{PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use trapline_model::settings::{Options, Value, ValueType};
use trapline_model::{Overrides, Setting, SETTINGS};

/// Settings of all configurations of a command that have options of one group, without those that are defaults.
#[derive(Clone, Debug, Default)]
pub struct SettingOptions<const GROUP: u8>(pub Overrides);

/// Options of `run` for guests.
pub type GuestOptions = SettingOptions<{ Options::Run as u8 }>;

/// Options of every command that measures.
pub type MeasuringOptions = SettingOptions<{ Options::Measuring as u8 }>;

/// Shares of CPU time.
pub type ShareOptions = SettingOptions<{ Options::Shares as u8 }>;

/// Replacements of Trapline's own programs.
pub type PartOptions = SettingOptions<{ Options::Part as u8 }>;

/// Files of the simulated machine.
pub type MachineOptions = SettingOptions<{ Options::Machine as u8 }>;

/// Settings that `-h` shows; all others are in `--help` only.
const BASIC: [&str; 2] = ["cpus", "memory"];

impl<const GROUP: u8> SettingOptions<GROUP> {
    fn settings() -> impl Iterator<Item = &'static Setting> {
        SETTINGS.iter().filter(|it| it.options as u8 == GROUP)
    }
}

impl<const GROUP: u8> Args for SettingOptions<GROUP> {
    fn augment_args(command: Command) -> Command {
        let arguments = Self::settings().map(|setting| match setting.options {
            Options::Run => argument(setting).conflicts_with("plan"),
            _ => argument(setting),
        });
        command.args(arguments)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const GROUP: u8> FromArgMatches for SettingOptions<GROUP> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut options = Self::default();
        options.update_from_arg_matches(matches)?;
        Ok(options)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for setting in Self::settings() {
            let default = setting.default.and_then(|text| setting.parse(text));
            let value = matches.get_one::<Value>(setting.name);
            if let Some(value) = value.filter(|value| Some(*value) != default.as_ref()) {
                self.0.insert(setting, value.clone());
            }
        }
        Ok(())
    }
}

fn argument(setting: &'static Setting) -> Arg {
    let default = setting.default.map(|it| format!(" [default: {it}]"));
    let name = setting.value_name();
    let values = match &setting.value_type {
        ValueType::Choice(names) if !name.contains('|') => format!(": {}", names.join(", ")),
        _ => String::new(),
    };
    Arg::new(setting.name)
        .long(setting.name)
        .value_name(name)
        .value_parser(parser(setting))
        .hide_possible_values(true)
        .hide_short_help(!BASIC.contains(&setting.name))
        .help(format!(
            "{}{values}{}",
            setting.help,
            default.unwrap_or_default()
        ))
}

fn parser(setting: &'static Setting) -> ValueParser {
    let parse = |text: &str| {
        let value = setting.parse(text);
        value.ok_or_else(|| format!("expected {}", setting.expected()))
    };
    match &setting.value_type {
        // Possible values are completed by shells.
        ValueType::Choice(names) => PossibleValuesParser::new(names.iter())
            .try_map(move |text| parse(&text))
            .into(),
        _ => ValueParser::new(parse),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{command, Command};
    use expect_test::expect;

    fn overrides(words: &[&str]) -> Result<String, clap::Error> {
        match command("run", words)? {
            Command::Run(run) => Ok(run.overrides().to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_are_overrides_unless_they_are_defaults() {
        let words = ["--cpus", "2", "--memory=1G", "--idle=in-guest", "--cap=25"];
        let expected = "cpus=2,memory=1024M,idle=in-guest,cap=25";
        assert_eq!(overrides(&words).unwrap(), expected);
        assert_eq!(overrides(&["--cpus=1", "--idle=exits"]).unwrap(), "");
    }

    #[test]
    fn invalid_values_are_rejected() {
        let errors = ["--cpus=65", "--memory=little", "--pages=4m"]
            .map(|word| overrides(&[word]).unwrap_err().to_string());
        expect![[r#"
            error: invalid value '65' for '--cpus <N>': expected a number from 1 to 64

            For more information, try '--help'.
            error: invalid value 'little' for '--memory <SIZE>': expected a size like 512M or 2G

            For more information, try '--help'.
            error: invalid value '4m' for '--pages <PAGES>'
              [possible values: auto, file, 4k, 2m]

            For more information, try '--help'.
        "#]]
        .assert_eq(&errors.concat());
    }
}
