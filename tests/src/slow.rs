//! A build of the image whose figures differ from the usual one's for a real reason.

use crate::root;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The image with less optimisation, built once.
///
/// # Panics
/// If it does not build.
pub fn slow_image() -> &'static Path {
    static IMAGE: OnceLock<PathBuf> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let target = root().join("target/image-slow");
        std::fs::create_dir_all(&target).expect("it can be made");
        let image = target.join("trapline-image");
        let built = Command::new(root().join("guest/kernel/build.sh"))
            .arg(&image)
            .env("TRAPLINE_IMAGE_TARGET", &target)
            .env("CARGO_PROFILE_GUEST_OPT_LEVEL", "1")
            .status()
            .expect("it can be started");
        assert!(built.success(), "the second image does not build");
        image
    })
}
