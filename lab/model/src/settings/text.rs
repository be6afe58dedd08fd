//! Texts of settings and their values.

use super::value::mebibytes;
use super::{FileOverride, Setting, Value, ValueType, SETTINGS};

/// Characters of a placeholder at most, so that help texts have room beside it.
const LONGEST_VALUE: usize = 12;

impl Setting {
    /// Parses a value.
    pub fn parse(&self, text: &str) -> Option<Value> {
        match &self.value_type {
            ValueType::Number(range) => {
                let number = text.parse().ok();
                number.filter(|it| range.contains(it)).map(Value::Number)
            }
            ValueType::Mebibytes => mebibytes(text).map(Value::Number),
            ValueType::Choice(names) => names.iter().position(|it| *it == text).map(Value::Choice),
            ValueType::File(_) => (!text.is_empty()).then(|| Value::Text(text.to_owned())),
        }
    }

    /// Returns the text of a value.
    pub fn text(&self, value: &Value) -> String {
        match (&self.value_type, value) {
            (ValueType::Mebibytes, Value::Number(mib)) => format!("{mib}M"),
            (ValueType::Choice(names), Value::Choice(index)) => names[*index].to_owned(),
            (_, Value::Number(number)) => number.to_string(),
            (_, Value::Text(text)) => text.clone(),
            (_, Value::Choice(index)) => unreachable!("{}: choice {index}", self.name),
        }
    }

    /// Returns a description of the values, for errors.
    pub fn expected(&self) -> String {
        match &self.value_type {
            ValueType::Number(range) => {
                format!("a number from {} to {}", range.start(), range.end())
            }
            ValueType::Mebibytes => "a size like 512M or 2G".to_owned(),
            ValueType::Choice(names) => names.join(", "),
            ValueType::File(_) => "a file".to_owned(),
        }
    }

    /// Returns the placeholder of a value in help texts.
    pub fn value_name(&self) -> String {
        match &self.value_type {
            ValueType::Number(_) => "N".to_owned(),
            ValueType::Mebibytes => "SIZE".to_owned(),
            ValueType::Choice(names) => match names.join("|") {
                long if long.len() > LONGEST_VALUE => self.name.to_uppercase(),
                short => short,
            },
            ValueType::File(FileOverride::Modules) => "DIR".to_owned(),
            ValueType::File(_) => "FILE".to_owned(),
        }
    }

    /// Returns the replaced file, if the setting replaces one.
    pub fn file(&self) -> Option<FileOverride> {
        match self.value_type {
            ValueType::File(file) => Some(file),
            _ => None,
        }
    }

    /// Returns the row with this name.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.name == name)
    }
}
