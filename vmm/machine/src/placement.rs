//! CPU affinity of the VMM's threads.
//!
//! The presets follow the comparison of kernels under one VMM by Genode 19.08: *same* puts vCPU i on CPU i, so
//! that vCPU 0 shares its CPU with all other threads; *disjoint* puts it on CPU i + 1.

use crate::Failure;
use std::collections::BTreeMap;
use std::io;
use std::sync::OnceLock;

/// Name for all threads without their own entry.
const OTHERS: &str = "others";

static PLACES: OnceLock<Places> = OnceLock::new();

/// Value of `--pin`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// No affinity.
    #[default]
    Free,
    /// vCPU i on CPU i, other threads on CPU 0.
    Same,
    /// vCPU i on CPU i + 1, other threads on CPU 0.
    Disjoint,
    /// CPU number by thread name.
    Named(BTreeMap<String, usize>),
}

impl Placement {
    /// Parses the option's value.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "same" => Some(Self::Same),
            "disjoint" => Some(Self::Disjoint),
            list => list
                .split(',')
                .map(pair)
                .collect::<Option<_>>()
                .map(Self::Named),
        }
    }

    /// Returns the first name that no thread of a VM has, given the number of its threads of each kind.
    pub fn absent(&self, threads: &[(&str, usize)]) -> Option<&str> {
        let Self::Named(names) = self else {
            return None;
        };
        let exists = |name: &str| {
            let kind = name.trim_end_matches(|c: char| c.is_ascii_digit());
            let count = threads.iter().find(|(known, _)| *known == kind);
            let number = name[kind.len()..].parse().unwrap_or(0);
            count.is_none_or(|(_, count)| number < *count)
        };
        names.keys().map(String::as_str).find(|name| !exists(name))
    }

    /// Applies the placement to a VM with `vcpus` vCPUs. CPU numbers index the CPUs allowed for this process.
    ///
    /// # Errors
    /// A CPU number is too large.
    pub fn apply(&self, vcpus: u32) -> Result<(), Failure> {
        let allowed = allowed().map_err(Failure::system("ask on which CPUs it may run"))?;
        if let Some(places) = self.places(vcpus, &allowed)? {
            // Called once.
            let _only_once = PLACES.set(places);
        }
        Ok(())
    }

    fn places(&self, vcpus: u32, allowed: &[usize]) -> Result<Option<Places>, Failure> {
        let vcpus = vcpus as usize;
        let wanted: BTreeMap<String, usize> = match self {
            Self::Free => return Ok(None),
            Self::Same => preset(vcpus, 0),
            Self::Disjoint => preset(vcpus, 1),
            Self::Named(wanted) => wanted.clone(),
        };
        let cpu = |(name, number): (String, usize)| match allowed.get(number) {
            Some(cpu) => Ok((name, *cpu)),
            None => Err(Failure::Usage(format!(
                "--pin: {name} is to run on CPU {number}, and this process may use {} CPUs: \
                 ask for fewer vCPUs or another placement",
                allowed.len()
            ))),
        };
        let cpus = wanted.into_iter().map(cpu).collect::<Result<_, _>>()?;
        Ok(Some(Places { cpus }))
    }
}

fn preset(vcpus: usize, first: usize) -> BTreeMap<String, usize> {
    let each = (0..vcpus).map(|number| (format!("vcpu{number}"), number + first));
    each.chain([(OTHERS.to_owned(), 0)]).collect()
}

fn pair(text: &str) -> Option<(String, usize)> {
    let (name, cpu) = text.split_once('=')?;
    let known = name == OTHERS || is_thread(name);
    Some((known.then(|| name.to_owned())?, cpu.parse().ok()?))
}

/// Returns true if a thread may have this name: a kind, with a number if there may be several.
fn is_thread(name: &str) -> bool {
    const KINDS: [(&str, bool); 6] = [
        ("control", false),
        ("console", false),
        ("vsock", false),
        ("vcpu", true),
        ("disk", true),
        ("net", true),
    ];
    KINDS.iter().any(|(kind, numbered)| {
        let rest = name.strip_prefix(kind);
        rest.is_some_and(|rest| {
            let is_number = !rest.is_empty() && rest.bytes().all(|digit| digit.is_ascii_digit());
            if *numbered {
                is_number
            } else {
                rest.is_empty()
            }
        })
    })
}

/// CPU by thread name.
#[derive(Debug)]
struct Places {
    cpus: BTreeMap<String, usize>,
}

impl Places {
    fn of(&self, name: &str) -> Option<usize> {
        // Worker threads of a disk use the disk's CPU.
        let own = self.cpus.get(name).or_else(|| {
            let (device, _) = name.split_once('.')?;
            self.cpus.get(device)
        });
        own.or_else(|| self.cpus.get(OTHERS)).copied()
    }
}

/// Sets the affinity of this thread, whose name is `name`.
pub fn apply_affinity(name: &str) {
    let Some(cpu) = PLACES.get().and_then(|places| places.of(name)) else {
        return;
    };
    // SAFETY: an all-zero set is valid, and the kernel reads one set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        // The CPU was allowed at start.
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// Returns the CPUs allowed for this process.
fn allowed() -> io::Result<Vec<usize>> {
    // SAFETY: an all-zero set is valid, and the kernel writes one set.
    let (status, set) = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let status = libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        (status, set)
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    let max = libc::CPU_SETSIZE as usize;
    // SAFETY: the numbers are below the size of the set.
    Ok((0..max)
        .filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn places(text: &str, vcpus: u32, allowed: &[usize]) -> Result<Places, String> {
        let placement = Placement::parse(text).unwrap();
        let places = placement.places(vcpus, allowed);
        places.map(Option::unwrap).map_err(|why| why.to_string())
    }

    #[test]
    fn presets_place_vcpus_and_other_threads() {
        let same = places("same", 2, &[4, 6]).unwrap();
        let at = |places: &Places, name| places.of(name);
        assert_eq!(at(&same, "vcpu0"), Some(4));
        assert_eq!(at(&same, "vcpu1"), Some(6));
        assert_eq!(at(&same, "control"), Some(4));
        let disjoint = places("disjoint", 1, &[4, 6]).unwrap();
        assert_eq!(at(&disjoint, "vcpu0"), Some(6));
        assert_eq!(at(&disjoint, "disk0"), Some(4));
        let failure = places("disjoint", 2, &[4, 6]).unwrap_err();
        expect!["--pin: vcpu1 is to run on CPU 2, and this process may use 2 CPUs: ask for fewer vCPUs or another placement"].assert_eq(&failure);
    }

    #[test]
    fn named_placement_is_parsed() {
        let named = places("vcpu0=1,disk0=0", 1, &[0, 1]).unwrap();
        assert_eq!((named.of("vcpu0"), named.of("disk0.1")), (Some(1), Some(0)));
        assert_eq!(named.of("control"), None);
        for text in [
            "",
            "vcpu=1",
            "vcpu0",
            "vcpu0=x",
            "cpu0=1",
            "control1=0",
            "x=1",
        ] {
            assert_eq!(Placement::parse(text), None, "{text}");
        }
        assert!(!allowed().unwrap().is_empty());
    }
}
