//! Unpacks a bzImage: self-extraction would take the machine longer than the boot to init (Linux
//! `Documentation/arch/x86/boot.rst`).

use std::io::{self, Read};

/// Limit of an unpacked kernel, in bytes.
const LARGEST: u64 = 512 << 20;

/// Fields of the setup header: sectors of real-mode code without the first, and offset and length of the
/// payload after it.
const SETUP_SECTORS: usize = 0x1f1;
const MAGIC: usize = 0x202;
const PAYLOAD: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;

/// Returns the ELF file in the kernel `file`, or `file` itself if it is one.
///
/// # Errors
/// It is no kernel, or its compression is not supported.
pub fn kernel(file: &[u8]) -> io::Result<Vec<u8>> {
    if file.starts_with(b"\x7fELF") {
        return Ok(file.to_vec());
    }
    let packed = payload(file).ok_or_else(|| io::Error::other("this is no kernel"))?;
    let mut elf = Vec::new();
    match packed {
        [0x02, 0x21, 0x4c, 0x18, blocks @ ..] => elf = lz4(blocks)?,
        [0xfd, b'7', b'z', b'X', b'Z', ..] => {
            let reader = lzma_rust2::XzReader::new(packed, true);
            reader.take(LARGEST).read_to_end(&mut elf)?;
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let reader = ruzstd::decoding::StreamingDecoder::new(packed);
            let reader = reader.map_err(io::Error::other)?;
            reader.take(LARGEST).read_to_end(&mut elf)?;
        }
        _ => {
            let known = "the kernel is packed with something else than LZ4, XZ or Zstandard";
            return Err(io::Error::other(known));
        }
    }
    Ok(elf)
}

/// Returns the payload without the appended length.
fn payload(file: &[u8]) -> Option<&[u8]> {
    if file.get(MAGIC..MAGIC + 4)? != b"HdrS" {
        return None;
    }
    let word =
        |at: usize| Some(u32::from_le_bytes(file.get(at..at + 4)?.try_into().ok()?) as usize);
    let code = (usize::from(file[SETUP_SECTORS]) + 1) * 512;
    let start = code + word(PAYLOAD)?;
    let end = start.checked_add(word(PAYLOAD_LENGTH)?.checked_sub(4)?)?;
    file.get(start..end)
}

/// Unpacks LZ4's legacy format: blocks after their lengths, of 8 MiB each except the last.
fn lz4(mut blocks: &[u8]) -> io::Result<Vec<u8>> {
    const BLOCK: usize = 8 << 20;
    let mut all = Vec::new();
    let mut block = vec![0; BLOCK];
    while let Some((length, rest)) = blocks.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let packed = rest.get(..length);
        let packed = packed.ok_or(io::ErrorKind::UnexpectedEof)?;
        let unpacked = lz4_flex::block::decompress_into(packed, &mut block);
        all.extend_from_slice(&block[..unpacked.map_err(io::Error::other)?]);
        blocks = &rest[length..];
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(payload: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 1024];
        file[SETUP_SECTORS] = 1;
        file[MAGIC..MAGIC + 4].copy_from_slice(b"HdrS");
        let length = payload.len() as u32 + 4;
        file[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 4].copy_from_slice(&length.to_le_bytes());
        file.extend(payload);
        file.extend([0; 4]);
        file
    }

    #[test]
    fn blocks_are_concatenated() {
        // A token contains the number of literal bytes that follow.
        let blocks = [
            &[2, 0x21, 0x4c, 0x18, 4, 0, 0, 0, 0x30][..],
            b"\x7fEL",
            &[2, 0, 0, 0, 0x10],
            b"F",
        ];
        assert_eq!(kernel(&packed(&blocks.concat())).unwrap(), b"\x7fELF");
        let short = [2, 0x21, 0x4c, 0x18, 9, 0, 0, 0, 0x30];
        assert!(kernel(&packed(&short)).is_err());
    }

    #[test]
    fn other_files_are_rejected_and_elf_files_are_kept() {
        assert_eq!(kernel(b"\x7fELF...").unwrap(), b"\x7fELF...");
        for bytes in [&b""[..], &[0; 2000], &packed(b"\x1f\x8b")] {
            assert!(kernel(bytes).is_err());
        }
    }
}
