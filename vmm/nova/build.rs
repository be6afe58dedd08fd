//! Link arguments of the root task. In a plain workspace build this crate is a stub.

use std::env;
use std::path::Path;

const ARGUMENTS: [&str; 8] = [
    "-nostartfiles",
    "-nostdlib",
    "-static",
    "-no-pie",
    "-Wl,--build-id=none",
    "-Wl,-z,max-page-size=4096,-z,norelro",
    "-Wl,--no-eh-frame-hdr",
    // Precompiled core refers to unwinding, which never happens here.
    "-Wl,--defsym=rust_eh_personality=0,--defsym=_Unwind_Resume=0",
];

fn main() {
    println!("cargo:rerun-if-changed=root.ld");
    if env::var_os("CARGO_CFG_TRAPLINE_IMAGE").is_none() {
        return;
    }
    for argument in ARGUMENTS {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let script = Path::new(&folder).join("root.ld");
    println!("cargo:rustc-link-arg-bins=-Wl,-T,{}", script.display());
}
