//! ACPI tables (ACPI 6.5) of a hardware-reduced platform (section 4.1) without legacy devices, built with the crate
//! `acpi_tables`.

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
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use trapline_abi::platform::{
    POWER_CONTROL, POWER_RESET, POWER_RESET_PORT, POWER_STATUS, SLEEP_OFF,
};

/// Address of the tables, in the area searched for the RSDP (section 5.2.5.1). The RSDP comes first.
pub const TABLES: u64 = 0xe_0000;

/// End of the area.
pub const TABLES_END: u64 = 0x10_0000;

/// Hardware described by the tables. Pins are those of the I/O APIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// Number of CPUs; APIC IDs count from 0.
    pub cpus: u8,
    /// Serial port, if any.
    pub serial: Option<SerialPort>,
    /// Virtio MMIO devices (virtio 1.2, section 4.2).
    pub transports: Vec<Transport>,
    /// Pin of the power button, edge-triggered.
    pub button: u8,
}

/// A 16550.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SerialPort {
    /// First of eight ports.
    pub port: u16,
    /// Pin, edge-triggered.
    pub pin: u8,
}

/// Registers of a virtio device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Address, below 4 GiB.
    pub at: u32,
    /// Length in bytes.
    pub size: u32,
    /// Pin, edge-triggered.
    pub pin: u8,
}

/// Addresses of the local APICs and the I/O APIC.
const LOCAL_APIC: u32 = 0xfee0_0000;
const IO_APIC: u32 = 0xfec0_0000;

/// IAPC_BOOT_ARCH flags of missing devices (table 5.11).
const NO_VGA: u16 = 1 << 2;
const NO_CLOCK: u16 = 1 << 5;

const OEM: [u8; 6] = *b"TRAPLN";
const OEM_TABLE: [u8; 8] = *b"TRAPLINE";
const OEM_REVISION: u32 = 1;
const DSDT_REVISION: u8 = 2;

/// Returns the bytes at [`TABLES`]: the RSDP and all tables.
pub fn tables(hardware: &Hardware) -> Vec<u8> {
    let mut buffer = TableBuffer {
        bytes: vec![0; Rsdp::len().next_multiple_of(ALIGNMENT)],
    };
    let dsdt = buffer.put(&dsdt_of(hardware));
    let fadt = buffer.put(&fadt(dsdt));
    let madt = buffer.put(&madt(hardware.cpus));
    let mut list = XSDT::new(OEM, OEM_TABLE, OEM_REVISION);
    list.add_entry(fadt);
    list.add_entry(madt);
    let list = buffer.put(&list);
    let mut pointer = Vec::new();
    Rsdp::new(OEM, list).to_aml_bytes(&mut pointer);
    buffer.bytes[..pointer.len()].copy_from_slice(&pointer);
    buffer.bytes
}

const ALIGNMENT: usize = 16;

/// Buffer of consecutive tables.
struct TableBuffer {
    bytes: Vec<u8>,
}

impl TableBuffer {
    /// Appends a table; returns its guest address.
    fn put(&mut self, table: &dyn Aml) -> u64 {
        let at = TABLES + self.bytes.len() as u64;
        table.to_aml_bytes(&mut self.bytes);
        let aligned = self.bytes.len().next_multiple_of(ALIGNMENT);
        self.bytes.resize(aligned, 0);
        at
    }
}

fn fadt(dsdt: u64) -> impl Aml {
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

fn madt(cpus: u8) -> impl Aml {
    let local = LocalInterruptController::Address(LOCAL_APIC);
    let mut table = MADT::new(OEM, OEM_TABLE, OEM_REVISION, local);
    for cpu in 0..cpus {
        table.add_structure(ProcessorLocalApic::new(cpu, cpu, EnabledStatus::Enabled));
    }
    table.add_structure(IoApic::new(0, IO_APIC, 0));
    table
}

/// The DSDT.
fn dsdt_of(hardware: &Hardware) -> Sdt {
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

/// Appends a device on the system bus.
fn device(path: &str, children: Vec<&dyn Aml>, code: &mut Vec<u8>) {
    let device = Device::new(path.into(), children);
    Scope::new("_SB_".into(), vec![&device]).to_aml_bytes(code);
}

/// An edge-triggered interrupt. Several devices may share its pin, each of which says whether it has raised it.
fn edge(pin: u8) -> Interrupt {
    Interrupt::new(true, true, false, true, pin.into())
}

/// Returns the `_CRS` of a device.
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

/// Appends a virtio device; `LNRO0005` is the HID matched by Linux.
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

/// Appends the power button and the generic event device that reports it (section 5.6.9).
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
    use std::string::String;
    use std::vec::Vec;

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

    /// Returns the table at a guest address.
    fn table(bytes: &[u8], address: u64) -> &[u8] {
        let at = (address - TABLES) as usize;
        let length = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap());
        &bytes[at..at + length as usize]
    }

    fn sum(bytes: &[u8]) -> u8 {
        bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
    }

    #[test]
    fn tables_are_linked_and_have_valid_checksums() {
        let bytes = tables(&hardware(8, 6));
        assert_eq!(&bytes[..8], b"RSD PTR ");
        assert_eq!((sum(&bytes[..20]), sum(&bytes[..36])), (0, 0));
        let list = table(&bytes, long(&bytes, 24));
        let fadt = table(&bytes, long(list, 36));
        let madt = table(&bytes, long(list, 44));
        let dsdt = table(&bytes, long(fadt, 140));
        for (table, name) in [
            (list, b"XSDT"),
            (fadt, b"FACP"),
            (madt, b"APIC"),
            (dsdt, b"DSDT"),
        ] {
            assert_eq!(&table[..4], name);
            assert_eq!(sum(table), 0, "{}", String::from_utf8_lossy(name));
        }
        assert_eq!(madt.len(), 44 + 8 * 8 + 12);
        assert!(TABLES + (bytes.len() as u64) < TABLES_END);
    }

    #[test]
    fn only_present_devices_are_described() {
        let info = |hardware: &Hardware, what: &[u8]| {
            let bytes = tables(hardware);
            bytes.windows(what.len()).any(|window| window == what)
        };
        let all = hardware(1, 2);
        assert!(info(&all, b"VR01") && !info(&all, b"VR02"));
        assert!(info(&all, b"COM1"));
        let none = Hardware {
            serial: None,
            transports: Vec::new(),
            ..all
        };
        assert!(!info(&none, b"COM1") && !info(&none, b"VR00"));
        assert!(info(&none, b"PWRB") && info(&none, b"_S5_"));
    }

    #[test]
    fn largest_tables_fit() {
        assert!(TABLES + (tables(&hardware(255, 64)).len() as u64) < TABLES_END);
    }
}
