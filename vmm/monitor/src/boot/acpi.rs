//! What a machine tells an operating system about itself: ACPI tables (ACPI 6.5), of a
//! hardware-reduced platform (section 4.1), which has none of a PC's old parts
//! to be looked for - no timer chip, no fixed registers, no embedded controller.
//!
//! The tables come from a crate that makes nothing else; what they say is here.

use acpi_tables::aml::{
    Device, EISAName, Interrupt, Memory32Fixed, Method, Name, Notify, Package, Path,
    ResourceTemplate, Scope, IO, ONE, ZERO,
};
use acpi_tables::fadt::{FADTBuilder, Flags};
use acpi_tables::gas::{AccessSize, AddressSpace, GAS};
use acpi_tables::madt::{
    EnabledStatus, IoApic, LocalInterruptController, ProcessorLocalApic, MADT,
};
use acpi_tables::rsdp::Rsdp;
use acpi_tables::sdt::Sdt;
use acpi_tables::xsdt::XSDT;
use acpi_tables::Aml;
use trapline_abi::platform::{
    POWER_CONTROL, POWER_RESET, POWER_RESET_PORT, POWER_STATUS, SLEEP_OFF,
};

/// Where the tables begin: within the part of the firmware's area that every operating
/// system searches (section 5.2.5.1). The pointer to all others comes first.
pub const TABLES: u64 = 0xe_0000;

/// The first address behind them.
pub const TABLES_END: u64 = 0x10_0000;

/// What a machine has. Pins are those of its one I/O interrupt controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// CPUs, numbered from 0, as are their local interrupt controllers.
    pub cpus: u8,
    /// A serial port.
    pub serial: Option<SerialPort>,
    /// Transports of virtio devices (virtio 1.2, section 4.2).
    pub transports: Vec<Transport>,
    /// Where the power button interrupts, by an edge.
    pub button: u8,
}

/// A 16550 at its first port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SerialPort {
    /// The first of its eight ports.
    pub port: u16,
    /// Where it interrupts, by an edge.
    pub pin: u8,
}

/// The registers of a virtio device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Where they begin, below 4 GiB.
    pub at: u32,
    /// How many bytes they are.
    pub size: u32,
    /// Where it interrupts, by an edge.
    pub pin: u8,
}

/// Where a PC has its local interrupt controllers, and its I/O interrupt controller.
const LOCAL_APIC: u32 = 0xfee0_0000;
const IO_APIC: u32 = 0xfec0_0000;

/// What is not there, of what a PC has (table 5.11): nobody should look for it.
const NO_VGA: u16 = 1 << 2;
const NO_CLOCK: u16 = 1 << 5;

const OEM: [u8; 6] = *b"TRAPLN";
const OEM_TABLE: [u8; 8] = *b"TRAPLINE";
const OEM_REVISION: u32 = 1;
const DSDT_REVISION: u8 = 2;

/// The bytes for [`TABLES`]: the pointer, then what it leads to.
pub fn tables(hardware: &Hardware) -> Vec<u8> {
    let mut room = Room {
        bytes: vec![0; Rsdp::len().next_multiple_of(ALIGNMENT)],
    };
    let dsdt = room.put(&definitions(hardware));
    let fixed = room.put(&fixed(dsdt));
    let interrupts = room.put(&interrupts(hardware.cpus));
    let mut list = XSDT::new(OEM, OEM_TABLE, OEM_REVISION);
    list.add_entry(fixed);
    list.add_entry(interrupts);
    let list = room.put(&list);
    let mut pointer = Vec::new();
    Rsdp::new(OEM, list).to_aml_bytes(&mut pointer);
    room.bytes[..pointer.len()].copy_from_slice(&pointer);
    room.bytes
}

const ALIGNMENT: usize = 16;

/// Tables behind each other.
struct Room {
    bytes: Vec<u8>,
}

