//! The image in other formats than an ELF file with a PVH note: multiboot, and a flat binary.

use trapline_tests::measurements::{cell, estimate};
use trapline_tests::run::Place;

/// Address of the kernel that enters a flat binary, and that of the binary.
const ADDRESS: u32 = 0x10_0000;
const TARGET: u32 = 0x200_0000;

/// Offsets in the kernel: the word with its entry, entries in both modes, and the parts of the second one.
const ENTRY: usize = 28;
const PROTECTED: u32 = 0x20;
const LONG: u32 = 0x30;
const FLAT: u32 = 0xb0;
const TABLE: u32 = 0xc0;
const LIMIT: u32 = 0xd0;
const SIZE: usize = 0x100;
/// Offset of the page tables behind it.
const TABLES: u32 = 0x1000;

core::arch::global_asm!(
    include_str!("enter_raw.s"),
    ADDRESS = const ADDRESS,
    TARGET = const TARGET,
    ENTRY = const ENTRY,
    PROTECTED = const PROTECTED,
    LONG = const LONG,
    FLAT = const FLAT,
    TABLE = const TABLE,
    LIMIT = const LIMIT,
    SIZE = const SIZE,
    TABLES = const TABLES,
);

extern "C" {
    /// See enter_raw.s.
    #[link_name = "trapline_enter_raw"]
    static KERNEL: [u8; SIZE];
}

/// Writes the kernel that enters a flat binary in a mode, and returns its path.
fn kernel(place: &Place, name: &str, entry: u32) -> String {
    // SAFETY: enter_raw.s defines exactly this many bytes, and nothing writes them.
    let mut bytes = unsafe { KERNEL };
    bytes[ENTRY..ENTRY + 4].copy_from_slice(&(ADDRESS + entry).to_le_bytes());
    let path = place.path().join(name);
    std::fs::write(&path, bytes).expect("place is writable");
    path.display().to_string()
}

/// Returns a definition of QEMU's pc machine with the options `boot`.
fn definition(name: &str, format: &str, boot: &str) -> String {
    format!(
        "[vmm.{name}]\nformat = '{format}'\ncommand = '''qemu-system-x86_64 -M pc -nodefaults \
         -no-user-config -display none -no-reboot -accel kvm -cpu host,-arch-capabilities \
         -m {{memory}} -serial stdio {boot}'''\n\
         files = ['/usr/share/seabios/bios-256k.bin', '/usr/share/qemu/multiboot_dma.bin', \
         '/usr/share/qemu/kvmvapic.bin']\n"
    )
}

/// QEMU loads the image as a multiboot kernel, and as a flat binary, which another kernel enters in protected mode and in
/// long mode.
#[test]
#[ignore = "slow: make test-all"]
fn multiboot_and_flat_images_are_measured() {
    let place = Place::new();
    let loader = format!("-device loader,addr={TARGET:#x},force-raw=on,file={{image}} -kernel");
    let flat = |name, entry| format!("{loader} {}", kernel(&place, name, entry));
    let definitions = [
        definition(
            "multiboot",
            "multiboot",
            "-kernel {image} -append {cmdline}",
        ),
        definition("protected", "raw", &flat("protected-mode", PROTECTED)),
        definition("long", "raw", &flat("long-mode", LONG)),
    ];
    let directory = place.path().join("trapline");
    std::fs::create_dir_all(&directory).expect("place is writable");
    let configuration = directory.join("config.toml");
    std::fs::write(configuration, definitions.concat()).expect("place is writable");
    if !place.has("sim/multiboot", "images in other formats") {
        return;
    }
    let environments = "sim/multiboot,sim/protected,sim/long,sim/qemu-kvm-pc";
    let operations = "exits/port-out,boot/main";
    let json = place.measure(&["--env", environments, "--workload", operations]);
    let exit = |environment| estimate(&json, environment, "port-out");
    for environment in ["sim/multiboot", "sim/protected", "sim/long"] {
        let ratio = exit(environment) / exit("sim/qemu-kvm-pc");
        assert!((ratio - 1.0).abs() < 0.01, "{environment}: {ratio}");
        let start = cell(&json, environment, "main");
        assert!(start["estimate"].as_f64() > Some(1e6), "{start:#}");
    }
}
