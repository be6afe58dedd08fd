//! Links the agent at fixed addresses that neither the VMM nor position-independent programs use, so
//! that an address identifies the program in profiles.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // On Arm the loader's own code at the start of the file would be too far away.
    let place = if std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("aarch64") {
        "-Wl,-Ttext-segment=0x10000000"
    } else {
        "-Wl,-Ttext=0x10000000"
    };
    for argument in ["-no-pie", "-static", place] {
        println!("cargo:rustc-link-arg-bin=trapline-agent={argument}");
    }
}
