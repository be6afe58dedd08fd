//! Columns: each value of a record once, with its name, type and meaning. CSV, JSON, OpenMetrics and the tables of the
//! documentation follow from a list of them.

use serde::{Serialize, Serializer};

/// A column of records of `T`.
pub struct Column<T> {
    /// The name in every format.
    pub name: &'static str,
    /// The use of the value.
    pub role: Role,
    /// The meaning, for the documentation.
    pub help: &'static str,
    /// The type, with the function that returns the value.
    pub get: Get<T>,
}

/// The type of a column, with the function that returns the value of a record: `None` if it is unknown or does not exist.
pub enum Get<T> {
    /// A number.
    Number(fn(&T) -> Option<f64>),
    /// A whole number.
    Count(fn(&T) -> Option<usize>),
    /// A name without spaces. An empty one does not exist.
    Name(fn(&T) -> Option<String>),
    /// Names without spaces, of these.
    Names(&'static [&'static str], fn(&T) -> Option<Vec<&'static str>>),
    /// A text for people.
    Sentence(fn(&T) -> Option<String>),
    /// Texts for people.
    Sentences(fn(&T) -> Option<Vec<String>>),
}

/// The use of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Says what the record is of: a label in OpenMetrics.
    Key,
    /// A value that every measurement has: a gauge in OpenMetrics. Names are a gauge of 1 each.
    Measured,
    /// The same, but not every measurement has it.
    Optional,
    /// The reason why there is no measured value. A name is a gauge of 1.
    Missing,
}

/// A value, as [`Get`] names its type.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum {
    Number(f64),
    Count(usize),
    Name(String),
    Names(Vec<&'static str>),
    Sentence(String),
    Sentences(Vec<String>),
}

impl<T> Column<T> {
    /// Returns the value of a record.
    pub fn value(&self, of: &T) -> Option<Datum> {
        match self.get {
            Get::Number(get) => get(of).map(Datum::Number),
            Get::Count(get) => get(of).map(Datum::Count),
            Get::Name(get) => get(of).filter(|name| !name.is_empty()).map(Datum::Name),
            Get::Names(_, get) => get(of).map(Datum::Names),
            Get::Sentence(get) => get(of).map(Datum::Sentence),
            Get::Sentences(get) => get(of).map(Datum::Sentences),
        }
    }
}

impl Datum {
    /// Returns the field of a CSV record.
    fn field(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Count(count) => count.to_string(),
            Self::Name(text) | Self::Sentence(text) => text.clone(),
            Self::Names(names) => names.join(" "),
            Self::Sentences(texts) => texts.join("; "),
        }
    }
}

impl Serialize for Datum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => number.serialize(serializer),
            Self::Count(count) => count.serialize(serializer),
            Self::Name(text) | Self::Sentence(text) => text.serialize(serializer),
            Self::Names(names) => names.serialize(serializer),
            Self::Sentences(texts) => texts.serialize(serializer),
        }
    }
}

/// Records with the names and uses of their fields.
#[derive(Default)]
pub struct Records {
    columns: Vec<(&'static str, Role)>,
    rows: Vec<Vec<Option<Datum>>>,
}

impl Records {
    /// Returns a record of each of `of`.
    pub fn new<'a, T: 'a>(columns: &[Column<T>], of: impl IntoIterator<Item = &'a T>) -> Self {
        let record = |one: &T| columns.iter().map(|column| column.value(one)).collect();
        Self {
            columns: columns.iter().map(|it| (it.name, it.role)).collect(),
            rows: of.into_iter().map(record).collect(),
        }
    }

    /// Returns the names of the fields.
    pub fn header(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.columns.iter().map(|(name, _)| *name)
    }

    /// Returns the fields of each record as texts; one that is unknown is empty.
    pub fn fields(&self) -> impl Iterator<Item = Vec<String>> + '_ {
        let field = |datum: &Option<Datum>| datum.as_ref().map_or_else(String::new, Datum::field);
        self.rows
            .iter()
            .map(move |row| row.iter().map(field).collect())
    }

    /// Returns the gauges of all numbers and names that are no keys.
    pub fn gauges(&self) -> Vec<crate::formats::Gauge> {
        let rows = self.rows.iter();
        rows.flat_map(|row| self.gauges_of(row)).collect()
    }

    fn gauges_of(&self, row: &[Option<Datum>]) -> Vec<crate::formats::Gauge> {
        let known = || {
            let columns = self.columns.iter().zip(row);
            columns.filter_map(|((name, role), datum)| Some((*name, *role, datum.as_ref()?)))
        };
        let keys = known().filter(|(_, role, _)| *role == Role::Key);
        let labels: Vec<_> = keys.map(|(name, _, datum)| (name, datum.field())).collect();
        let gauge = |name, state: Option<&str>, value| {
            let state = state.map(|state| (name, state.to_owned()));
            crate::formats::Gauge {
                name,
                labels: labels.iter().cloned().chain(state).collect(),
                value,
            }
        };
        let values = known().filter(|(_, role, _)| *role != Role::Key);
        let gauges = values.flat_map(|(name, _, datum)| match datum {
            Datum::Number(number) => vec![gauge(name, None, *number)],
            Datum::Count(count) => vec![gauge(name, None, *count as f64)],
            Datum::Name(state) => vec![gauge(name, Some(state), 1.0)],
            Datum::Names(states) => {
                let states = states.iter();
                states.map(|state| gauge(name, Some(state), 1.0)).collect()
            }
            Datum::Sentence(_) | Datum::Sentences(_) => Vec::new(),
        });
        gauges.collect()
    }
}
