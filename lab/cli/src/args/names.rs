//! Parsers of names of environments and operations.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsStr;
use trapline_abi::{Op, OpSet, Workload};
use trapline_model::kernel_build::Size;
use trapline_model::names::{self, Selection};
use trapline_model::request::usual_operations;
use trapline_model::{Config, EnvironmentId, Named, Operation, Operations};

pub fn environment_parser() -> impl TypedValueParser<Value = EnvironmentId> {
    let names = environment_names(|name| names::environments(name).map(drop));
    names.map(|name| EnvironmentId::from_name(&name).expect("the name was checked"))
}

/// Parses the name of an environment of stored runs, which may be a forwarder of packets.
pub fn stored_environment_parser() -> impl TypedValueParser<Value = EnvironmentId> {
    let names = environment_names(|name| match EnvironmentId::recorded_forwarder(name) {
        Some(_) => Ok(()),
        None => names::environments(name).map(drop),
    });
    names.map(|name| {
        let known = EnvironmentId::from_name(&name);
        let known = known.or_else(|| EnvironmentId::recorded_forwarder(&name));
        known.expect("the name was checked")
    })
}

/// Parses an environment with settings, `ENV[:SETTING=VALUE,...]`.
pub fn config_parser() -> impl TypedValueParser<Value = Config> {
    let names = environment_names(|text| {
        let (name, _) = text.split_once(':').unwrap_or((text, ""));
        names::environments(name).map(drop)
    });
    names.try_map(|text| text.parse::<Config>())
}

fn environment_names(check: fn(&str) -> Result<(), names::UnknownName>) -> Names {
    let known = EnvironmentId::all();
    let known = known.map(|id| PossibleValue::new(id.name()).help(id.description()));
    Names {
        known: known.collect(),
        check,
    }
}

pub fn workload_parser() -> impl TypedValueParser<Value = String> {
    Names {
        known: workloads(),
        check: |name| names::operations(name).map(drop),
    }
}

/// Parses the name of a workload or operation that can have exact figures.
pub fn exact_workload_parser() -> impl TypedValueParser<Value = String> {
    let builds = Size::ALL.map(|size| PossibleValue::new(Operation::Build(size).path()));
    Names {
        known: workloads().into_iter().chain(builds).collect(),
        check: |name| name.parse::<Operations>().map(drop),
    }
}

/// Parses the name of a workload or operation of stored runs, which may be that of kernel builds or packets.
pub fn stored_workload_parser() -> impl TypedValueParser<Value = String> {
    let long = Operation::long_names().into_iter().map(PossibleValue::new);
    Names {
        known: workloads().into_iter().chain(long).collect(),
        check: |name| {
            if Operation::long_names().iter().any(|known| known == name) {
                Ok(())
            } else {
                names::operations(name).map(drop)
            }
        },
    }
}

/// Parses the name of an environment, a workload or an operation.
pub fn selection_parser() -> impl TypedValueParser<Value = Selection> {
    let mut all = environment_names(|name| names::selection(name).map(drop));
    all.known.extend(workloads());
    all.map(|name| names::selection(&name).expect("the name was checked"))
}

/// Parses the name of one of the values of `T`, which have these descriptions in their order.
///
/// # Panics
/// There are not as many descriptions as values.
pub fn value_parser<T: Named>(descriptions: &[&'static str]) -> impl TypedValueParser<Value = T> {
    assert_eq!(T::VALUES.len(), descriptions.len(), "a value without text");
    let named = T::VALUES.iter().zip(descriptions);
    let named = named.map(|(it, help)| PossibleValue::new(it.name_of()).help(*help));
    PossibleValuesParser::new(named).map(|name| {
        let mut values = T::VALUES.iter().copied();
        let found = values.find(|value| value.name_of() == name);
        found.expect("the name was checked")
    })
}

fn workloads() -> Vec<PossibleValue> {
    let workloads = Workload::ALL.map(|w| PossibleValue::new(w.name()).help(w.question()));
    let operations = Op::ALL.map(|op| PossibleValue::new(names::path(op)).help(op.description()));
    workloads.into_iter().chain(operations).collect()
}

/// Returns the operations of these workloads and operations, or the default ones if there are none; and
/// those that are named individually.
pub fn selected(workloads: &[String]) -> (OpSet, OpSet) {
    // The parser accepts known names only.
    let union = |is_wanted: &dyn Fn(&str) -> bool| {
        let names = workloads.iter().filter(|name| is_wanted(name));
        names.flat_map(|name| names::operations(name)).collect()
    };
    let operations = match workloads {
        [] => usual_operations(),
        _ => union(&|_| true),
    };
    (operations, union(&|name| name.contains('/')))
}

/// Parses names that completions list, and suggests the most similar one to a mistyped name.
#[derive(Clone)]
struct Names {
    known: Vec<PossibleValue>,
    check: fn(&str) -> Result<(), names::UnknownName>,
}

impl TypedValueParser for Names {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        let name = value.to_string_lossy();
        match (self.check)(&name) {
            Ok(()) => Ok(name.into_owned()),
            Err(unknown) => Err(unknown_value(command, argument, unknown)),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.known.iter().cloned()))
    }
}

fn unknown_value(
    command: &clap::Command,
    argument: Option<&clap::Arg>,
    unknown: names::UnknownName,
) -> clap::Error {
    let mut error = clap::Error::new(ErrorKind::InvalidValue).with_cmd(command);
    let argument = argument.map(ToString::to_string).unwrap_or_default();
    error.insert(ContextKind::InvalidArg, ContextValue::String(argument));
    error.insert(
        ContextKind::InvalidValue,
        ContextValue::String(unknown.name),
    );
    match unknown.hint {
        names::Hint::Nearest(name) => {
            error.insert(ContextKind::SuggestedValue, ContextValue::String(name))
        }
        hint @ names::Hint::All(_) => {
            error.insert(ContextKind::Custom, ContextValue::String(hint.to_string()))
        }
        names::Hint::Known(all) => {
            error.insert(ContextKind::ValidValue, ContextValue::Strings(all))
        }
    };
    error
}
