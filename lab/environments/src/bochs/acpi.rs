//! What a PC's firmware says about its interrupt controllers, and Xen has to be told: one
//! processor with its local APIC, one I/O APIC, and that the timer of old is wired to
//! that one's third input (ACPI specification 6.5, 5.2.5 to 5.2.12). Nothing of power:
//! the machine has no other ACPI than this.

/// Where the tables begin. Whoever looks for them looks from 0xe0000 on.
pub const TABLES: u32 = 0xf_1000;

/// Behind the pointer to the root table that table, and the only one that it names.
const ROOT: usize = 0x40;
const INTERRUPTS: usize = 0x80;

/// Who made them.
const MAKER: &[u8; 6] = b"TRPLN ";

/// Where a PC has its APICs.
const LOCAL_APIC: u32 = 0xfee0_0000;
const IO_APIC: u32 = 0xfec0_0000;

/// Kinds of entries that say so, and their lengths.
const OF_LOCAL_APIC: [u8; 2] = [0, 8];
const OF_IO_APIC: [u8; 2] = [1, 12];
const OF_OVERRIDE: [u8; 2] = [2, 10];

/// The tables, as they lie at [`TABLES`].
pub fn tables() -> Vec<u8> {
    let at = |offset: usize| TABLES + offset as u32;
    let mut all = pointer(at(ROOT));
    all.resize(ROOT, 0);
    all.extend(table(b"RSDT", &at(INTERRUPTS).to_le_bytes()));
    all.resize(INTERRUPTS, 0);
    all.extend(table(b"APIC", &interrupts()));
    all
}

/// The root pointer of ACPI 1.0.
fn pointer(root: u32) -> Vec<u8> {
    let mut bytes = b"RSD PTR \0".to_vec();
    bytes.extend(MAKER);
    bytes.push(0);
    bytes.extend(root.to_le_bytes());
    summed_up(bytes, 8)
}

/// A table with its head: signature, length, revision, checksum, and names.
fn table(signature: &[u8; 4], body: &[u8]) -> Vec<u8> {
    const HEAD: usize = 36;
    let mut bytes = signature.to_vec();
    bytes.extend(((HEAD + body.len()) as u32).to_le_bytes());
    bytes.extend([1, 0]);
    bytes.extend(MAKER);
    bytes.extend(b"TRAPLINE\x01\0\0\0TRPL\x01\0\0\0");
    bytes.extend(body);
    summed_up(bytes, 9)
}

/// All bytes of a table add up to nothing.
fn summed_up(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
    bytes[at] = bytes.iter().fold(0, |sum, byte| sum.wrapping_sub(*byte));
    bytes
}

fn interrupts() -> Vec<u8> {
    // There are two controllers of old as well.
    let mut body = [LOCAL_APIC, 1].map(u32::to_le_bytes).concat();
    // Processor 0 with APIC 0, which is on.
    body.extend(OF_LOCAL_APIC);
    body.extend([0, 0, 1, 0, 0, 0]);
    // APIC 1, whose inputs count from 0.
    body.extend(OF_IO_APIC);
    body.extend([1, 0]);
    body.extend([IO_APIC, 0].map(u32::to_le_bytes).concat());
    // Interrupt 0 of the ISA bus is input 2, by the bus's own rules.
    body.extend(OF_OVERRIDE);
    body.extend([0, 0, 2, 0, 0, 0, 0, 0]);
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_adds_up_to_nothing_and_leads_to_the_next() {
        let all = tables();
        let sum = |bytes: &[u8]| bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        let word = |at: usize| u32::from_le_bytes(all[at..at + 4].try_into().unwrap());
        assert_eq!((&all[..8], sum(&all[..20])), (&b"RSD PTR "[..], 0));
        assert_eq!(word(16), TABLES + ROOT as u32);
        assert_eq!(sum(&all[ROOT..ROOT + word(ROOT + 4) as usize]), 0);
        assert_eq!(word(ROOT + 36), TABLES + INTERRUPTS as u32);
        assert_eq!(word(INTERRUPTS + 4) as usize, all.len() - INTERRUPTS);
        assert_eq!(sum(&all[INTERRUPTS..]), 0);
        assert_eq!(word(INTERRUPTS + 36), LOCAL_APIC);
    }
}
