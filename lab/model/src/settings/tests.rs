use super::*;
use std::collections::BTreeSet;

#[test]
fn names_and_columns_are_distinct() {
    let names: BTreeSet<_> = SETTINGS.iter().map(|row| row.name).collect();
    let columns: BTreeSet<_> = SETTINGS.iter().map(|row| row.column).collect();
    assert_eq!(
        (names.len(), columns.len()),
        (SETTINGS.len(), SETTINGS.len())
    );
}

/// A store of one format has one set of columns, also after two branches that added a setting are merged.
#[test]
fn each_later_format_adds_one_setting() {
    let formats = SETTINGS.iter().map(|row| row.format);
    let mut later: Vec<_> = formats.filter(|it| *it != FIRST_FORMAT).collect();
    later.sort_unstable();
    let all = FIRST_FORMAT + 1..=store_format();
    // These changed a table that has no settings.
    let others = [17, 25, 33];
    let expected: Vec<_> = all.filter(|it| !others.contains(it)).collect();
    assert_eq!(later, expected);
}

#[test]
fn defaults_are_values_that_do_not_change_the_guest() {
    for setting in SETTINGS {
        let Some(default) = setting.default else {
            continue;
        };
        let mut guest = GuestConfig::DEFAULT;
        (setting.apply)(&setting.parse(default).unwrap(), &mut guest);
        assert_eq!(guest, GuestConfig::DEFAULT, "{}", setting.name);
    }
}

/// `TRAPLINE_BLESS=1` writes the table into the page.
#[test]
fn the_documentation_has_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
    let page = std::fs::read_to_string(path).unwrap();
    let is_row = |line: &&str| line.starts_with('|');
    let table: String = page.split_inclusive('\n').filter(is_row).collect();
    if std::env::var_os("TRAPLINE_BLESS").is_some() {
        std::fs::write(path, page.replace(&table, &markdown())).unwrap();
    } else {
        assert_eq!(table, markdown(), "docs/settings.md");
    }
}
