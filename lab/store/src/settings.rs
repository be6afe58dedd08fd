//! Settings of a configuration as columns of tables `boots` and `skips`; NULL is the default.

use crate::rows::{collect, damage};
use crate::Problem;
use rusqlite::types::FromSql;
use rusqlite::{params, Row, Transaction};
use trapline_model::{FileOverride, Halt, MemoryPages, Pin, Variant};

/// The columns. A file override has the name of its setting.
pub const ADD_COLUMNS: &str = "
ALTER TABLE {table} ADD COLUMN cpus INTEGER; -- virtual CPUs
ALTER TABLE {table} ADD COLUMN memory_mib INTEGER;
ALTER TABLE {table} ADD COLUMN pages TEXT; -- of guest memory: file, 4k or 2m
ALTER TABLE {table} ADD COLUMN pin TEXT; -- of the virtual CPU's thread: free, exclusive or shared
ALTER TABLE {table} ADD COLUMN idle TEXT; -- halted CPU: exits or in-guest
ALTER TABLE {table} ADD COLUMN image TEXT;
ALTER TABLE {table} ADD COLUMN agent TEXT;
ALTER TABLE {table} ADD COLUMN vmm TEXT;
ALTER TABLE {table} ADD COLUMN qemu TEXT;
ALTER TABLE {table} ADD COLUMN kernel TEXT;
ALTER TABLE {table} ADD COLUMN modules TEXT;
ALTER TABLE {table} ADD COLUMN again INTEGER NOT NULL DEFAULT 0; -- 1: A/A control
";

/// Sets the columns of a row.
pub fn write(
    transaction: &Transaction<'_>,
    table: &str,
    row: i64,
    settings: &Variant,
) -> Result<(), Problem> {
    if settings.is_usual() {
        return Ok(());
    }
    let sql = format!(
        "UPDATE {table} SET cpus = ?2, memory_mib = ?3, pages = ?4, pin = ?5, idle = ?6, again = ?7
         WHERE id = ?1"
    );
    transaction.prepare_cached(&sql)?.execute(params![
        row,
        settings.cpus,
        settings.memory_mib,
        settings.pages.map(MemoryPages::name),
        settings.pin.map(Pin::name),
        settings.idle.map(Halt::name),
        settings.again
    ])?;
    for (file, path) in &settings.given {
        let sql = format!("UPDATE {table} SET {} = ?2 WHERE id = ?1", file.name());
        transaction.execute(&sql, params![row, path])?;
    }
    Ok(())
}

/// Reads the columns of a row with all columns of its table, of any format.
pub fn read(row: &Row<'_>) -> Result<Variant, Problem> {
    // Formats 4 and 5.
    if let Some(text) = optional::<String>(row, "variant")? {
        return parse(&text);
    }
    let mut settings = Variant {
        cpus: optional(row, "cpus")?,
        memory_mib: optional(row, "memory_mib")?,
        pages: named(row, "pages", MemoryPages::from_name)?,
        pin: named(row, "pin", Pin::from_name)?,
        idle: named(row, "idle", Halt::from_name)?,
        again: optional(row, "again")?.unwrap_or(false),
        ..Variant::default()
    };
    for file in FileOverride::ALL {
        if let Some(path) = optional(row, file.name())? {
            settings.given.insert(file, path);
        }
    }
    Ok(settings)
}

/// Returns a value; `None` for NULL and for a column that the table does not have.
fn optional<T: FromSql>(row: &Row<'_>, column: &str) -> Result<Option<T>, Problem> {
    match row.as_ref().column_index(column) {
        Ok(index) => Ok(row.get(index)?),
        Err(_) => Ok(None),
    }
}

fn named<T>(
    row: &Row<'_>,
    column: &str,
    find: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Problem> {
    let name: Option<String> = optional(row, column)?;
    let value = name.map(|name| find(&name).ok_or_else(|| damage(column, &name)));
    value.transpose()
}

fn parse(text: &str) -> Result<Variant, Problem> {
    text.parse().map_err(|_| damage("setting", text))
}

/// Moves the settings of formats 4 and 5, which are text like `cpus=2,memory=1024M`, to their columns.
pub fn convert(transaction: &Transaction<'_>) -> Result<(), Problem> {
    for table in ["boots", "skips"] {
        transaction.execute_batch(&ADD_COLUMNS.replace("{table}", table))?;
        let sql = format!("SELECT id, variant FROM {table} WHERE variant <> '' AND id > ?1");
        let texts: Vec<(i64, String)> =
            collect(transaction, &sql, 0, |row| Ok((row.get(0)?, row.get(1)?)))?;
        for (row, text) in texts {
            write(transaction, table, row, &parse(&text)?)?;
        }
        transaction.execute_batch(&format!("ALTER TABLE {table} DROP COLUMN variant"))?;
    }
    Ok(())
}
