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
    let expected: Vec<_> = (FIRST_FORMAT + 1..=store_format()).collect();
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

#[test]
fn the_documentation_has_the_table() {
    let page = include_str!("../../../../docs/settings.md");
    assert!(
        page.contains(&markdown()),
        "docs/settings.md differs from:\n{}",
        markdown()
    );
}
