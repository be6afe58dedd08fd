//! Faults of the image as Xen's initial domain.

use std::time::Duration;
use trapline_abi::job::Fault;
use trapline_abi::Op;
use trapline_environments::{Booted, EnvError};
use trapline_model::EnvironmentId;
use trapline_tests::boots::{failure, observe, planned, ready, settings};
use trapline_tests::parts;

/// Long enough for Xen on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Boots with `fault`, if Xen can be had.
fn booted(fault: Fault) -> Option<Booted> {
    let settings = settings(&parts());
    let environment = ready(EnvironmentId::SIM_XEN_DOM0, &settings)?;
    let mut plan = planned(EnvironmentId::SIM_XEN_DOM0, Op::Cpuid);
    plan.job.fault = Some(fault);
    Some(observe(environment.as_ref(), &settings, &plan, PATIENCE).unwrap())
}

#[test]
fn panic_message_of_dom0_is_reported() {
    let Some(booted) = booted(Fault::Panic) else {
        return;
    };
    match booted.error {
        Some(EnvError::Panicked { message }) => assert!(!message.is_empty()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn crash_of_dom0_is_reported_by_xen() {
    let Some(booted) = booted(Fault::Triple) else {
        return;
    };
    let reason = booted.error.expect("boot failed").to_string();
    assert!(reason.contains("(XEN) "), "{reason}");
}

#[test]
fn frame_like_bytes_lose_no_frame() {
    let Some(booted) = booted(Fault::Garble) else {
        return;
    };
    assert!(booted.error.is_none(), "{:?}", booted.error);
    let operations = &booted.observation.operations;
    assert_eq!(operations.len(), 1);
    assert_eq!(failure(&operations[0].outcome), None);
}
