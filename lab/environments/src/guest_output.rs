//! Decodes the output of a guest process.

use crate::environment::{Progress, SampleSink};
use crate::launch::BootClock;
use crate::start_barrier::StartBarrier;
use std::time::{Duration, Instant};
use trapline_abi::{Job, Op};
use trapline_host::custom_vmm::{CustomGuest, EXIT_GRACE, FIRST_RECORD_TIMEOUT};
use trapline_host::process::OutputHandler;
use trapline_host::Error;
use trapline_protocol::{EndState, GuestDecoder, NoProbe, Usage, UsageProbe};

/// Warning of Linux (`calibrate_APIC_clock`) about a timer that it does not use.
const NO_TIMER: &str = "disabling apic timer";

/// Passes the output of a process to a [`GuestDecoder`].
pub struct GuestOutput<'a> {
    decoder: GuestDecoder,
    clock: BootClock,
    operation: Option<Op>,
    custom: Option<&'a CustomGuest>,
    job: Job,
    /// Its kernel has printed [`NO_TIMER`].
    has_no_timer: bool,
    /// Arrival of the guest's last record.
    completed: Option<Instant>,
    /// Barrier at which the guest has not arrived.
    barrier: Option<&'a StartBarrier>,
    out: &'a mut dyn SampleSink,
}

impl<'a> GuestOutput<'a> {
    /// Returns a handler for a guest that runs `job`.
    pub fn new(
        job: &Job,
        clock: BootClock,
        custom: Option<&'a CustomGuest>,
        out: &'a mut dyn SampleSink,
    ) -> Self {
        let decoder = match custom {
            Some(_) => GuestDecoder::until_end_record(job),
            None => GuestDecoder::new(job),
        };
        Self {
            decoder: match clock {
                BootClock::Guest => decoder,
                BootClock::Host | BootClock::Machine => decoder.with_shared_clock(),
            },
            clock,
            operation: None,
            custom,
            job: *job,
            has_no_timer: false,
            completed: None,
            barrier: None,
            out,
        }
    }

    /// Sets the barrier at which the guest waits for others.
    pub fn with_barrier(self, barrier: Option<&'a StartBarrier>) -> Self {
        Self { barrier, ..self }
    }

    /// Returns the decoder with all records so far. Other guests do not wait for this one any more.
    pub fn into_decoder(mut self) -> GuestDecoder {
        self.arrive();
        self.decoder
    }

    fn arrive(&mut self) {
        if let Some(barrier) = self.barrier.take() {
            barrier.arrive();
        }
    }

    fn note_last_record(&mut self) {
        if *self.decoder.end() != EndState::Incomplete {
            self.completed.get_or_insert_with(Instant::now);
        }
    }
}

/// Usage without exits: the number of exits per byte of a custom VMM's serial port is unknown, so they
/// cannot be subtracted.
struct WithoutExits<'a>(&'a mut dyn UsageProbe);

impl UsageProbe for WithoutExits<'_> {
    fn sample(&mut self) -> Usage {
        Usage {
            exits: None,
            ..self.0.sample()
        }
    }

    fn guest_started(&mut self) {
        self.0.guest_started();
    }
}

impl OutputHandler for GuestOutput<'_> {
    fn console(&mut self, bytes: &[u8], at: u64, probe: &mut dyn UsageProbe) {
        if self.custom.is_some() {
            let mut probe = WithoutExits(probe);
            self.decoder.console(bytes, Some(at), &mut probe);
            self.note_last_record();
        } else if self.clock == BootClock::Machine {
            // Arrival times are unrelated to the machine's clock.
            self.decoder.console(bytes, None, &mut NoProbe);
        } else {
            self.decoder.console(bytes, Some(at), probe);
        }
        if self.decoder.is_ready() {
            self.arrive();
        }
        if let Some(op) = self.decoder.current_operation() {
            if self.operation.replace(op) != Some(op) {
                self.out.progress(Progress::Operation(op.into()));
            }
        }
        for window in self.decoder.take_windows() {
            self.out.progress(Progress::Window(window));
        }
    }

    fn errors(&mut self, bytes: &[u8]) {
        self.decoder.errors(bytes);
        self.has_no_timer |= self.decoder.last_output().contains(NO_TIMER);
    }

    fn events(&mut self, bytes: &[u8]) {
        self.decoder.events(bytes);
    }

    fn check(&mut self) -> Result<(), Error> {
        if let Some(theirs) = self.decoder.version_mismatch() {
            return Err(Error::Version { theirs });
        }
        if self.decoder.flooded() {
            let output = self.last_output();
            return Err(Error::Flooded { output });
        }
        if self.has_no_timer {
            return Err(Error::NoTimer);
        }
        Ok(())
    }

    fn is_complete(&mut self, since: Duration) -> Result<bool, Error> {
        let Some(custom) = self.custom else {
            return Ok(false);
        };
        if !self.decoder.has_started() && since >= FIRST_RECORD_TIMEOUT {
            // Bytes that look like the start of a frame may hide records behind them.
            self.decoder.close();
            self.note_last_record();
            if !self.decoder.has_started() {
                return Err(custom.no_records(&self.job, None, self.last_output()));
            }
        }
        let is_over = |at: Instant| at.elapsed() >= EXIT_GRACE;
        Ok(self.decoder.has_restarted() || self.completed.is_some_and(is_over))
    }

    fn last_output(&self) -> String {
        self.decoder.last_output()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_guest::Ignored;

    #[test]
    fn kernel_without_a_timer_is_reported_at_once() {
        let mut sink = Ignored;
        let mut output = GuestOutput::new(&Job::EMPTY, BootClock::Guest, None, &mut sink);
        for (bytes, fails) in [
            ("[    0.639616] APIC frequency too slow, disab", false),
            ("ling apic timer\n", true),
        ] {
            output.errors(bytes.as_bytes());
            let is_reported = matches!(output.check(), Err(Error::NoTimer));
            assert_eq!(is_reported, fails, "{bytes}");
        }
    }
}
