//! Links the programs of this crate at fixed addresses. They are static anyway;
//! position-independent, they would relocate themselves before `main`, and each
//! page touched by that is one more page of memory.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for argument in ["-no-pie", "-static"] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
}
