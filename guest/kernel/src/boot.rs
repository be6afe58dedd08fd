//! Start info of the PVH protocol, which direct boot passes, too.
//!
//! It is in memory that is allocated later, so the command line is copied first. An invalid start
//! info causes a panic.

use core::ops::Range;
use trapline_abi::platform::{MemoryMapEntry, MEMORY_RAM, PAGE};

/// End of the identity map. Memory above is not used.
const FOUR_GIB: u64 = 1 << 32;

/// Returns the largest range of RAM, in whole pages, above the image and below 4 GiB.
pub fn choose_memory(
    map: impl IntoIterator<Item = MemoryMapEntry>,
    image_end: u64,
) -> Option<Range<u64>> {
    map.into_iter()
        .filter(|entry| entry.kind == MEMORY_RAM)
        .map(|entry| usable(&entry, image_end))
        .filter(|range| range.start < range.end)
        .max_by_key(|range| range.end - range.start)
}

/// Addresses that devices of PCI may have: above all RAM of common machines, below I/O APIC and local APIC.
const DEVICES: Range<u64> = 0x8000_0000..0xfec0_0000;

/// Returns the largest range for devices that no entry of the memory map has, empty if there is none.
pub fn choose_gap(map: impl Iterator<Item = MemoryMapEntry> + Clone) -> Range<u64> {
    let ranges = map.map(|entry| entry.address..entry.address.saturating_add(entry.size));
    let starts = ranges.clone().map(|range| range.end);
    let starts = starts.chain([DEVICES.start]);
    let starts = starts.filter(|start| DEVICES.contains(start));
    let gaps = starts.map(|start| {
        let behind = ranges.clone().filter(|range| range.end > start);
        let end = behind.map(|range| range.start.max(start)).min();
        start..end.map_or(DEVICES.end, |end| end.min(DEVICES.end))
    });
    let largest = gaps.max_by_key(|gap| gap.end - gap.start);
    largest.unwrap_or(DEVICES.start..DEVICES.start)
}

fn usable(entry: &MemoryMapEntry, image_end: u64) -> Range<u64> {
    let end = entry.address.saturating_add(entry.size).min(FOUR_GIB);
    let start = entry.address.clamp(image_end, FOUR_GIB);
    start.next_multiple_of(PAGE)..end / PAGE * PAGE
}

/// A virtio-mmio device that the VMM has named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtioDevice {
    /// Address of its registers, below 4 GiB.
    pub address: u64,
    /// Pin of the I/O APIC.
    pub pin: u32,
}

/// Returns the virtio-mmio devices of a command line, in the form of Linux:
/// `virtio_mmio.device=512@0xfeb00e00:12` (Linux, Documentation/admin-guide/kernel-parameters.txt).
pub fn virtio_devices_of(command_line: &str) -> impl Iterator<Item = VirtioDevice> + '_ {
    command_line.split_ascii_whitespace().filter_map(|word| {
        let device = word.strip_prefix("virtio_mmio.device=")?;
        let (_size, place) = device.split_once('@')?;
        let mut place = place.split(':');
        let address = u64::from_str_radix(place.next()?.strip_prefix("0x")?, 16).ok()?;
        let pin = place.next()?.parse().ok()?;
        // Otherwise nothing is mapped there.
        let is_usable = address.is_multiple_of(4) && address < FOUR_GIB - PAGE;
        is_usable.then_some(VirtioDevice { address, pin })
    })
}

#[cfg(trapline_image)]
pub use machine::{console, copy_command_line, device_gap, job, memory, shutdown, virtio_devices};

#[cfg(trapline_image)]
mod machine {
    use super::{choose_gap, choose_memory, virtio_devices_of, Range, VirtioDevice};
    use crate::cpu::Global;
    use crate::{acpi, xen};
    use trapline_abi::job::{Console, Shutdown};
    use trapline_abi::platform::{MemoryMapEntry, StartInfo, START_INFO_MAGIC};
    use trapline_abi::Job;

    /// Maximum length of the command line.
    const MOST_BYTES: usize = 4096;

    /// Maximum number of entries of a memory map, as in an E820 map.
    const MOST_ENTRIES: u32 = 128;

    static COMMAND_LINE: Global<[u8; MOST_BYTES]> = Global::new([0; MOST_BYTES]);

