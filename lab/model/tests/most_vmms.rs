//! The most VMMs that can be defined, in a process of their own: they add rows to the table of environments.

use std::collections::BTreeSet;
use trapline_model::vmms::{Definition, InvalidName};
use trapline_model::EnvironmentId;

#[test]
fn all_environments_of_the_most_vmms_differ() {
    let definition = Definition::default();
    let mut names = (0..).map(|number| format!("vmm-{number}"));
    let mut define = || EnvironmentId::define_vmm(&names.next().unwrap(), Some(&definition));
    let built_in = EnvironmentId::all().count();
    let mut defined = 0;
    let error = loop {
        match define() {
            Ok(()) => defined += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, InvalidName::TooMany(_)), "{error}");
    let all: Vec<EnvironmentId> = EnvironmentId::all().collect();
    assert_eq!(all.len(), built_in + 4 * defined);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    assert!(all.is_sorted());
    for id in all {
        assert_eq!(EnvironmentId::from_name(id.name()), Some(id));
    }
}
