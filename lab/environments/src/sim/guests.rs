//! Guests on the Linux of a simulated machine.

use crate::environment::{Progress, SampleSink};
use crate::launch::{ClockOffset, FinishedLaunch};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;
use trapline_abi::record::Channel;
use trapline_abi::Job;
use trapline_host::custom_vmm::CustomGuest;
use trapline_host::exit_status::ExitCodes;
use trapline_host::Error;
use trapline_protocol::{byte_limit, EndState, GuestDecoder, NoProbe, MAX_BYTES, NOT_REPORTED};
use trapline_sim::listener::ProgramObserver;
use trapline_sim::script::{timeout, TIMEOUT};

/// Properties of the guests of a machine.
#[derive(Clone, Debug)]
pub struct GuestKind {
    /// Exit statuses of the program that runs them.
    pub exit_codes: ExitCodes,
    /// Relation of their clock to the machine's.
    pub offset: ClockOffset,
    /// Name of the program that runs them.
    pub program: &'static str,
    /// The custom VMM that runs them, if any.
    pub custom: Option<CustomGuest>,
}

impl GuestKind {
    /// Guests of `trapline-vmm`.
    pub const TRAPLINE_VMM: Self = Self::new("trapline-vmm", ExitCodes::VMM, ClockOffset::Unknown);
    /// Guests of QEMU.
    pub const QEMU: Self = Self::new("qemu-system-x86_64", ExitCodes::QEMU, ClockOffset::Unknown);

    /// Returns guests of `program`, which is no custom VMM.
    pub const fn new(program: &'static str, exit_codes: ExitCodes, offset: ClockOffset) -> Self {
        Self {
            exit_codes,
            offset,
            program,
            custom: None,
        }
    }
}

/// Decodes guests that run jobs.
pub struct Guests<'a> {
    kind: GuestKind,
    jobs: &'a [Job],
    number: usize,
    current: Option<(GuestDecoder, u64)>,
    out: &'a mut dyn SampleSink,
}

impl<'a> Guests<'a> {
    /// Returns guests that run `jobs` one after the other.
    pub fn new(kind: GuestKind, jobs: &'a [Job], out: &'a mut dyn SampleSink) -> Self {
        Self {
            kind,
            jobs,
            number: 0,
            current: None,
            out,
        }
    }

    fn finish_launch(&mut self, reaped: Option<u64>, outlived_guest: bool, unreached: &str) {
        if let Some((decoder, exec)) = self.current.take() {
            self.out.finished(FinishedLaunch {
                report: decoder.finish(unreached),
                exec,
                reaped: reaped.filter(|_| !outlived_guest),
                offset: self.kind.offset,
                own_memory: None,
                outlived_guest,
            });
        }
    }

    fn check_exit(&self, status: ExitStatus, at: u64) -> Result<(), Error> {
        let Some((decoder, exec)) = &self.current else {
            return Ok(());
        };
        let after = Duration::from_nanos(at.saturating_sub(*exec));
        let limit = self.job().map_or(TIMEOUT, timeout);
        if status.signal() == Some(libc::SIGKILL) && after >= limit {
            let output = decoder.last_output();
            return Err(Error::SimulatedTimeout { after, output });
        }
        if let Some(theirs) = decoder.version_mismatch() {
            return Err(Error::Version { theirs });
        }
        if let (Some(custom), Some(job)) = (&self.kind.custom, self.job()) {
            return custom.check_exit(job, status, decoder);
        }
        let GuestKind {
            program,
            exit_codes,
            ..
        } = self.kind;
        exit_codes.check(program, status, decoder)
    }

    /// Returns the job of the running guest.
    fn job(&self) -> Option<&Job> {
        self.jobs.get(self.number.checked_sub(1)?)
    }

    /// Returns whether the guest of a custom VMM is done.
    fn is_custom_done(&self) -> bool {
        let ending = self.current.as_ref().map(|(decoder, _)| decoder.end());
        self.kind.custom.is_some() && ending == Some(&EndState::Done)
    }
}

impl ProgramObserver for Guests<'_> {
    fn expected(&self) -> usize {
        self.jobs.len()
    }

    /// Twice the limit of a guest, because init wraps its output.
    fn byte_limit(&self) -> u64 {
        let largest = self.jobs.iter().map(byte_limit).max();
        largest.unwrap_or(MAX_BYTES).saturating_mul(2)
    }

    fn start(&mut self, exec: u64) {
        let (number, of) = (self.number, self.jobs.len());
        self.out.progress(Progress::Launch { number, of });
        let new = match self.kind.custom {
            Some(_) => GuestDecoder::until_end_record,
            None => GuestDecoder::new,
        };
        self.current = Some((new(&self.jobs[number]), exec));
        self.number += 1;
    }

    fn output(&mut self, channel: Channel, bytes: &[u8]) -> Result<(), Error> {
        let Some((decoder, _)) = &mut self.current else {
            return Ok(());
        };
        match channel {
            Channel::Console => {
                decoder.console(bytes, None, &mut NoProbe);
                for window in decoder.take_windows() {
                    self.out.progress(Progress::Window(window));
                }
            }
            Channel::Events => decoder.events(bytes),
            Channel::Errors => decoder.errors(bytes),
        }
        if decoder.flooded() {
            let output = decoder.last_output();
            return Err(Error::Flooded { output });
        }
        Ok(())
    }

    fn end(&mut self, status: ExitStatus, at: u64) -> Result<(), Error> {
        if let Some((decoder, _)) = &mut self.current {
            decoder.close();
        }
        let result = self.check_exit(status, at);
        let unreached = match &result {
            Ok(()) => NOT_REPORTED.to_owned(),
            Err(error) => error.with_remedy(),
        };
        let outlived_guest = self.is_custom_done() && status.signal() == Some(libc::SIGKILL);
        self.finish_launch(Some(at), outlived_guest, &unreached);
        result
    }

    fn abort(&mut self, reason: &str) {
        self.finish_launch(None, false, reason);
    }
}

#[cfg(test)]
mod tests;
