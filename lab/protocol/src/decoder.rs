//! Decodes the streams of one guest.

use crate::decoded::Decoded;
use crate::{EndState, GuestReport, NoProbe, UsageProbe, Window};
use trapline_abi::job::WaitMode;
use trapline_abi::{Decoder, Item, Job, Op, Record, VERSION};
use trapline_model::irq;

/// Default limit of all streams of one guest together, in bytes, see [`byte_limit`].
pub const MAX_BYTES: u64 = 64 << 20;

/// Upper bound of the bytes per interrupt in a record.
const INTERRUPT_BYTES: u64 = 64;

/// Returns the number of bytes above which a guest with this job counts as flooding.
/// A job that floods the console on purpose is limited by time only; its output is not kept.
pub fn byte_limit(job: &Job) -> u64 {
    let timers = (job.run & irq::operations()).len() as u64;
    match (timers, job.wait_mode) {
        (1.., WaitMode::Flood) => u64::MAX,
        _ => MAX_BYTES + timers * u64::from(job.expiries) * INTERRUPT_BYTES,
    }
}

/// Decodes the console, event and error streams of one guest.
pub struct GuestDecoder {
    console: Decoder,
    events: Decoder,
    /// Ignore records after the first Done or Panic, and those of a second start.
    stop_at_end: bool,
    /// Number of starts of the guest.
    starts: u32,
    byte_limit: u64,
    decoded: Decoded,
}

impl GuestDecoder {
    /// Returns a decoder for a guest that runs `job`.
    pub fn new(job: &Job) -> Self {
        Self {
            console: Decoder::new(),
            events: Decoder::new(),
            stop_at_end: false,
            starts: 0,
            byte_limit: byte_limit(job),
            decoded: Decoded::new(job),
        }
    }

    /// Returns a decoder that ignores everything after the guest's last record, and after its second first one: a custom
    /// VMM may print anything then, or start the guest again.
    pub fn until_end_record(job: &Job) -> Self {
        Self {
            stop_at_end: true,
            ..Self::new(job)
        }
    }

    /// Declares that guest and host read the same clock.
    pub fn with_shared_clock(mut self) -> Self {
        self.decoded.shared_clock = true;
        self
    }

    /// Decodes console output that arrived at `at` ticks of the host's clock, if known.
    pub fn console(&mut self, bytes: &[u8], at: Option<u64>, probe: &mut dyn UsageProbe) {
        self.decoded.bytes += bytes.len() as u64;
        self.decoded.console_bytes += bytes.len() as u64;
        self.console_items(at, probe, |console, emit| {
            console.feed(bytes, &mut |item| emit(item))
        });
    }

    /// Decodes events of the VMM.
    pub fn events(&mut self, bytes: &[u8]) {
        let Self {
            events, decoded, ..
        } = self;
        decoded.bytes += bytes.len() as u64;
        events.feed(bytes, &mut |item| decoded.event(item));
    }

    /// Appends standard error of the VMM.
    pub fn errors(&mut self, bytes: &[u8]) {
        self.decoded.bytes += bytes.len() as u64;
        self.decoded.errors.extend(bytes);
    }

    /// Returns whether more than [`byte_limit`] arrived.
    pub fn flooded(&self) -> bool {
        self.decoded.bytes > self.byte_limit
    }

    /// Returns the guest's protocol version if it differs from ours.
    pub fn version_mismatch(&self) -> Option<u16> {
        let version = self.decoded.hello?.version;
        (version != VERSION).then_some(version)
    }

    /// Returns the operation whose records are arriving.
    pub fn current_operation(&self) -> Option<Op> {
        self.decoded.current.as_ref().map(|current| current.op)
    }

    /// Returns windows of interrupts completed since the last call.
    pub fn take_windows(&mut self) -> Vec<Window> {
        std::mem::take(&mut self.decoded.windows)
    }

    /// Returns whether a Hello, Done or Panic record arrived.
    pub fn has_started(&self) -> bool {
        self.decoded.hello.is_some() || self.decoded.end != EndState::Incomplete
    }

    /// Returns whether the guest was started again.
    pub fn has_restarted(&self) -> bool {
        self.starts > 1
    }

    /// Returns whether the guest has reported that it waits for the lab.
    pub fn is_ready(&self) -> bool {
        self.decoded.ready
    }

    /// Returns the state of the stream so far.
    pub fn end(&self) -> &EndState {
        &self.decoded.end
    }

    /// Returns the last lines of log and standard error, for error messages.
    pub fn last_output(&self) -> String {
        let decoded = &self.decoded;
        let lines = [decoded.log.last_lines(3), decoded.errors.last_lines(3)];
        let lines: Vec<_> = lines.into_iter().filter(|text| !text.is_empty()).collect();
        lines.join("\n")
    }

    /// Decodes the bytes held back as a possible start of a frame; they may contain whole frames.
    pub fn close(&mut self) {
        self.console_items(None, &mut NoProbe, |console, emit| {
            console.finish(&mut |item| emit(item))
        });
        let decoded = &mut self.decoded;
        self.events.finish(&mut |item| decoded.event(item));
    }

    /// Decodes the items that `decode` finds on the console, as long as they count.
    fn console_items(
        &mut self,
        at: Option<u64>,
        probe: &mut dyn UsageProbe,
        decode: impl FnOnce(&mut Decoder, &mut dyn FnMut(Item<'_>)),
    ) {
        let Self {
            console,
            decoded,
            stop_at_end,
            starts,
            ..
        } = self;
        decode(console, &mut |item| {
            *starts += u32::from(is_start(&item));
            if !(*stop_at_end && (decoded.end != EndState::Incomplete || *starts > 1)) {
                decoded.item(item, at, probe);
            }
        });
    }

    /// Closes the streams and returns the report. Operations without an outcome fail with the
    /// reason `unreached`.
    pub fn finish(mut self, unreached: &str) -> GuestReport {
        self.close();
        self.decoded.finish(unreached)
    }
}

fn is_start(item: &Item<'_>) -> bool {
    matches!(item, Item::Record(Record::Hello { .. }, _))
}
