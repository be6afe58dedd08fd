//! What is built, from which packages, and how a source is made ready for it.

use sha2::{Digest, Sha256};
use trapline_host::hexadecimal;
use trapline_model::kernel_build::Size;

/// What stands for the distribution's source of its kernel.
pub const SOURCE: &str = "linux-source";

/// Packages of programs that work on it; what they need comes with them.
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

/// Where the source is in the root, and the program that builds it.
pub const DIRECTORY: &str = "/build";
const MAKE: &str = "/usr/bin/make";

/// What every `make` is told: few words, the processor, and who built it when, which a
/// kernel writes down.
const WORDS: [&str; 5] = [
    "-s",
    "ARCH=x86_64",
    "KBUILD_BUILD_TIMESTAMP=Thu Jan  1 00:00:00 UTC 1970",
    "KBUILD_BUILD_USER=trapline",
    "KBUILD_BUILD_HOST=trapline",
];

/// Parts of the source that are large and that no kernel for PCs needs: descriptions of
/// other processors' boards, and of registers of a driver that is built nowhere here.
pub const WITHOUT: [&str; 2] = [
    "*/boot/dts/*.dts*",
    "*/drivers/gpu/drm/amd/include/asic_reg",
];

/// The files of [`Size::Mini`]: of the kernel's library those that each take a compiler
/// little time.
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

/// What `make` is to make.
fn targets(size: Size) -> &'static [&'static str] {
    match size {
        Size::Mini => &MINI,
        Size::Tiny | Size::Def => &["bzImage"],
    }
}

/// What makes the source ready. All that is made here is as old as the source when the
/// clock starts, so it ends with what `make` would else do first: what it finds is
/// up to date.
fn preparation(size: Size) -> [&'static str; 2] {
    match size {
        Size::Mini => ["tinyconfig", "prepare"],
        Size::Tiny => ["tinyconfig", "syncconfig"],
        Size::Def => ["defconfig", "syncconfig"],
    }
}

/// The recipe that the agent reads in the root: a word a line.
pub fn text(size: Size) -> String {
    let words = [DIRECTORY, MAKE].into_iter().chain(WORDS);
    let words = words.chain(targets(size).iter().copied());
    words.map(|word| format!("{word}\n")).collect()
}

/// What a shell does in the root to make the source ready, and to build it once.
pub fn prepare(size: Size) -> String {
    let [configure, generate] = preparation(size);
    format!("{} && {}", make(&[configure]), make(&[generate]))
}

/// The same to build it once.
pub fn build(size: Size) -> String {
    make(targets(size))
}

/// The same to take back all that was made.
pub fn clean() -> String {
    make(&["mrproper"])
}

fn make(targets: &[&str]) -> String {
    let words = WORDS.map(|word| format!("'{word}'")).join(" ");
    let targets = targets.join(" ");
    format!("cd {DIRECTORY} && {MAKE} {words} -j$(nproc) {targets}")
}

/// What tells one way to make a root from another, as a few digits.
pub fn digest(size: Size) -> String {
    let all = [prepare(size), build(size), clean(), text(size)];
    let all = all.into_iter().chain(WITHOUT.map(str::to_owned));
    let hash = hexadecimal(&Sha256::digest(all.collect::<Vec<_>>().join("\n")));
    hash[..8].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_a_recipe_of_its_own() {
        let text = text(Size::Tiny);
        assert!(text.starts_with("/build\n/usr/bin/make\n-s\n"), "{text}");
        assert!(text.ends_with("\nbzImage\n"), "{text}");
        assert_eq!(self::text(Size::Mini).matches("lib/").count(), MINI.len());
        assert_ne!(digest(Size::Tiny), digest(Size::Def));
        assert_eq!(digest(Size::Mini).len(), 8);
    }

    #[test]
    fn a_shell_gets_words_that_have_spaces_as_one() {
        let line = prepare(Size::Mini);
        assert!(
            line.contains(" 'KBUILD_BUILD_TIMESTAMP=Thu Jan  1 "),
            "{line}"
        );
        assert!(line.ends_with(" prepare"), "{line}");
    }
}
