//! The JSON object of a document. `docs/json.md` and `docs/schema/run.json` describe it.

use serde::Serialize;
use trapline_stats::order::Interval;

/// Keys and values in the order of the format.
#[derive(Default)]
pub struct Object(Vec<(&'static str, Box<dyn Json>)>);

/// A value that is serialized on demand.
trait Json {
    fn text(&self, is_pretty: bool) -> String;
}

impl<T: Serialize> Json for T {
    fn text(&self, is_pretty: bool) -> String {
        let text = if is_pretty {
            serde_json::to_string_pretty(self)
        } else {
            serde_json::to_string(self)
        };
        // Serializing structs and maps with string keys to a string cannot fail.
        text.unwrap_or_default()
    }
}

impl Object {
    /// Adds a key.
    pub fn push(&mut self, key: &'static str, value: impl Serialize + 'static) {
        self.0.push((key, Box::new(value)));
    }

    /// Adds a key unless there are no values.
    pub fn push_some<T: Serialize + 'static>(&mut self, key: &'static str, values: Vec<T>) {
        if !values.is_empty() {
            self.push(key, values);
        }
    }

    fn text(&self, is_pretty: bool) -> String {
        let entries = self.0.iter().map(|(key, value)| {
            let (separator, value) = (if is_pretty { " " } else { "" }, value.text(is_pretty));
            format!("\"{key}\":{separator}{value}")
        });
        enclosed(entries, is_pretty)
    }
}

/// Returns the text of the object, with a line feed if pretty.
pub fn render(object: &Object, is_pretty: bool) -> String {
    let text = object.text(is_pretty);
    if is_pretty {
        text + "\n"
    } else {
        text
    }
}

/// Joins entries; pretty ones are indented, which changes no string: JSON escapes line feeds.
fn enclosed(entries: impl Iterator<Item = String>, is_pretty: bool) -> String {
    let entries: Vec<String> = entries.collect();
    if is_pretty && !entries.is_empty() {
        let entries = entries.join(",\n").replace('\n', "\n  ");
        format!("{{\n  {entries}\n}}")
    } else {
        format!("{{{}}}", entries.join(","))
    }
}

/// An interval with its level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct JsonInterval {
    level: f64,
    low: f64,
    high: f64,
}

impl From<Interval> for JsonInterval {
    fn from(interval: Interval) -> Self {
        Self {
            level: interval.level,
            low: interval.low,
            high: interval.high,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_is_that_of_one_serialized_value() {
        let value = json!({"list": [1, {"text": "two\nlines"}], "none": [], "object": {}});
        let mut object = Object::default();
        for key in ["list", "none", "object"] {
            object.push(key, value[key].clone());
        }
        assert_eq!(render(&object, true), format!("{value:#}\n"));
        assert_eq!(render(&object, false), value.to_string());
    }
}
