//! Targets of the builds, their packages, and the preparation of the source.

use sha2::{Digest, Sha256};
use trapline_host::hexadecimal;
use trapline_model::kernel_build::Size;

/// Metapackage of the kernel's source.
pub const SOURCE: &str = "linux-source";

/// Packages of the build tools; their dependencies are added.
pub const TOOLS: [&str; 22] = [
    "bash",
    "bc",
    "binutils",
    "bison",
    "bzip2",
    "coreutils",
    "dash",
    "diffutils",
    "findutils",
    "flex",
    "gcc",
    "grep",
    "gzip",
    "libc6-dev",
    "libelf-dev",
    "libssl-dev",
    "make",
    "mawk",
    "perl-base",
    "sed",
    "tar",
    "xz-utils",
];

/// Directory of the source in the root, and path of `make`.
pub const DIRECTORY: &str = "/build";
const MAKE: &str = "/usr/bin/make";

/// Arguments of every `make`: little output, the architecture, and constants for time and user, which a kernel
/// contains.
const ARGUMENTS: [&str; 5] = [
    "-s",
    "ARCH=x86_64",
    "KBUILD_BUILD_TIMESTAMP=Thu Jan  1 00:00:00 UTC 1970",
    "KBUILD_BUILD_USER=trapline",
    "KBUILD_BUILD_HOST=trapline",
];

/// Large parts of the source that are not built: device trees of other architectures, and register
/// definitions of a driver.
pub const EXCLUDED: [&str; 2] = [
    "*/boot/dts/*.dts*",
    "*/drivers/gpu/drm/amd/include/asic_reg",
];

/// Targets of [`Size::Mini`]: files of the kernel's library that compile quickly.
const MINI: [&str; 30] = [
    "lib/argv_split.o",
    "lib/bcd.o",
    "lib/buildid.o",
    "lib/cmdline.o",
    "lib/ctype.o",
    "lib/dec_and_lock.o",
    "lib/earlycpio.o",
    "lib/extable.o",
    "lib/flex_proportions.o",
    "lib/idr.o",
    "lib/irq_regs.o",
    "lib/is_single_threaded.o",
    "lib/klist.o",
    "lib/kobject.o",
    "lib/kobject_uevent.o",
    "lib/lockref.o",
    "lib/logic_pio.o",
    "lib/memcat_p.o",
    "lib/nmi_backtrace.o",
    "lib/parser.o",
    "lib/plist.o",
    "lib/ratelimit.o",
    "lib/rbtree.o",
    "lib/seq_buf.o",
    "lib/show_mem.o",
    "lib/siphash.o",
    "lib/sort.o",
    "lib/string.o",
    "lib/timerqueue.o",
    "lib/win_minmax.o",
];

/// Returns the targets of `make`.
fn targets(size: Size) -> &'static [&'static str] {
    match size {
        Size::Mini => &MINI,
        Size::Tiny | Size::Def => &["bzImage"],
    }
}

/// Returns the targets that prepare the source. Archived files have equal times, so the last target is the
/// first step of the build: `make` finds it up to date.
fn preparation(size: Size) -> [&'static str; 2] {
    match size {
        Size::Mini => ["tinyconfig", "prepare"],
        Size::Tiny => ["tinyconfig", "syncconfig"],
        Size::Def => ["defconfig", "syncconfig"],
    }
}

/// Returns the file that the agent reads in the root: directory, program and arguments, one per line.
pub fn text(size: Size) -> String {
    let lines = [DIRECTORY, MAKE].into_iter().chain(ARGUMENTS);
    let lines = lines.chain(targets(size).iter().copied());
    lines.map(|line| format!("{line}\n")).collect()
}

/// Returns the shell command that prepares the source in the root.
pub fn prepare(size: Size) -> String {
    let [configure, generate] = preparation(size);
    format!("{} && {}", make(&[configure]), make(&[generate]))
}

/// Returns the shell command that builds it.
pub fn build(size: Size) -> String {
    make(targets(size))
}

/// Returns the shell command that removes all generated files.
pub fn clean() -> String {
    make(&["mrproper"])
}

fn make(targets: &[&str]) -> String {
    let arguments = ARGUMENTS.map(|word| format!("'{word}'")).join(" ");
    let targets = targets.join(" ");
    format!("cd {DIRECTORY} && {MAKE} {arguments} -j$(nproc) {targets}")
}

/// Returns the first digits of a hash of everything that determines a root besides its packages.
pub fn digest(size: Size) -> String {
    let all = [prepare(size), build(size), clean(), text(size)];
    let all = all.into_iter().chain(EXCLUDED.map(str::to_owned));
    let hash = hexadecimal(&Sha256::digest(all.collect::<Vec<_>>().join("\n")));
    hash[..8].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_of_sizes_differ() {
        let text = text(Size::Tiny);
        assert!(text.starts_with("/build\n/usr/bin/make\n-s\n"), "{text}");
        assert!(text.ends_with("\nbzImage\n"), "{text}");
        assert_eq!(self::text(Size::Mini).matches("lib/").count(), MINI.len());
        assert_ne!(digest(Size::Tiny), digest(Size::Def));
        assert_eq!(digest(Size::Mini).len(), 8);
    }

    #[test]
    fn arguments_with_spaces_are_quoted() {
        let line = prepare(Size::Mini);
        assert!(
            line.contains(" 'KBUILD_BUILD_TIMESTAMP=Thu Jan  1 "),
            "{line}"
        );
        assert!(line.ends_with(" prepare"), "{line}");
    }
}
