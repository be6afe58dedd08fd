//! The run loop of a vCPU, for image and Linux guests.
//!
//! A [`Platform`] gives the loop access to the devices: exclusively for a VM with one vCPU, through a lock otherwise.
//! All calls are dispatched statically.

use crate::devices::{Effect, IoBus, Shell};
use crate::exits::ExitCounters;
use crate::spaces;
use crate::StopReason;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::DerefMut;
use trapline_abi::frame::{frame_length, HEADER, MAX_FRAME};
use trapline_abi::platform::HYPERCALL_REFUSED;
use trapline_interface::{Activity, Entry, Error, Exit, Gpa, IoAddr, Region, Vcpu};

/// The VM around a vCPU.
pub trait Platform {
    /// The program around the monitor.
    type Shell: Shell;

    /// Returns the devices shared by all vCPUs, locked if there are several.
    fn devices(&mut self) -> impl DerefMut<Target = Devices<Self::Shell>>;

    /// Reads a device with its own lock; `None` if no such device has the address.
    #[inline(always)]
    fn read_mmio(&mut self, _address: u64, _size: u8) -> Option<u64> {
        None
    }

    /// Writes a device with its own lock; `None` if no such device has the address.
    #[inline(always)]
    fn write_mmio(&mut self, _address: u64, _size: u8, _value: u64) -> Option<()> {
        None
    }

    /// Waits while the VM is paused.
    fn wait_while_paused(&mut self) {}
}

/// Devices shared by all vCPUs of a VM.
#[derive(Debug)]
pub struct Devices<S> {
    /// Address decoding.
    pub io: IoBus,
    /// The program around the monitor.
    pub shell: S,
    /// Guest memory, from address 0.
    pub memory: Arc<Region>,
    /// Address of the guest's interrupt count (see [`trapline_abi::platform::IDLE`]).
    pub interrupts: Option<Gpa>,
}

/// Exclusive devices of a VM with one vCPU.
impl<S: Shell> Platform for Devices<S> {
    type Shell = S;

    #[inline(always)]
    fn devices(&mut self) -> impl DerefMut<Target = Devices<S>> {
        self
    }
}

/// Runs a vCPU up to its first instruction.
///
/// # Errors
/// The hypervisor refuses.
#[inline(never)]
pub fn start(vcpu: &mut impl Vcpu) -> Result<(), Box<Error>> {
    let first = vcpu.run(Entry::Resume)?;
    debug_assert_eq!(first, Exit::Started);
    Ok(())
}

/// Runs a vCPU until the VM stops.
///
/// # Errors
/// The hypervisor refuses.
pub fn run<V: Vcpu, P: Platform>(
    vcpu: &mut V,
    platform: &mut P,
    exits: &ExitCounters,
) -> Result<StopReason, Box<Error>> {
    let mut entry = Entry::Resume;
    loop {
        // One match on the result itself: any value built between the hypervisor and the device costs instructions at
        // each exit.
        entry = match vcpu.run(entry) {
            Ok(Exit::Write {
                at: IoAddr::Port(port),
                size,
                data,
            }) => {
                exits.port.increment();
                let mut devices = platform.devices();
                let Devices { io, shell, .. } = &mut *devices;
                match io.write_port(port, size, data as u32, shell) {
                    Effect::None => {}
                    effect => {
                        if let Some(reason) = devices.apply(effect, vcpu, exits)? {
                            return Ok(reason);
                        }
                    }
                }
                Entry::Resume
            }
            Ok(Exit::Read {
                at: IoAddr::Port(port),
                size,
            }) => {
                exits.port.increment();
                let mut devices = platform.devices();
                let Devices { io, shell, .. } = &mut *devices;
                let exit_count = || exit_count(vcpu, exits);
                Entry::Answer(io.read_port(port, size, shell, exit_count).into())
            }
            Ok(Exit::Write {
                at: IoAddr::Mmio(address),
                size,
                data,
            }) => {
                exits.mmio.increment();
                if platform.write_mmio(address, size, data).is_none() {
                    platform.devices().io.write_mmio(address, size, data);
                }
                Entry::Resume
            }
            Ok(Exit::Read {
                at: IoAddr::Mmio(address),
                size,
            }) => {
                exits.mmio.increment();
                Entry::Answer(match platform.read_mmio(address, size) {
                    Some(value) => value,
                    None => platform.devices().io.read_mmio(address, size),
                })
            }
            Ok(exit) => match other_exit(exit, platform, exits) {
                Ok(entry) => entry,
                Err(reason) => return Ok(reason),
            },
            Err(error) => return Err(error),
        }
    }
}

