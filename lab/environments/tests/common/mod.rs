//! What tests of real guests stand on: the built parts, a plan, and a way to say
//! that something cannot be tested here.

#[path = "../../../../tests/src/skip.rs"]
mod skip;

use skip::skip;
use std::path::{Path, PathBuf};
use std::time::Duration;
use trapline_abi::OpSet;
use trapline_environments::{
    all, boot, Availability, Booted, EnvError, Environment, GuestImage, Parts, Requirements,
    Settings, Watch,
};
use trapline_model::{expand, EnvironmentId, Outcome, PlannedBoot, Request};

/// Where `make build` put the parts.
pub fn parts() -> PathBuf {
    let named = std::env::var_os("TRAPLINE_PARTS").map(PathBuf::from);
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/dist");
    let parts = named.unwrap_or_else(built);
    let image = parts.join("trapline-image");
    assert!(
        image.is_file(),
        "{} is missing: make build",
        image.display()
    );
    parts
}

/// Settings for parts in `directory`.
pub fn settings(directory: &Path) -> Settings {
    Settings {
        parts: Parts::in_directory(directory),
        ..Settings::find().unwrap()
    }
}

/// A small boot of `id` for the operations named, with one further launch.
pub fn planned(id: EnvironmentId, operations: OpSet) -> PlannedBoot {
    let plan = expand(&Request {
        contenders: vec![id.into()],
        ready: vec![id.into()],
        operations,
        boots: Some(1),
        scheduling: trapline_model::Scheduling::USUAL,
        seed: 1,
        ..Request::default()
    });
    let mut boot = plan.boots[0].clone();
    boot.boot_launches = boot.boot_launches.min(1);
    boot.job.pages = boot.job.pages.min(2048);
    boot.job.doubles = boot.job.doubles.min(200_000);
    boot
}

/// The environment `id`, if it is ready; else the test says that it is skipped.
pub fn ready(id: EnvironmentId, settings: &Settings) -> Option<Box<dyn Environment>> {
    let environment = all(settings).into_iter().find(|found| found.id() == id)?;
    let machine = planned(id, 1).machine;
    match environment.supports(&Requirements { machine }) {
        Availability::Ready => Some(environment),
        Availability::Missing(reason) => {
            skip(&format!("guests in {id}"), &reason);
            None
        }
    }
}

/// Boots as planned.
pub fn observe(
    environment: &dyn Environment,
    settings: &Settings,
    planned: &PlannedBoot,
    patience: Duration,
) -> Result<Booted, EnvError> {
    let image = settings.parts.image().unwrap_or(GuestImage {
        path: "/nonexistent".into(),
        sha256: String::new(),
    });
    boot(
        environment,
        &image,
        planned,
        &Watch::of(patience),
        &mut |_| {},
    )
}

/// The reason why an operation failed, if it did.
pub fn failure(outcome: &Outcome) -> Option<&str> {
    match outcome {
        Outcome::Failed(reason) => Some(reason),
        _ => None,
    }
}
