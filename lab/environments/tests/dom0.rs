//! The image as Xen's first domain when it misbehaves.

mod common;

use common::{failure, observe, parts, planned, ready, settings};
use std::time::Duration;
use trapline_abi::job::Fault;
use trapline_abi::Op;
use trapline_environments::{Booted, EnvError};
use trapline_model::EnvironmentId;

/// Long enough for Xen on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Boots with `fault`, if Xen can be had.
fn booted(fault: Fault) -> Option<Booted> {
    let settings = settings(&parts());
    let environment = ready(EnvironmentId::SimXenDom0, &settings)?;
    let mut plan = planned(EnvironmentId::SimXenDom0, Op::Cpuid.bit());
    plan.job.fault = Some(fault);
    Some(observe(environment.as_ref(), &settings, &plan, PATIENCE).unwrap())
}

#[test]
fn its_last_words_are_heard() {
    let Some(booted) = booted(Fault::Panic) else {
        return;
    };
    match booted.trouble {
        Some(EnvError::Panicked { message }) => assert!(!message.is_empty()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn xen_tells_of_its_fall() {
    let Some(booted) = booted(Fault::Triple) else {
        return;
    };
    let told = booted.trouble.expect("it did not do its job").to_string();
    assert!(told.contains("(XEN) "), "{told}");
}

#[test]
fn what_looks_like_frames_costs_none() {
    let Some(booted) = booted(Fault::Garble) else {
        return;
    };
    assert!(booted.trouble.is_none(), "{:?}", booted.trouble);
    let operations = &booted.observation.operations;
    assert_eq!(operations.len(), 1);
    assert_eq!(failure(&operations[0].outcome), None);
}
