use super::*;
use crate::address_space::{KERNEL, XEN};
use crate::insn::RDTSC;

const NOP: &[u8] = &[0x90];
const JMP: &[u8] = &[0xeb, 0x00];
const STORE: &[u8] = &[0x88, 0x07];
const HLT: &[u8] = &[0xf4];
const IRET: &[u8] = &[0x48, 0xcf];
const OUT: &[u8] = &[0xee];

const HOST_IRQ: u64 = KERNEL + 0x100;
const TIMER_EXPIRED: u64 = KERNEL + 0x200;
const IRQ_PENDED: u64 = KERNEL + 0x300;
const EXIT_TARGET: u64 = KERNEL + 0x400;
const GUEST_HANDLER: u64 = 0x11_0000;

/// A machine that executes translation blocks.
struct Machine {
    tracer: IrqTracer,
    executed: &'static AtomicU64,
    traced: Vec<IrqTimestamps>,
}

impl Machine {
    fn new() -> Self {
        let tracer = IrqTracer::new();
        tracer.set_path(IrqPath {
            host_irq: HOST_IRQ,
            timer_expired: TIMER_EXPIRED,
            irq_pended: IRQ_PENDED,
            guest_handler: GUEST_HANDLER,
        });
        let executed: &AtomicU64 = Box::leak(Box::default());
        tracer.set_executed(executed);
        Self {
            tracer,
            executed,
            traced: Vec::new(),
        }
    }

    /// Executes the first `executed` instructions of a block, as QEMU does.
    fn run_part(&mut self, address: u64, insns: &[&[u8]], executed: usize) {
        let mut next = address;
        let translated = insns.iter().enumerate().map(|(index, bytes)| {
            let insn = Insn {
                address: next,
                physical: next as usize,
                bytes,
                ends_block: index + 1 == insns.len(),
                page: None,
                counted_ahead: 0,
            };
            next += bytes.len() as u64;
            insn
        });
        let block = self.tracer.block(translated);
        self.tracer.begin_block(block);
        for index in 0..executed {
            let point = block.trace_point(index);
            self.traced
                .extend(point.and_then(|point| self.tracer.trace(point)));
            self.executed.fetch_add(1, Relaxed);
        }
    }

    fn run(&mut self, address: u64, insns: &[&[u8]]) {
        self.run_part(address, insns, insns.len());
    }

    fn enter_guest(&mut self) {
        self.run(EXIT_TARGET - 3, &[&VMRUN]);
    }

    /// Executes the handler, whose second instruction reads the clock.
    fn handle(&mut self) {
        self.run(GUEST_HANDLER, &[NOP, &RDTSC]);
    }
}

fn timestamps(woke: u64, marked: u64, guest_entry: u64) -> IrqTimestamps {
    IrqTimestamps {
        woke: Some(woke),
        marked: Some(marked),
        guest_entry: Some(guest_entry),
    }
}

#[test]
fn interrupt_is_traced_from_host_to_guest_handler() {
    let mut machine = Machine::new();
    for _ in 0..2 {
        machine.run(HOST_IRQ, &[NOP, JMP]);
        machine.run(TIMER_EXPIRED, &[JMP]);
        machine.run(IRQ_PENDED, &[NOP, NOP, JMP]);
        machine.enter_guest();
        machine.handle();
        machine.run(EXIT_TARGET, &[JMP]);
    }
    assert_eq!(machine.traced, [timestamps(9, 6, 2); 2]);
}

#[test]
fn unretired_instructions_are_subtracted() {
    let mut machine = Machine::new();
    machine.run(HOST_IRQ, &[JMP]);
    machine.run(TIMER_EXPIRED, &[JMP]);
    // A data fault of the kernel within a block: the store is retried.
    machine.run_part(IRQ_PENDED, &[NOP, STORE, JMP], 2);
    machine.run(KERNEL, &[NOP, IRET]);
    machine.run(IRQ_PENDED + 1, &[STORE, JMP]);
    // An intercepted instruction of the guest.
    machine.enter_guest();
    machine.run(0x2000, &[NOP, OUT]);
    machine.run(EXIT_TARGET, &[JMP]);
    machine.enter_guest();
    machine.handle();
    // 15 instructions began up to the clock reading; two of them did not retire.
    assert_eq!(machine.traced, [timestamps(13, 11, 2)]);
}

#[test]
fn host_interrupts_without_expired_guest_timer_are_ignored() {
    let mut machine = Machine::new();
    machine.run(HOST_IRQ, &[NOP; 50]);
    machine.run(HOST_IRQ, &[JMP]);
    machine.run(TIMER_EXPIRED, &[JMP]);
    machine.run(HOST_IRQ, &[JMP]);
    machine.run(IRQ_PENDED, &[JMP]);
    machine.run(IRQ_PENDED, &[JMP]);
    machine.enter_guest();
    machine.handle();
    assert_eq!(machine.traced, [timestamps(8, 5, 2)]);
}

#[test]
fn last_expired_timer_counts() {
    let mut machine = Machine::new();
    for _ in 0..2 {
        machine.run(HOST_IRQ, &[JMP]);
        machine.run(TIMER_EXPIRED, &[JMP]);
        machine.run(IRQ_PENDED, &[JMP]);
    }
    machine.enter_guest();
    machine.handle();
    assert_eq!(machine.traced, [timestamps(6, 4, 2)]);
}

#[test]
fn halt_discards_timestamps() {
    let mut machine = Machine::new();
    machine.run(HOST_IRQ, &[JMP]);
    machine.run(TIMER_EXPIRED, &[JMP]);
    machine.run(KERNEL, &[HLT]);
    machine.run(IRQ_PENDED, &[JMP]);
    machine.enter_guest();
    machine.handle();
    assert_eq!(machine.traced, [IrqTimestamps::default()]);
}

#[test]
fn only_the_guest_handler_ends_a_trace() {
    let mut machine = Machine::new();
    machine.run(0x5000, &[&RDTSC]);
    machine.run(GUEST_HANDLER, &[NOP, &RDTSC]);
    machine.enter_guest();
    machine.run(0x5000, &[&RDTSC]);
    // Guests may use the addresses of their host.
    machine.run(HOST_IRQ, &[JMP]);
    machine.run(TIMER_EXPIRED, &[JMP]);
    assert_eq!(machine.traced, []);
    machine.handle();
    assert_eq!(machine.traced, [IrqTimestamps::default()]);
}

#[test]
fn on_xen_only_the_hypervisor_is_on_the_path() {
    let mut machine = Machine::new();
    machine.tracer.set_layout(AddressLayout::Xen);
    machine.run(HOST_IRQ, &[JMP]);
    machine.run(TIMER_EXPIRED, &[JMP]);
    machine.run(XEN.start, &[&VMRUN]);
    machine.handle();
    assert_eq!(machine.traced, [IrqTimestamps::default()]);
}