impl Room {
    /// Where the table is for the guest.
    fn put(&mut self, table: &dyn Aml) -> u64 {
        let at = TABLES + self.bytes.len() as u64;
        table.to_aml_bytes(&mut self.bytes);
        let aligned = self.bytes.len().next_multiple_of(ALIGNMENT);
        self.bytes.resize(aligned, 0);
        at
    }
}

fn fixed(dsdt: u64) -> impl Aml {
    let port = |port: u16| {
        let address = port.into();
        GAS::new(
            AddressSpace::SystemIo,
            8,
            0,
            AccessSize::ByteAccess,
            address,
        )
    };
    let mut table = FADTBuilder::new(OEM, OEM_TABLE, OEM_REVISION)
        .dsdt_64(dsdt)
        .flag(Flags::HwReducedAcpi)
        .flag(Flags::ResetRegSup)
        .flag(Flags::PwrButton)
        .flag(Flags::SlpButton)
        .flag(Flags::Headless);
    table.iapc_boot_arch = (NO_VGA | NO_CLOCK).into();
    table.reset_reg = port(POWER_RESET_PORT);
    table.reset_value = POWER_RESET;
    table.sleep_control_reg = port(POWER_CONTROL);
    table.sleep_status_reg = port(POWER_STATUS);
    table.hypervisor_vendor_identity = u64::from_le_bytes(OEM_TABLE).into();
    table.finalize()
}

fn interrupts(cpus: u8) -> impl Aml {
    let local = LocalInterruptController::Address(LOCAL_APIC);
    let mut table = MADT::new(OEM, OEM_TABLE, OEM_REVISION, local);
    for cpu in 0..cpus {
        table.add_structure(ProcessorLocalApic::new(cpu, cpu, EnabledStatus::Enabled));
    }
    table.add_structure(IoApic::new(0, IO_APIC, 0));
    table
}

/// The differentiated description: devices that nothing else would tell of.
fn definitions(hardware: &Hardware) -> Sdt {
    const HEADER: u32 = 36;
    let mut table = Sdt::new(
        *b"DSDT",
        HEADER,
        DSDT_REVISION,
        OEM,
        OEM_TABLE,
        OEM_REVISION,
    );
    let mut code = Vec::new();
    soft_off(&mut code);
    if let Some(serial) = hardware.serial {
        serial_port(serial, &mut code);
    }
    for (number, transport) in (0..).zip(&hardware.transports) {
        virtio(number, *transport, &mut code);
    }
    power_button(hardware.button, &mut code);
    table.append_slice(&code);
    table.update_checksum();
    table
}

fn soft_off(code: &mut Vec<u8>) {
    let package = Package::new(vec![&SLEEP_OFF]);
    Name::new("_S5_".into(), &package).to_aml_bytes(code);
}

/// A device on the system bus.
fn device(path: &str, children: Vec<&dyn Aml>, code: &mut Vec<u8>) {
    let device = Device::new(path.into(), children);
    Scope::new("_SB_".into(), vec![&device]).to_aml_bytes(code);
}

fn edge(pin: u8) -> Interrupt {
    Interrupt::new(true, true, false, false, pin.into())
}

/// The resources that a device takes.
fn resources(registers: &dyn Aml, pin: u8) -> Name {
    let interrupt = edge(pin);
    let template = ResourceTemplate::new(vec![registers, &interrupt]);
    Name::new("_CRS".into(), &template)
}

fn serial_port(serial: SerialPort, code: &mut Vec<u8>) {
    let registers = IO::new(serial.port, serial.port, 0, 8);
    device(
        "COM1",
        vec![
            &Name::new("_HID".into(), &EISAName::new("PNP0501")),
            &Name::new("_UID".into(), &ZERO),
            &resources(&registers, serial.pin),
        ],
        code,
    );
}

