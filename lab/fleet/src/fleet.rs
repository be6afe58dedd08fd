//! The directory of a fleet.

use crate::attempt::{self, Attempt};
use crate::error::FleetError;
use crate::package::{self, Files};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use trapline_model::slice::MOST;

/// Failed self-tests of a host after which it gets no more slices.
const MOST_FAILURES: usize = 2;

/// Task of all machines: the file `fleet.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Order {
    /// A random identity, which names its jobs, too.
    pub uuid: String,
    /// Version of Trapline.
    pub version: String,
    /// Number of slices.
    pub slices: u32,
    /// SHA-256 of each file of the package.
    pub package: Files,
    /// True if the plan has the wall clock: then a host executes one slice at a time.
    pub has_wall_clock: bool,
    /// Output of the self-test on a fit host; `None` if the plan has no exact clock, whose figures it checks.
    pub self_test: Option<String>,
}

/// A fleet: plan, programs and results in one directory.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// The directory, as an absolute path.
    pub directory: PathBuf,
    /// Task of all machines.
    pub order: Order,
}

const ORDER: &str = "fleet.json";
const PLAN: &str = "plan.toml";
const PACKAGE: &str = "package";
const RESULTS: &str = "results";
const LOG: &str = "log";

impl Fleet {
    /// Creates a fleet in a new directory, with the program and the parts in a directory. It is one as soon as [`Self::save`] has
    /// written what is to be done.
    ///
    /// # Errors
    /// The directory exists, or cannot be written.
    pub fn create(
        directory: &Path,
        (plan, slices): (&str, u32),
        (program, parts): (&Path, &Path),
    ) -> Result<Self, FleetError> {
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700);
        builder.create(directory).map_err(|error| {
            FleetError::new(
                format!("{}: {error}", directory.display()),
                "name a new directory, which all machines see",
            )
        })?;
        let directory = directory
            .canonicalize()
            .map_err(FleetError::file(directory))?;
        for name in [PACKAGE, RESULTS, LOG] {
            let path = directory.join(name);
            builder.create(&path).map_err(FleetError::file(&path))?;
        }
        let path = directory.join(PLAN);
        fs::write(&path, plan).map_err(FleetError::file(&path))?;
        let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
        Ok(Self {
            order: Order {
                uuid: uuid.trim().to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                slices,
                package: package::copy(program, parts, &directory.join(PACKAGE))?,
                has_wall_clock: false,
                self_test: None,
            },
            directory,
        })
    }

    /// Writes what is to be done.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn save(&self) -> Result<(), FleetError> {
        let path = self.directory.join(ORDER);
        let text = serde_json::to_string_pretty(&self.order).unwrap_or_default() + "\n";
        fs::write(&path, text).map_err(FleetError::file(&path))
    }

    /// Opens a fleet.
    ///
    /// # Errors
    /// The directory is none of a fleet, or one of another version.
    pub fn open(directory: &Path) -> Result<Self, FleetError> {
        let path = directory.join(ORDER);
        let help = "name the directory that 'trapline fleet create' made";
        let text = fs::read_to_string(&path)
            .map_err(|error| FleetError::new(format!("{}: {error}", path.display()), help))?;
        let order: Order = serde_json::from_str(&text)
            .map_err(|error| FleetError::new(format!("{}: {error}", path.display()), help))?;
        if !(1..=MOST).contains(&order.slices) {
            let message = format!("{}: a fleet has 1 to {MOST} slices", path.display());
            return Err(FleetError::new(message, help));
        }
        let here = env!("CARGO_PKG_VERSION");
        if order.version != here {
            return Err(FleetError::new(
                format!(
                    "{} is of Trapline {}, and this is {here}",
                    path.display(),
                    order.version
                ),
                format!(
                    "use {}",
                    directory.join(PACKAGE).join(package::PROGRAM).display()
                ),
            ));
        }
        Ok(Self {
            directory: directory
                .canonicalize()
                .map_err(FleetError::file(directory))?,
            order,
        })
    }

    /// Returns the path of the plan.
    pub fn plan(&self) -> PathBuf {
        self.directory.join(PLAN)
    }

    /// Returns the directory of the programs.
    pub fn package(&self) -> PathBuf {
        self.directory.join(PACKAGE)
    }

    /// Returns the directory of attempts, and of what engines print.
    pub fn log(&self) -> PathBuf {
        self.directory.join(LOG)
    }

    /// Checks the package.
    ///
    /// # Errors
    /// A file is missing or damaged.
    pub fn verify(&self) -> Result<(), FleetError> {
        package::verify(&self.package(), &self.order.package)
    }

    /// Returns the path of the store of a slice that is done.
    pub fn result(&self, slice: u32) -> PathBuf {
        self.directory.join(RESULTS).join(format!("{slice}.db"))
    }

    /// Returns whether a slice is done.
    pub fn is_done(&self, slice: u32) -> bool {
        self.result(slice).is_file()
    }

    /// Returns the slices that are not done.
    pub fn missing(&self) -> Vec<u32> {
        (1..=self.order.slices)
            .filter(|slice| !self.is_done(*slice))
            .collect()
    }

    /// Copies the store of a slice to its place, whole or not at all. False if another machine was faster: its result stays.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn publish(&self, slice: u32, store: &Path) -> Result<bool, FleetError> {
        let results = self.directory.join(RESULTS);
        let mut copy = tempfile::Builder::new()
            .prefix(&format!(".{slice}-"))
            .tempfile_in(&results)
            .map_err(FleetError::file(&results))?;
        let bytes = fs::read(store).map_err(FleetError::file(store))?;
        let written = copy
            .write_all(&bytes)
            .and_then(|()| copy.as_file().sync_all());
        written.map_err(FleetError::file(&results))?;
        let result = self.result(slice);
        match fs::hard_link(copy.path(), &result) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(FleetError::file(&result)(error)),
        }
    }

    /// Returns all attempts, the earliest first.
    pub fn attempts(&self) -> Vec<Attempt> {
        attempt::all(&self.log())
    }

    /// Returns the ids of hosts whose self-tests have failed too often.
    pub fn unfit_hosts(&self) -> BTreeSet<String> {
        let attempts = self.attempts();
        let failed = |host: &str| {
            let of_host = attempts.iter().filter(|it| it.host == host && it.is_unfit);
            of_host.count()
        };
        let hosts: BTreeSet<&String> = attempts.iter().map(|it| &it.host).collect();
        let unfit = hosts
            .into_iter()
            .filter(|host| failed(host) >= MOST_FAILURES);
        unfit.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_model::Host;

    fn fleet(folder: &Path) -> Fleet {
        let parts = folder.join("parts");
        fs::create_dir(&parts).unwrap();
        fs::write(parts.join("trapline-vmm"), "vmm").unwrap();
        fs::write(parts.join("program"), "program").unwrap();
        let program = parts.join("program");
        Fleet::create(&folder.join("fleet"), ("a plan", 3), (&program, &parts)).unwrap()
    }

    #[test]
    fn a_fleet_is_opened_as_it_was_created() {
        let folder = tempfile::tempdir().unwrap();
        let mut made = fleet(folder.path());
        made.order.self_test = Some("6".to_owned());
        made.save().unwrap();
        let opened = Fleet::open(&made.directory).unwrap();
        assert_eq!(
            (&opened.order, &opened.directory),
            (&made.order, &made.directory)
        );
        assert_eq!(opened.verify(), Ok(()));
        assert_eq!(fs::read_to_string(opened.plan()).unwrap(), "a plan");
        let again = Fleet::create(
            &made.directory,
            ("a plan", 3),
            (Path::new("p"), Path::new("q")),
        );
        assert!(again.unwrap_err().message.contains("exists"));
        let mut other = made.clone();
        other.order.version = "0.0.1".to_owned();
        other.save().unwrap();
        let refused = Fleet::open(&made.directory).unwrap_err();
        assert!(
            refused.remedy.ends_with("fleet/package/trapline"),
            "{refused:?}"
        );
        assert!(Fleet::open(folder.path()).is_err());
    }

    #[test]
    fn the_first_result_of_a_slice_stays() {
        let folder = tempfile::tempdir().unwrap();
        let fleet = fleet(folder.path());
        let [one, two] = ["one", "two"].map(|text| {
            let path = folder.path().join(text);
            fs::write(&path, text).unwrap();
            path
        });
        assert_eq!(fleet.missing(), [1, 2, 3]);
        assert_eq!(fleet.publish(2, &one), Ok(true));
        assert_eq!(fleet.publish(2, &two), Ok(false));
        assert_eq!(fs::read_to_string(fleet.result(2)).unwrap(), "one");
        assert_eq!(fleet.missing(), [1, 3]);
        let left = fs::read_dir(fleet.directory.join(RESULTS)).unwrap().count();
        assert_eq!(left, 1, "nothing else is left");
    }

    #[test]
    fn a_host_is_unfit_after_two_failed_self_tests() {
        let folder = tempfile::tempdir().unwrap();
        let fleet = fleet(folder.path());
        for (slice, host, is_unfit) in [
            (1, "a", true),
            (2, "a", true),
            (3, "b", true),
            (1, "b", false),
        ] {
            let host = Host {
                id: host.to_owned(),
                ..Host::default()
            };
            let mut attempt = Attempt::begin(slice, &host);
            attempt.is_unfit = is_unfit;
            attempt.end(Some("no 6".to_owned()));
            attempt.write(&fleet.log()).unwrap();
        }
        fs::write(fleet.log().join("x.json"), "{").unwrap();
        assert_eq!(fleet.attempts().len(), 4);
        assert_eq!(fleet.unfit_hosts(), ["a".to_owned()].into());
    }
}
