//! Links the switch at fixed addresses that neither the VMM nor the agent uses, so that an address identifies the program in
//! profiles.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for argument in ["-no-pie", "-static", "-Wl,-Ttext=0x18000000"] {
        println!("cargo:rustc-link-arg-bin=trapline-switch={argument}");
    }
}
