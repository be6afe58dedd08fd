//! Names of kernel packages, and the versions that users give for them.

use trapline_host::package::Apt;
use trapline_host::Error;

/// Prefix of the names of kernel packages.
pub const PREFIX: &str = "linux-image-";

/// Prefixes and suffixes of a version in the names of packages: none if all of it is given, Debian cloud, Debian, Ubuntu,
/// Debian for Arm. Package lists are of one architecture.
const FORMS: [(&str, &str); 7] = [
    ("", ""),
    (PREFIX, ""),
    (PREFIX, "-cloud-amd64"),
    (PREFIX, "-amd64"),
    (PREFIX, "-generic"),
    (PREFIX, "-cloud-arm64"),
    (PREFIX, "-arm64"),
];

/// Returns the packages that a name or version can mean.
pub fn candidates(name: &str) -> impl Iterator<Item = String> + '_ {
    let forms = FORMS.into_iter();
    let packages = forms.map(move |(before, behind)| format!("{before}{name}{behind}"));
    packages.filter(|package| package.starts_with(PREFIX))
}

/// Returns the package of a name or version: for `6.12` that of the newest 6.12, on which a metapackage depends.
///
/// # Errors
/// The distribution has none.
pub fn known_package(name: &str, apt: &Apt) -> Result<String, Error> {
    let known = apt.known()?;
    let Some(found) = candidates(name).find(|package| known.contains(package)) else {
        return Err(Error::missing(
            format!("--kernel {name}: neither a file nor a kernel package of this distribution"),
            versions(name, known.names()),
        ));
    };
    let newest = concrete_image(known.dependencies(&found));
    Ok(newest.unwrap_or(found))
}

/// Most versions that a remedy names.
const MOST_NAMED: usize = 6;

/// Returns a remedy that names the newest versions that begin like `name`, or else the newest of all.
fn versions<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let versions = known.filter_map(|package| {
        let version = package.strip_prefix(PREFIX)?;
        let suffixes = FORMS.iter().filter(|(_, behind)| !behind.is_empty());
        let stem = suffixes
            .into_iter()
            .find_map(|(_, behind)| version.strip_suffix(behind))?;
        let starts_well = stem.starts_with(|first: char| first.is_ascii_digit());
        (starts_well && !stem.ends_with("-rt")).then_some(stem)
    });
    let mut all: Vec<&str> = versions.collect();
    alphanumeric_sort::sort_str_slice_rev(&mut all);
    all.dedup();
    let start = name.split(['-', '+']).next().unwrap_or(name);
    let alike: Vec<&str> = all
        .iter()
        .copied()
        .filter(|it| it.starts_with(start))
        .collect();
    let mut chosen = if alike.is_empty() { all } else { alike };
    chosen.truncate(MOST_NAMED);
    if chosen.is_empty() {
        "sudo apt-get update".to_owned()
    } else {
        format!("choose from {}, or sudo apt-get update", chosen.join(", "))
    }
}

/// Returns the kernel package among the dependencies of a metapackage.
pub fn concrete_image(dependencies: &[String]) -> Option<String> {
    let is_image =
        |name: &&String| name.starts_with(PREFIX) && name.contains(|c: char| c.is_ascii_digit());
    dependencies.iter().find(is_image).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metapackage_resolves_to_one_kernel() {
        let image = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            concrete_image(&names)
        };
        let debian = image(&["linux-image-6.1.0-56-cloud-amd64"]);
        assert_eq!(debian.as_deref(), Some("linux-image-6.1.0-56-cloud-amd64"));
        let ubuntu = image(&["linux-base", "linux-image-6.8.0-31-generic"]);
        assert_eq!(ubuntu.as_deref(), Some("linux-image-6.8.0-31-generic"));
        assert_eq!(image(&[]), None);
    }

    #[test]
    fn versions_of_the_distribution_are_suggested() {
        let known = [
            "linux-image-6.12.117+deb12-cloud-amd64",
            "linux-image-6.12.117+deb12-amd64",
            "linux-image-6.12.99+deb12-cloud-amd64",
            "linux-image-6.1.0-56-cloud-amd64",
            "linux-image-6.1.0-56-rt-amd64",
            "linux-image-6.1.0-56-amd64-dbg",
            "linux-image-amd64",
        ];
        for (name, expected) in [
            (
                "6.12-x",
                "choose from 6.12.117+deb12, 6.12.99+deb12, or sudo apt-get update",
            ),
            (
                "7.1",
                "choose from 6.12.117+deb12, 6.12.99+deb12, 6.1.0-56, or sudo apt-get update",
            ),
        ] {
            assert_eq!(versions(name, known.into_iter()), expected);
        }
        assert_eq!(versions("7.1", std::iter::empty()), "sudo apt-get update");
    }
}
