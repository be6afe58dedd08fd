use super::*;
use std::vec::Vec;

/// Registers that no instruction of these tests uses.
struct NoRegisters;

impl GuestRegisters for NoRegisters {
    fn get(&self, _: u8) -> u64 {
        0
    }
    fn set(&mut self, _: u8, _: u8, _: u64) {}
    fn instruction(&self) -> u64 {
        0
    }
    fn set_instruction(&mut self, _: u64) {
        unreachable!("the caller has moved on");
    }
    fn flags(&self) -> u64 {
        0
    }
    fn set_flags(&mut self, _: u64) {}
    fn segment_bases(&self) -> [u64; 2] {
        [0; 2]
    }
}

/// Devices everywhere, in pages below `DENIED`. Records translations.
#[derive(Default)]
struct Devices(Vec<(u64, Access)>);

const DENIED: u64 = 0x3000;

impl Bus for Devices {
    type Fault = u64;

    fn translate(&mut self, address: u64, access: Access) -> Result<u64, u64> {
        self.0.push((address, access));
        if address < DENIED {
            Ok(address)
        } else {
            Err(address)
        }
    }

    fn read(&mut self, _: u64, _: &mut [u8]) -> bool {
        false
    }

    fn write(&mut self, _: u64, _: &[u8]) -> bool {
        false
    }
}

fn operand(address: u64, size: u8, access: Access, form: Form) -> Operand {
    Operand {
        address,
        size,
        access,
        form,
    }
}

#[test]
fn instruction_of_the_caller_gets_its_operand_and_writes_it() {
    let operand = operand(0x1ff4, 16, Access::ReadWrite, Form::Other);
    assert!(Execution::new(&operand, 4, &NoRegisters).is_none());
    let mut execution = Execution::by_caller(&operand, 4);
    let mut bus = Devices::default();
    let mut reads = Vec::new();
    while execution.foreign().is_none() {
        let exit = execution.run(&mut bus, &mut NoRegisters).unwrap();
        let Some(Exit::Read { at, size }) = exit else {
            assert_eq!(exit, None);
            continue;
        };
        reads.push((at, size));
        execution.answer(0x1111_1111_1111_1111 * reads.len() as u64);
    }
    let parts = [(0x1ff4, 8), (0x1ffc, 4), (0x2000, 4)];
    assert_eq!(reads, parts.map(|(at, size)| (IoAddr::Mmio(at), size)));
    let expected = ForeignOperand {
        address: 0x1ff4,
        size: 16,
        value: 0x3333_3333_2222_2222_1111_1111_1111_1111,
    };
    assert_eq!(execution.foreign(), Some(expected));
    execution.executed(0x4444_4444_5555_5555_6666_6666_6666_6666);
    let mut writes = Vec::new();
    while !execution.is_finished() {
        let exit = execution.run(&mut bus, &mut NoRegisters).unwrap();
        if let Some(Exit::Write { data, size, .. }) = exit {
            writes.push((data, size));
        }
    }
    let expected = [
        (0x6666_6666_6666_6666, 8),
        (0x5555_5555, 4),
        (0x4444_4444, 4),
    ];
    assert_eq!(writes, expected);
}

#[test]
fn nothing_is_written_if_a_part_cannot_be() {
    let denied = operand(DENIED - 4, 8, Access::Write, Form::Store(1));
    let mut execution = Execution::new(&denied, 4, &NoRegisters).unwrap();
    let result = execution.run(&mut Devices::default(), &mut NoRegisters);
    assert_eq!(result, Err(DENIED + 3));
}

#[test]
fn store_in_a_page_is_translated_once() {
    let store = operand(0x1000, 8, Access::Write, Form::Store(1));
    let mut execution = Execution::by_caller(&store, 4);
    let mut bus = Devices::default();
    assert_eq!(execution.run(&mut bus, &mut NoRegisters), Ok(None));
    execution.executed(2);
    let exit = execution.run(&mut bus, &mut NoRegisters);
    assert!(matches!(exit, Ok(Some(Exit::Write { data: 2, .. }))));
    assert!(execution.is_finished());
    assert_eq!(bus.0, [(0x1000, Access::Write)]);
}
