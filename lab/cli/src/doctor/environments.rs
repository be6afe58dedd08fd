//! Environments that can be measured on this host, and the reasons why others cannot.

use super::Finding;
use std::convert::Infallible;
use trapline_model::Unavailable;
use trapline_runner::{Failure, Inventory};

/// Environments with one reason why they cannot be measured.
type Missing = (Unavailable, Vec<&'static str>);

/// Checks all environments but those of custom VMMs. Starts none.
pub fn examine(inventory: Result<Inventory, Failure>) -> Vec<Finding> {
    let inventory = match inventory {
        Ok(inventory) => inventory,
        Err(failure) => return vec![unchecked(failure)],
    };
    let (mut ready, mut missing) = (0, Vec::<Missing>::new());
    let Ok(()) = inventory.try_for_each(
        |id| id.custom_vmm().is_none(),
        |entry| {
            let name = entry.id.name();
            match entry.unavailable() {
                None => ready += 1,
                Some(why) => match missing.iter_mut().find(|(other, _)| other == why) {
                    Some((_, names)) => names.push(name),
                    None => missing.push((why.clone(), vec![name])),
                },
            }
            Ok::<_, Infallible>(())
        },
    );
    judge(ready, missing)
}

fn unchecked(failure: Failure) -> Finding {
    let finding = Finding::problem(TOPIC, failure.message);
    Finding {
        remedy: failure.help,
        ..finding
    }
}

fn judge(ready: usize, missing: Vec<Missing>) -> Vec<Finding> {
    let all = ready + missing.iter().map(|(_, names)| names.len()).sum::<usize>();
    let mut findings = vec![Finding::ok(TOPIC, format!("{ready} of {all} are ready"))];
    findings.extend(missing.into_iter().map(|(why, names)| {
        let found = format!("not ready: {}: {}", names.join(", "), why.reason);
        Finding {
            remedy: why.remedy,
            ..Finding::note(TOPIC, found)
        }
    }));
    findings
}

const TOPIC: &str = "environment";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn environments_with_one_reason_are_one_note() {
        let missing = Unavailable::new("there is no Bochs in $PATH").help("install it");
        let findings = judge(3, vec![(missing, vec!["sim-vmx", "sim-vmx/kvm"])]);
        assert_eq!(findings[0].found, "3 of 5 are ready");
        assert_eq!(
            findings[1],
            Finding::note(
                "environment",
                "not ready: sim-vmx, sim-vmx/kvm: there is no Bochs in $PATH"
            )
            .remedy("install it")
        );
    }

    #[test]
    fn a_cache_that_may_not_be_used_is_a_problem() {
        let failure = Failure::new("no directory for trapline").help("set HOME");
        let [finding] = examine(Err(failure)).try_into().unwrap();
        assert_eq!(finding.verdict, Verdict::Problem);
        assert_eq!(finding.remedy.as_deref(), Some("set HOME"));
    }
}
