//! Identity of this host, which distinguishes hosts in a store.

use crate::hexadecimal;
use sha2::{Digest, Sha256};
use std::fs;
use trapline_model::host;

/// Variable that names this host. It distinguishes containers of one image, whose machine ids are equal.
pub const VARIABLE: &str = "TRAPLINE_HOST";

/// Hashed before the machine id, which must not be found in files that are passed on (machine-id(5)).
const SALT: &str = "trapline host";

/// A name for this host that is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{VARIABLE}: '{0}' is no name of a host")]
pub struct InvalidName(pub String);

/// Returns the name that the user gave this host; empty if there is none.
///
/// # Errors
/// It has characters that names of hosts do not have, or more than 63.
pub fn name() -> Result<String, InvalidName> {
    let Some(value) = std::env::var_os(VARIABLE) else {
        return Ok(String::new());
    };
    match value.into_string() {
        Ok(name) if name.is_empty() || host::is_name(&name) => Ok(name),
        Ok(other) => Err(InvalidName(other)),
        Err(other) => Err(InvalidName(other.to_string_lossy().into_owned())),
    }
}

/// Returns the identity of this host with a name: 16 hexadecimal digits of the SHA-256 of machine id and name. A host
/// without a machine id, such as a container, has another identity after each start of its kernel.
pub fn id(name: &str) -> String {
    let machine = ["/etc/machine-id", "/proc/sys/kernel/random/boot_id"]
        .into_iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .find(|text| is_machine_id(text));
    hashed(machine.unwrap_or_default().trim(), name)
}

/// A system that was never started has none, or says so.
fn is_machine_id(text: &str) -> bool {
    !["", "uninitialized"].contains(&text.trim())
}

fn hashed(machine: &str, name: &str) -> String {
    let digest = Sha256::digest(format!("{SALT}\0{machine}\0{name}"));
    hexadecimal(&digest[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_other_machine_ids_and_names_have_other_ids() {
        let all = [("a", ""), ("b", ""), ("a", "x"), ("b", "x"), ("", "x")];
        let ids = all.map(|(machine, name)| hashed(machine, name));
        let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert!(ids.iter().all(|id| id.len() == 16), "{ids:?}");
        assert_eq!(id(""), id(""));
        assert!(!is_machine_id("uninitialized\n") && !is_machine_id("\n"));
    }
}