    /// Copies the command line. An HVM domain of Xen has none, and reads it from its console.
    ///
    /// # Safety
    /// `start` is the argument from the VMM, and no memory is allocated yet. Called once.
    pub unsafe fn copy_command_line(start: *const StartInfo) -> &'static str {
        // SAFETY: same contract.
        let from = unsafe { read(start) }.command_line as *const u8;
        // SAFETY: this is the only use; the reference is returned shared.
        let copy = unsafe { COMMAND_LINE.get() };
        if from.is_null() {
            let length = xen::read_line(copy);
            return text(copy, length);
        }
        let mut length = 0;
        while length < MOST_BYTES {
            // SAFETY: the string ends with a zero, and this loop stops there.
            copy[length] = unsafe { from.add(length).read() };
            if copy[length] == 0 {
                break;
            }
            length += 1;
        }
        text(copy, length)
    }

    fn text(bytes: &[u8], length: usize) -> &str {
        core::str::from_utf8(&bytes[..length]).unwrap_or("")
    }

    /// Returns the console, even if the rest of the command line is invalid.
    pub fn console(command_line: &str) -> Console {
        let name = value(command_line, "trapline.console=");
        name.and_then(Console::from_name).unwrap_or(Console::Serial)
    }

    /// Returns the shutdown method, even if the rest of the command line is invalid, and keeps the address of
    /// the ACPI tables for it.
    ///
    /// # Safety
    /// Same contract as [`copy_command_line`].
    pub unsafe fn shutdown(command_line: &str, start: *const StartInfo) -> Shutdown {
        let name = value(command_line, "trapline.end=");
        let shutdown = name.and_then(Shutdown::from_name);
        if shutdown == Some(Shutdown::PowerOff) {
            // SAFETY: same contract.
            acpi::set_root_pointer(unsafe { read(start) }.rsdp);
        }
        shutdown.unwrap_or_default()
    }

    fn value<'a>(command_line: &'a str, key: &str) -> Option<&'a str> {
        let mut words = command_line.split_ascii_whitespace();
        words.find_map(|word| word.strip_prefix(key))
    }

    /// Parses the job. Panics if it is invalid.
    pub fn job(command_line: &str) -> Job {
        match Job::parse(command_line.split_ascii_whitespace()) {
            Ok(job) => job,
            Err(word) => panic!("{word}"),
        }
    }

    /// Returns the virtio-mmio devices of the command line.
    pub fn virtio_devices() -> impl Iterator<Item = VirtioDevice> {
        // SAFETY: it is only read after `copy_command_line`.
        let copy: &'static [u8; MOST_BYTES] = unsafe { COMMAND_LINE.get() };
        let length = copy.iter().position(|byte| *byte == 0);
        virtio_devices_of(text(copy, length.unwrap_or(MOST_BYTES)))
    }

    /// Returns the usable memory. The first domain of Xen queries Xen for it.
    ///
    /// # Safety
    /// Same contract as [`copy_command_line`].
    pub unsafe fn memory(
        start: *const StartInfo,
        image_end: u64,
        is_xen_domain: bool,
    ) -> Range<u64> {
        // SAFETY: same contract.
        let info = unsafe { read(start) };
        if info.version == 0 && is_xen_domain {
            return choose(xen::memory_map(), image_end);
        }
        // SAFETY: same contract.
        choose(unsafe { memory_map(&info) }, image_end)
    }

    /// Returns addresses for devices without any, see [`choose_gap`].
    ///
    /// # Safety
    /// Same contract as [`copy_command_line`].
    pub unsafe fn device_gap(start: *const StartInfo) -> Range<u64> {
        // SAFETY: same contract.
        choose_gap(unsafe { memory_map(&read(start)) })
    }

    /// # Safety
    /// `info` is from the VMM, and no memory is allocated yet.
    unsafe fn memory_map(info: &StartInfo) -> impl Iterator<Item = MemoryMapEntry> + Clone {
        let first = info.memory_map as *const MemoryMapEntry;
        if info.version == 0 || first.is_null() {
            panic!("the start info has no memory map; a VMM must pass version 1 or later");
        }
        let entries = info.memory_map_entries.min(MOST_ENTRIES) as usize;
        // SAFETY: the start info has this number of entries at this address.
        (0..entries).map(move |index| unsafe { first.add(index).read_unaligned() })
    }

    fn choose(map: impl Iterator<Item = MemoryMapEntry>, image_end: u64) -> Range<u64> {
        choose_memory(map, image_end).unwrap_or_else(|| {
            panic!("no memory between the end of the image at {image_end:#x} and 4 GiB")
        })
    }

    /// # Safety
    /// Same contract as [`copy_command_line`].
    unsafe fn read(start: *const StartInfo) -> StartInfo {
        if start.is_null() {
            panic!("the machine was started without a start info");
        }
        // SAFETY: not null, so by this function's contract a start info, or at
        // worst mapped memory that lacks the magic number.
        let info = unsafe { start.read_unaligned() };
        if info.magic != START_INFO_MAGIC {
            panic!("no start info at {start:p}: wrong magic number");
        }
        info
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_abi::platform::MEMORY_RESERVED;

    fn entry(kind: u32, address: u64, size: u64) -> MemoryMapEntry {
        MemoryMapEntry {
            address,
            size,
            kind,
            reserved: 0,
        }
    }

    #[test]
    fn the_largest_ram_above_the_image_is_chosen() {
        let map = [
            entry(MEMORY_RAM, 0, 0x9_fc00),
            entry(MEMORY_RAM, 0x10_0000, 0x300_0000),
            entry(MEMORY_RESERVED, 0x400_0000, 0x4000_0000),
            entry(MEMORY_RAM, 1 << 32, 1 << 32),
        ];
        assert_eq!(
            choose_memory(map, 0x13_4000),
            Some(0x13_4000..0x310_0000),
            "neither low memory, nor reserved memory, nor memory above 4 GiB"
        );
    }

    #[test]
    fn ranges_shrink_to_whole_pages_below_4_gib() {
        let odd = entry(MEMORY_RAM, 0x20_0001, 0x2fff);
        assert_eq!(choose_memory([odd], 0x10_0000), Some(0x20_1000..0x20_3000));
        let across = entry(MEMORY_RAM, 0xc000_0000, 0x8000_0000);
        assert_eq!(
            choose_memory([across], 0x10_0000),
            Some(0xc000_0000..FOUR_GIB)
        );
    }

    #[test]
    fn virtio_devices_are_parsed_and_invalid_ones_ignored() {
        let line = "trapline.run=block virtio_mmio.device=512@0xfeb00e00:12 quiet \
                    virtio_mmio.device=512@0xfeb00c00:11:1 virtio_mmio.device=512@0xfeb00c02:1 \
                    virtio_mmio.device=512@feb00c00:1 virtio_mmio.device=512@0xffffffff0:1 \
                    virtio_mmio.device=4K virtio_mmio.device=";
        let devices: Vec<_> = virtio_devices_of(line).collect();
        let device = |address, pin| VirtioDevice { address, pin };
        assert_eq!(devices, [device(0xfeb0_0e00, 12), device(0xfeb0_0c00, 11)]);
    }

    #[test]
    fn the_largest_gap_for_devices_is_chosen() {
        let gap = |map: &[MemoryMapEntry]| choose_gap(map.iter().copied());
        let ram = entry(MEMORY_RAM, 0x10_0000, 0x1000_0000);
        assert_eq!(gap(&[ram]), DEVICES);
        // As on QEMU's q35: configuration space, and firmware.
        let configuration = entry(MEMORY_RESERVED, 0xb000_0000, 0x1000_0000);
        let firmware = entry(MEMORY_RESERVED, 0xfffc_0000, 0x4_0000);
        let map = [firmware, ram, configuration];
        assert_eq!(gap(&map), 0xc000_0000..DEVICES.end);
        let large = entry(MEMORY_RAM, 0x10_0000, 0xf000_0000);
        assert_eq!(gap(&[large, firmware]), 0xf010_0000..DEVICES.end);
        let all = entry(MEMORY_RAM, 0, u64::MAX);
        assert!(gap(&[all]).is_empty());
        let overlapping = [
            entry(MEMORY_RESERVED, 0x8000_0000, 0x4000_0000),
            entry(MEMORY_RESERVED, 0x9000_0000, 0x1000_0000),
        ];
        assert_eq!(gap(&overlapping), 0xc000_0000..DEVICES.end);
    }

    #[test]
    fn invalid_entries_are_ignored() {
        let map = [
            entry(MEMORY_RAM, u64::MAX, u64::MAX),
            entry(MEMORY_RAM, 0x1000, 0x1000),
            entry(MEMORY_RAM, 0x20_0800, 0x400),
        ];
        assert_eq!(choose_memory(map, 0x10_0000), None);
        assert_eq!(choose_memory([], 0x10_0000), None);
    }
}
