//! A build of the image with less optimisation, whose figures differ from those of the default one.

use crate::root;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the image with less optimisation. It is built once.
///
/// # Panics
/// The build fails.
pub fn slow_image() -> &'static Path {
    static IMAGE: OnceLock<PathBuf> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let target = root().join("target/image-slow");
        std::fs::create_dir_all(&target).expect("directory can be created");
        let image = target.join("trapline-image");
        let built = Command::new(root().join("scripts/freestanding.sh"))
            .arg("trapline-kernel")
            .arg(&image)
            .env("TRAPLINE_IMAGE_TARGET", &target)
            .env("CARGO_PROFILE_GUEST_OPT_LEVEL", "1")
            .status()
            .expect("program starts");
        assert!(built.success(), "the second image does not build");
        image
    })
}
