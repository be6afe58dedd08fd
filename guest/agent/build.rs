//! Links the agent at fixed addresses that neither the VMM nor position-independent programs use, so
//! that an address identifies the program in profiles.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for argument in ["-no-pie", "-static", "-Wl,-Ttext=0x10000000"] {
        println!("cargo:rustc-link-arg-bin=trapline-agent={argument}");
    }
}
