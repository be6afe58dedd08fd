//! ACPI tables for a hypervisor: one CPU with its local APIC, one I/O APIC, the ISA timer at its input 2, and of power
//! management only a timer, where there is one (ACPI specification 6.5, 5.2.5 to 5.2.12).

/// Address of the tables. The root pointer is searched from 0xe0000 on.
pub const TABLES: u32 = 0xf_1000;

/// Offsets of the root table and of those that it refers to.
const ROOT: usize = 0x40;
const INTERRUPTS: usize = 0x80;
const FIXED_HARDWARE: usize = 0x100;

/// Offsets of the timer's port and of the size of its register in the body of the table of fixed hardware, and the
/// length of this body in the first version of the table.
const TIMER_PORT: usize = 76 - HEAD;
const TIMER_SIZE: usize = 91 - HEAD;
const FIXED_HARDWARE_BYTES: usize = 116 - HEAD;

/// OEM id.
const MAKER: &[u8; 6] = b"TRPLN ";

/// Addresses of the APICs.
const LOCAL_APIC: u32 = 0xfee0_0000;
const IO_APIC: u32 = 0xfec0_0000;

/// Types and lengths of MADT entries.
const OF_LOCAL_APIC: [u8; 2] = [0, 8];
const OF_IO_APIC: [u8; 2] = [1, 12];
const OF_OVERRIDE: [u8; 2] = [2, 10];

/// Length of a table's header.
const HEAD: usize = 36;

/// Returns the tables for [`TABLES`], with the port of a power management timer.
pub fn tables(timer: Option<u16>) -> Vec<u8> {
    let at = |offset: usize| TABLES + offset as u32;
    let mut all = pointer(at(ROOT));
    let mut add = |offset, table: Vec<u8>| {
        all.resize(offset, 0);
        all.extend(table);
    };
    let others = timer.map(|_| at(FIXED_HARDWARE));
    let others = [at(INTERRUPTS)].into_iter().chain(others);
    let others: Vec<_> = others.flat_map(u32::to_le_bytes).collect();
    add(ROOT, table(b"RSDT", &others));
    add(INTERRUPTS, table(b"APIC", &interrupts()));
    if let Some(port) = timer {
        add(FIXED_HARDWARE, table(b"FACP", &fixed_hardware(port)));
    }
    all
}

fn fixed_hardware(timer: u16) -> [u8; FIXED_HARDWARE_BYTES] {
    let mut body = [0; FIXED_HARDWARE_BYTES];
    body[TIMER_PORT..][..2].copy_from_slice(&timer.to_le_bytes());
    body[TIMER_SIZE] = 4;
    body
}

/// Returns the root pointer of ACPI 1.0.
fn pointer(root: u32) -> Vec<u8> {
    let mut bytes = b"RSD PTR \0".to_vec();
    bytes.extend(MAKER);
    bytes.push(0);
    bytes.extend(root.to_le_bytes());
    summed_up(bytes, 8)
}

/// Returns a table with its header: signature, length, revision, checksum, and names.
fn table(signature: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut bytes = signature.to_vec();
    bytes.extend(((HEAD + body.len()) as u32).to_le_bytes());
    bytes.extend([1, 0]);
    bytes.extend(MAKER);
    bytes.extend(b"TRAPLINE\x01\0\0\0TRPL\x01\0\0\0");
    bytes.extend(body);
    summed_up(bytes, 9)
}

/// Returns the checksum that makes the sum of a table zero.
fn summed_up(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
    bytes[at] = bytes.iter().fold(0, |sum, byte| sum.wrapping_sub(*byte));
    bytes
}

fn interrupts() -> Vec<u8> {
    // The two legacy 8259 controllers exist.
    let mut body = [LOCAL_APIC, 1].map(u32::to_le_bytes).concat();
    // CPU 0 with APIC 0, enabled.
    body.extend(OF_LOCAL_APIC);
    body.extend([0, 0, 1, 0, 0, 0]);
    // I/O APIC 1, whose inputs start at 0.
    body.extend(OF_IO_APIC);
    body.extend([1, 0]);
    body.extend([IO_APIC, 0].map(u32::to_le_bytes).concat());
    // ISA interrupt 0 is input 2, with the polarity of the bus.
    body.extend(OF_OVERRIDE);
    body.extend([0, 0, 2, 0, 0, 0, 0, 0]);
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_checksums_and_refer_to_each_other() {
        let all = tables(Some(0xb008));
        let sum = |bytes: &[u8]| bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        let word = |at: usize| u32::from_le_bytes(all[at..at + 4].try_into().unwrap());
        assert_eq!((&all[..8], sum(&all[..20])), (&b"RSD PTR "[..], 0));
        assert_eq!(
            tables(None).len(),
            INTERRUPTS + word(INTERRUPTS + 4) as usize
        );
        assert_eq!(word(16), TABLES + ROOT as u32);
        assert_eq!(sum(&all[ROOT..ROOT + word(ROOT + 4) as usize]), 0);
        assert_eq!(word(ROOT + 36), TABLES + INTERRUPTS as u32);
        let interrupts = &all[INTERRUPTS..][..word(INTERRUPTS + 4) as usize];
        assert_eq!(sum(interrupts), 0);
        assert_eq!(word(ROOT + 40), TABLES + FIXED_HARDWARE as u32);
        assert_eq!(sum(&all[FIXED_HARDWARE..]), 0);
        assert_eq!(
            (word(FIXED_HARDWARE + 76), all.len()),
            (0xb008, FIXED_HARDWARE + 116)
        );
        assert_eq!(word(INTERRUPTS + 36), LOCAL_APIC);
    }
}
