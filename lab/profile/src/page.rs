//! Identification of programs by the contents of their code pages.
//!
//! If many programs use the same addresses, an address does not identify an instruction's
//! program. Its page does: code is mapped unchanged from its file.

/// Page size in bytes.
pub const SIZE: usize = 4096;

const WORD: usize = size_of::<u64>();

/// Returns the hash of a page. It reads words at a time, because the plugin hashes a page for
/// every block that QEMU translates.
pub fn fingerprint(page: &[u8; SIZE]) -> u64 {
    let (words, _) = page.as_chunks::<WORD>();
    words.iter().fold(SEED, |hash, word| {
        (hash ^ u64::from_le_bytes(*word))
            .wrapping_mul(ODD)
            .rotate_left(29)
    })
}

/// A nonzero start, and an odd factor: multiplication by it is a bijection (Knuth, The Art of
/// Computer Programming, 6.4).
const SEED: u64 = 0xcbf2_9ce4_8422_2325;
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Splits `bytes` into pages; zeros fill the last one.
pub fn pages(bytes: &[u8]) -> impl Iterator<Item = [u8; SIZE]> + '_ {
    bytes.chunks(SIZE).map(|chunk| {
        let mut page = [0; SIZE];
        page[..chunk.len()].copy_from_slice(chunk);
        page
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_changes_the_fingerprint() {
        let empty = fingerprint(&[0; SIZE]);
        for at in [0, 7, 8, SIZE - 1] {
            let mut page = [0; SIZE];
            page[at] = 1;
            assert_ne!(fingerprint(&page), empty, "{at}");
        }
    }

    #[test]
    fn zeros_fill_the_last_page() {
        let file = [1; SIZE + 1];
        let pages: Vec<_> = pages(&file).collect();
        assert_eq!(pages.len(), 2);
        assert_eq!((pages[1][0], pages[1][1]), (1, 0));
    }
}
