//! Links the agent at fixed addresses, like the VMM, and its code where neither the
//! VMM's nor that of any program that was put somewhere by the kernel can be: while a
//! VMM starts both are executed, and an address alone must say whose code it is.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for argument in ["-no-pie", "-static", "-Wl,-Ttext=0x10000000"] {
        println!("cargo:rustc-link-arg-bin=trapline-agent={argument}");
    }
}