/// `LNRO0005` is what Linux's driver of virtio over MMIO looks for.
fn virtio(number: u8, transport: Transport, code: &mut Vec<u8>) {
    let registers = Memory32Fixed::new(true, transport.at, transport.size);
    device(
        &format!("VR{number:02}"),
        vec![
            &Name::new("_HID".into(), &"LNRO0005"),
            &Name::new("_UID".into(), &number),
            &Name::new("_CCA".into(), &ONE),
            &resources(&registers, transport.pin),
        ],
        code,
    );
}

/// The button, and the device that turns its interrupt into an event (section 5.6.9).
fn power_button(pin: u8, code: &mut Vec<u8>) {
    const PRESSED: u8 = 0x80;
    device(
        "PWRB",
        vec![
            &Name::new("_HID".into(), &EISAName::new("PNP0C0C")),
            &Name::new("_UID".into(), &ZERO),
        ],
        code,
    );
    let interrupt = edge(pin);
    let path: Path = "\\_SB_.PWRB".into();
    let tell = Notify::new(&path, &PRESSED);
    device(
        "GED_",
        vec![
            &Name::new("_HID".into(), &"ACPI0013"),
            &Name::new("_UID".into(), &ZERO),
            &Name::new("_CRS".into(), &ResourceTemplate::new(vec![&interrupt])),
            &Method::new("_EVT".into(), 1, true, vec![&tell]),
        ],
        code,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hardware(cpus: u8, transports: usize) -> Hardware {
        let transport = |number: usize| Transport {
            at: 0xd000_0000 + 0x200 * number as u32,
            size: 0x200,
            pin: 5 + number as u8,
        };
        Hardware {
            cpus,
            serial: Some(SerialPort {
                port: 0x3f8,
                pin: 4,
            }),
            transports: (0..transports).map(transport).collect(),
            button: 23,
        }
    }

    fn long(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    /// The table at a guest's address.
    fn table(bytes: &[u8], address: u64) -> &[u8] {
        let at = (address - TABLES) as usize;
        let length = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap());
        &bytes[at..at + length as usize]
    }

    fn sum(bytes: &[u8]) -> u8 {
        bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
    }

    #[test]
    fn every_table_is_found_and_sound() {
        let bytes = tables(&hardware(8, 6));
        assert_eq!(&bytes[..8], b"RSD PTR ");
        assert_eq!((sum(&bytes[..20]), sum(&bytes[..36])), (0, 0));
        let list = table(&bytes, long(&bytes, 24));
        let fixed = table(&bytes, long(list, 36));
        let interrupts = table(&bytes, long(list, 44));
        let definitions = table(&bytes, long(fixed, 140));
        for (table, name) in [
            (list, b"XSDT"),
            (fixed, b"FACP"),
            (interrupts, b"APIC"),
            (definitions, b"DSDT"),
        ] {
            assert_eq!(&table[..4], name);
            assert_eq!(sum(table), 0, "{}", String::from_utf8_lossy(name));
        }
        assert_eq!(interrupts.len(), 44 + 8 * 8 + 12);
        assert!(TABLES + (bytes.len() as u64) < TABLES_END);
    }

    #[test]
    fn devices_are_told_of_if_they_are_there() {
        let told = |hardware: &Hardware, what: &[u8]| {
            let bytes = tables(hardware);
            bytes.windows(what.len()).any(|window| window == what)
        };
        let all = hardware(1, 2);
        assert!(told(&all, b"VR01") && !told(&all, b"VR02"));
        assert!(told(&all, b"COM1"));
        let none = Hardware {
            serial: None,
            transports: Vec::new(),
            ..all
        };
        assert!(!told(&none, b"COM1") && !told(&none, b"VR00"));
        assert!(told(&none, b"PWRB") && told(&none, b"_S5_"));
    }

    #[test]
    fn the_most_devices_fit() {
        assert!(TABLES + (tables(&hardware(255, 64)).len() as u64) < TABLES_END);
    }
}
