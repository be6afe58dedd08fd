//! Comparison of a store's tables and indices with those that this program makes.
//!
//! A store may be from elsewhere, and its definitions decide what SQLite does with new figures: triggers and conflict
//! clauses change or delete them. So every column, constraint and index must be one that some format has.

use crate::Problem;
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};

/// A definition: what precedes the parentheses, columns and constraints in them, and what follows.
#[derive(Debug, PartialEq, Eq)]
pub struct Definition {
    head: String,
    parts: BTreeSet<String>,
    tail: String,
}

/// Definitions by kind and name.
pub type Definitions = BTreeMap<String, Definition>;

/// Checks that a store has nothing but known definitions; one of an earlier format lacks some.
pub fn check(store: &Connection, known: &Definitions) -> Result<(), Problem> {
    for (name, found) in read(store)? {
        let unknown = match known.get(&name) {
            Some(known) if (&known.head, &known.tail) == (&found.head, &found.tail) => {
                let mut unknown = found.parts.difference(&known.parts);
                unknown.next().map(|part| format!("{part} in {name}"))
            }
            _ => Some(name),
        };
        if let Some(unknown) = unknown {
            return Err(Problem::Unknown(unknown));
        }
    }
    Ok(())
}

/// Returns the definitions of a store by kind and name. SQLite itself adds indices without a text.
pub fn read(store: &Connection) -> Result<Definitions, Problem> {
    let sql = "SELECT type || ' ' || name, sql FROM sqlite_master WHERE sql IS NOT NULL";
    let mut statement = store.prepare(sql)?;
    let rows = statement.query_map([], |row| {
        let sql: String = row.get(1)?;
        Ok((row.get(0)?, Definition::of(&plain(&sql))))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

impl Definition {
    /// Takes a text without comments apart.
    fn of(sql: &str) -> Self {
        let (head, rest) = sql.split_once('(').unwrap_or((sql, ""));
        let (mut parts, mut part) = (BTreeSet::new(), String::new());
        let (mut depth, mut is_quoted) = (1, false);
        let mut letters = rest.chars();
        for c in letters.by_ref() {
            match c {
                '\'' => is_quoted = !is_quoted,
                '(' if !is_quoted => depth += 1,
                ')' if !is_quoted => depth -= 1,
                _ => {}
            }
            if depth == 0 || depth == 1 && c == ',' && !is_quoted {
                parts.insert(std::mem::take(&mut part).trim().to_owned());
            } else {
                part.push(c);
            }
            if depth == 0 {
                break;
            }
        }
        parts.extend((!part.is_empty()).then_some(part));
        Self {
            head: head.trim().to_owned(),
            parts,
            tail: letters.as_str().trim().to_owned(),
        }
    }
}

/// Returns SQL without comments, with single spaces. A string in it is kept. Other quotation marks are kept, too, so that a
/// text with them is no known one.
fn plain(sql: &str) -> String {
    let mut plain = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some(c) = rest.chars().next() {
        let length = match (c, &rest[c.len_utf8()..]) {
            ('\'', after) => after.find('\'').map_or(rest.len(), |end| end + 2),
            ('-', after) if after.starts_with('-') => rest.find('\n').unwrap_or(rest.len()),
            ('/', after) if after.starts_with('*') => {
                rest[2..].find("*/").map_or(rest.len(), |end| end + 4)
            }
            _ => c.len_utf8(),
        };
        let (piece, after) = rest.split_at(length);
        rest = after;
        match c {
            _ if length == c.len_utf8() && !c.is_ascii_whitespace() => plain.push(c),
            '\'' => plain.push_str(piece),
            _ if plain.ends_with(' ') => {}
            _ => plain.push(' '),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_spaces_do_not_matter_and_strings_do() {
        let sql =
            "CREATE TABLE t (  -- a, (\n a TEXT DEFAULT ',(--' /* ' */, b CHECK (a, b)\n) STRICT";
        let definition = Definition::of(&plain(sql));
        assert_eq!(definition.head, "CREATE TABLE t");
        let parts: Vec<_> = definition.parts.iter().map(String::as_str).collect();
        assert_eq!(parts, ["a TEXT DEFAULT ',(--'", "b CHECK (a, b)"]);
        assert_eq!(definition.tail, "STRICT");
        let hidden = "t (a TEXT DEFAULT '/*', UNIQUE (a) ON CONFLICT REPLACE, b DEFAULT '*/')";
        assert_eq!(Definition::of(&plain(hidden)).parts.len(), 3);
    }
}