/// Handles an exit that is not an access to a device. Returns the next entry, or the reason to stop.
#[inline(always)]
fn other_exit(
    exit: Exit,
    platform: &mut impl Platform,
    exits: &ExitCounters,
) -> Result<Entry, StopReason> {
    match exit {
        Exit::Kicked => match kicked(platform, exits) {
            None => Ok(Entry::Resume),
            Some(reason) => Err(reason),
        },
        Exit::Hypercall { .. } => {
            // The hypervisor handles all known hypercalls.
            exits.hypercall.increment();
            Ok(Entry::Answer(HYPERCALL_REFUSED))
        }
        Exit::Halted => {
            exits.halt.increment();
            Err(StopReason::Halted)
        }
        Exit::Stopped(stop) => {
            exits.other.increment();
            Err(StopReason::Stopped(stop))
        }
        Exit::Started | Exit::Write { .. } | Exit::Read { .. } => Ok(Entry::Resume),
    }
}

/// Returns the number of guest exits: the hypervisor's count, or the VMM's.
fn exit_count(vcpu: &mut impl Vcpu, exits: &ExitCounters) -> u64 {
    let stats = vcpu.stats();
    stats
        .kernel_exits
        .unwrap_or_else(|| exits.counts().all() - stats.string_elements)
}

/// Handles a kick: the VM stops, pauses, or continues.
#[cold]
#[inline(never)]
fn kicked(platform: &mut impl Platform, exits: &ExitCounters) -> Option<StopReason> {
    exits.other.increment();
    let before = platform.devices().shell.stop_reason();
    before.or_else(|| {
        platform.wait_while_paused();
        platform.devices().shell.stop_reason()
    })
}

impl<S: Shell> Devices<S> {
    /// Applies the effect of a port write.
    #[inline(never)]
    fn apply(
        &mut self,
        effect: Effect,
        vcpu: &mut impl Vcpu,
        exits: &ExitCounters,
    ) -> Result<Option<StopReason>, Box<Error>> {
        match effect {
            Effect::None => {}
            Effect::Exit(value) => return Ok(Some(StopReason::from_exit_port(value))),
            Effect::PowerOff => return Ok(Some(StopReason::Done)),
            Effect::Reset => return Ok(Some(StopReason::Reset)),
            Effect::Idle(seen) => {
                self.shell.flush();
                exits.halt.increment();
                let count = self.interrupts.and_then(|at| self.memory.load32(at.0));
                if count == Some(seen) {
                    vcpu.set_state(&Activity::Halted.into())?;
                }
            }
            Effect::Frame(address) => self.write_frame(address.into()),
            Effect::Space(request) => spaces::perform(vcpu, &self.memory, request.into())?,
            Effect::SetTicker(page) => self.shell.set_ticker(page.into()),
            Effect::Hotplug(request) => {
                let result = self.shell.hotplug(request);
                self.io.hotplug_done(request, result);
            }
        }
        Ok(None)
    }

    /// Writes the frame at `address` of guest memory to the console. Its length is bounded; its contents are checked by
    /// the reader.
    fn write_frame(&mut self, address: u64) {
        let mut header = [0; HEADER];
        let mut frame = [0; MAX_FRAME];
        let found = self.memory.read(address, &mut header).ok();
        let Some(length) = found.and_then(|()| frame_length(&header)) else {
            return;
        };
        if self.memory.read(address, &mut frame[..length]).is_ok() {
            self.shell.print_all(&frame[..length]);
        }
    }
}
