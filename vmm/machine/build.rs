//! Links the programs of this crate at fixed addresses. They are static anyway; position-independent, they would
//! relocate themselves before `main`, and each page touched by that is one more page of memory. The linker script
//! groups the code that runs before the guest.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=startup.ld");
    let script = concat!("-Wl,-T,", env!("CARGO_MANIFEST_DIR"), "/startup.ld");
    for argument in ["-no-pie", "-static"] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    println!("cargo:rustc-link-arg-bin=trapline-vmm={script}");
}
