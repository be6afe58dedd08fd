//! Settings of a configuration as columns of tables `boots` and `skips`; NULL is the default.

use crate::rows::{collect, damage};
use crate::Problem;
use rusqlite::types::{FromSql, Value as SqlValue};
use rusqlite::{params_from_iter, Row, Transaction};
use std::collections::BTreeSet;
use trapline_model::settings::{Value, ValueType};
use trapline_model::{Overrides, Setting, SETTINGS};

/// The tables with these columns.
pub const TABLES: [&str; 2] = ["boots", "skips"];

/// Column of [`Overrides::is_control`].
const CONTROL: &str = "control";

/// Its name before format 32, and that in the text of formats 4 and 5.
pub const EARLIER_CONTROL: &str = "again";

/// Sets the columns of a row.
pub fn write(
    transaction: &Transaction<'_>,
    table: &str,
    row: i64,
    overrides: &Overrides,
) -> Result<(), Problem> {
    if overrides.is_default() {
        return Ok(());
    }
    let columns = overrides.iter().map(|(setting, _)| setting.column);
    let assignments: Vec<_> = columns
        .chain([CONTROL])
        .map(|it| format!("{it} = ?"))
        .collect();
    let sql = format!("UPDATE {table} SET {} WHERE id = ?", assignments.join(", "));
    let values = overrides.iter().map(|(setting, value)| match value {
        Value::Number(number) => SqlValue::from(*number),
        Value::Choice(_) | Value::Text(_) => SqlValue::from(setting.text(value)),
    });
    let last = [SqlValue::from(overrides.is_control), SqlValue::from(row)];
    transaction
        .prepare_cached(&sql)?
        .execute(params_from_iter(values.chain(last)))?;
    Ok(())
}

/// Reads the columns of a row with all columns of its table, of any format.
pub fn read(row: &Row<'_>) -> Result<Overrides, Problem> {
    // Formats 4 and 5.
    if let Some(text) = optional::<String>(row, "variant")? {
        return parse(&text);
    }
    let mut overrides = Overrides::default();
    for setting in SETTINGS {
        if let Some(value) = value(row, setting)? {
            overrides.insert(setting, value);
        }
    }
    overrides.is_control = optional(row, CONTROL)?.unwrap_or(false);
    Ok(overrides)
}

fn value(row: &Row<'_>, setting: &Setting) -> Result<Option<Value>, Problem> {
    let column = setting.column;
    if let ValueType::Number(_) | ValueType::Mebibytes = setting.value_type {
        return Ok(optional(row, column)?.map(Value::Number));
    }
    let text: Option<String> = optional(row, column)?;
    let value = text.map(|text| setting.parse(&text).ok_or_else(|| damage(column, &text)));
    value.transpose()
}

/// Returns a value; `None` for NULL and for a column that the table does not have.
fn optional<T: FromSql>(row: &Row<'_>, column: &str) -> Result<Option<T>, Problem> {
    match row.as_ref().column_index(column) {
        Ok(index) => Ok(row.get(index)?),
        Err(_) => Ok(None),
    }
}

/// Parses the text of formats 4 and 5.
fn parse(text: &str) -> Result<Overrides, Problem> {
    let words = text.split(',');
    let words = words.map(|word| {
        if word == EARLIER_CONTROL {
            CONTROL
        } else {
            word
        }
    });
    let words = words.collect::<Vec<_>>().join(",");
    words.parse().map_err(|_| damage("setting", text))
}

/// Returns names and types of the columns. A comment must end before the text does, because SQLite appends to it.
fn columns() -> impl Iterator<Item = (&'static str, String)> {
    let settings = SETTINGS.iter().map(|setting| {
        let sql_type = match setting.value_type {
            ValueType::Number(_) | ValueType::Mebibytes => "INTEGER",
            ValueType::Choice(_) | ValueType::File(_) => "TEXT",
        };
        let definition = format!("{sql_type} /* {} */", setting.help);
        (setting.column, definition)
    });
    let control = "INTEGER NOT NULL DEFAULT 0 /* 1: A/A control */".to_owned();
    settings.chain([(CONTROL, control)])
}

/// Returns the SQL of the columns, to follow other columns of a new table.
pub fn definitions() -> String {
    columns()
        .map(|(column, definition)| format!(",\n    {column} {definition}"))
        .collect()
}

/// Adds the columns that a store of an earlier format lacks or has by another name, and fills them.
pub fn add_columns(transaction: &Transaction<'_>) -> Result<(), Problem> {
    for table in TABLES {
        if columns_of(transaction, table)?.contains(EARLIER_CONTROL) {
            transaction.execute_batch(&format!(
                "ALTER TABLE {table} RENAME COLUMN {EARLIER_CONTROL} TO {CONTROL}"
            ))?;
        }
        let existing = columns_of(transaction, table)?;
        for (column, definition) in columns().filter(|(column, _)| !existing.contains(*column)) {
            transaction.execute_batch(&format!(
                "ALTER TABLE {table} ADD COLUMN {column} {definition}"
            ))?;
        }
        if existing.contains("variant") {
            convert(transaction, table)?;
        }
    }
    Ok(())
}

fn columns_of(transaction: &Transaction<'_>, table: &str) -> Result<BTreeSet<String>, Problem> {
    let mut statement = transaction.prepare("SELECT name FROM pragma_table_info(?1)")?;
    let names = statement.query_map([table], |row| row.get(0))?;
    Ok(names.collect::<Result<_, _>>()?)
}

/// Moves the settings of formats 4 and 5, which are text like `cpus=2,memory=1024M`, to their columns.
fn convert(transaction: &Transaction<'_>, table: &str) -> Result<(), Problem> {
    let sql = format!("SELECT id, variant FROM {table} WHERE variant <> '' AND id > ?1");
    let texts: Vec<(i64, String)> =
        collect(transaction, &sql, 0, |row| Ok((row.get(0)?, row.get(1)?)))?;
    for (row, text) in texts {
        write(transaction, table, row, &parse(&text)?)?;
    }
    transaction.execute_batch(&format!("ALTER TABLE {table} DROP COLUMN variant"))?;
    Ok(())
}
