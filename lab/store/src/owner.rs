//! The process that adds to a run, as other processes and other hosts see it that open the same store.

use std::fmt;
use std::str::FromStr;

/// Interval in which the owner of a run says in the store that it still runs, in seconds.
pub const HEARTBEAT: u64 = 10;

/// A run whose last heartbeat is younger than this, in milliseconds, is being measured. The clocks of hosts that open one
/// store must not differ by more.
pub const ALIVE: u64 = 6 * HEARTBEAT * 1000;

/// A process that adds to a run. Its text has these fields in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Boot id of the kernel: a random number of each start of a host.
    pub boot: String,
    /// Number of the process in its namespace.
    pub pid: u32,
    /// Start of the process, in ticks since the start of the host (proc_pid_stat(5), field 22).
    pub start: u64,
    /// Inode of the namespace of processes; 0 in stores before format 34.
    pub namespace: u64,
    /// Name of the host, as users call it; empty in stores before format 34.
    pub host: String,
}

impl Owner {
    /// Returns whether both processes are of one kernel since its start.
    pub fn is_of_same_kernel(&self, other: &Self) -> bool {
        self.boot == other.boot
    }

    /// Returns whether this process can be found by the other one.
    pub fn is_visible_to(&self, other: &Self) -> bool {
        self.is_of_same_kernel(other) && [0, other.namespace].contains(&self.namespace)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            boot,
            pid,
            start,
            namespace,
            host,
        } = self;
        write!(f, "{boot} {pid} {start} {namespace} {host}")
    }
}

impl FromStr for Owner {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ');
        let mut next = || words.next().ok_or(());
        let (boot, pid, start) = (next()?, next()?, next()?);
        Ok(Self {
            boot: boot.to_owned(),
            pid: pid.parse().map_err(drop)?,
            start: start.parse().map_err(drop)?,
            namespace: next().unwrap_or("0").parse().map_err(drop)?,
            host: next().unwrap_or_default().to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_read_from_its_text() {
        let owner = Owner {
            boot: "b".to_owned(),
            pid: 7,
            start: 9,
            namespace: 4_026_531_836,
            host: "rack-1".to_owned(),
        };
        assert_eq!(owner.to_string().parse(), Ok(owner.clone()));
        let earlier: Owner = "b 7 9".parse().unwrap();
        assert!(earlier.is_visible_to(&owner));
        assert_eq!((earlier.namespace, earlier.host.as_str()), (0, ""));
        for text in ["", "b", "b 7", "b x 9", "b 7 x", "b 7 9 x"] {
            assert_eq!(text.parse::<Owner>(), Err(()), "{text:?}");
        }
    }

    #[test]
    fn processes_of_other_kernels_and_namespaces_are_not_visible() {
        let owner = |text: &str| text.parse::<Owner>().unwrap();
        let here = owner("b 1 1 5 h");
        assert!(owner("b 2 1 5 h").is_visible_to(&here));
        assert!(!owner("b 2 1 6 h").is_visible_to(&here));
        assert!(owner("b 2 1 6 h").is_of_same_kernel(&here));
        assert!(!owner("c 2 1 5 h").is_visible_to(&here));
    }
}
