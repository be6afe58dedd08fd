//! Single boots through the library, for tests that need no command line.

use crate::skip;
use std::path::Path;
use std::time::Duration;
use trapline_abi::{Op, OpSet};
use trapline_environments::{
    all, boot, Booted, EnvError, Environment, GuestImage, Limits, Parts, Settings,
};
use trapline_model::expand::start;
use trapline_model::{expand, EnvironmentId, Outcome, PlannedBoot, Request};

/// Returns settings for parts in `directory`.
///
/// # Panics
/// The path of this program is unknown.
pub fn settings(directory: &Path) -> Settings {
    Settings {
        parts: Parts::in_directory(directory),
        ..Settings::find().expect("path of this program")
    }
}

/// Returns a request for one boot of `id` that measures `operations`.
pub fn request(id: EnvironmentId, operations: impl Into<OpSet>) -> Request {
    Request {
        configs: vec![id.into()],
        ready: vec![id.into()],
        operations: operations.into(),
        boots: Some(1),
        seed: 1,
        ..Request::default()
    }
}

/// Returns a small boot of `id` for `operations` alone, with at most one further launch.
pub fn planned(id: EnvironmentId, operations: impl Into<OpSet>) -> PlannedBoot {
    let request = request(id, operations);
    let whole = &expand(&request).boots[0];
    let supported = whole.starts().map(|start| start.kept).collect();
    let mut boot = start(&request, &id.into(), supported);
    boot.left_out.clone_from(&whole.left_out);
    boot.boot_launches = boot.boot_launches.min(1);
    boot.job.pages = boot.job.pages.min(2048);
    boot.job.doubles = boot.job.doubles.min(200_000);
    boot
}

/// Returns the environment `id` if it is ready; else reports the test as skipped.
pub fn ready(id: EnvironmentId, settings: &Settings) -> Option<Box<dyn Environment>> {
    let mut known = all(settings).into_iter();
    let environment = known
        .find(|found| found.id() == id)
        .expect("a known environment");
    let guest = planned(id, Op::Getpid).guest;
    match environment.check(&guest) {
        Ok(()) => Some(environment),
        Err(unavailable) => {
            skip(&format!("guests in {id}"), &unavailable.to_string());
            None
        }
    }
}

/// Boots `environment` as planned.
///
/// # Errors
/// No guest was started.
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
        &Limits::timeout(patience),
        &mut |_| {},
    )
}

/// Returns the reason why an operation failed, if it did.
pub fn failure(outcome: &Outcome) -> Option<&str> {
    match outcome {
        Outcome::Failed(reason) => Some(reason),
        _ => None,
    }
}
