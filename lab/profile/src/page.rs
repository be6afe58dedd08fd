//! Programs known by their code. Where many programs lie at the same addresses, an
//! address does not say whose an instruction is. What is in its page does: code is
//! mapped from its file as it is there.

/// Bytes of a page.
pub const SIZE: usize = 4096;

const WORD: usize = size_of::<u64>();

/// What tells a page of memory from others: of equal contents equal. A page is hashed
/// for every block that QEMU translates, so this takes words at a time.
pub fn fingerprint(page: &[u8; SIZE]) -> u64 {
    let (words, _) = page.as_chunks::<WORD>();
    words.iter().fold(SEED, |hash, word| {
        (hash ^ u64::from_le_bytes(*word))
            .wrapping_mul(ODD)
            .rotate_left(29)
    })
}

/// A start that is not 0, and an odd number: multiplying by one loses nothing (Knuth, The
/// Art of Computer Programming, 6.4).
const SEED: u64 = 0xcbf2_9ce4_8422_2325;
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The pages that `bytes` fill from the start of one, the last with zeros behind.
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
    fn a_byte_anywhere_makes_another_page() {
        let empty = fingerprint(&[0; SIZE]);
        for at in [0, 7, 8, SIZE - 1] {
            let mut page = [0; SIZE];
            page[at] = 1;
            assert_ne!(fingerprint(&page), empty, "{at}");
        }
    }

    #[test]
    fn the_last_page_of_a_file_ends_with_zeros() {
        let file = [1; SIZE + 1];
        let pages: Vec<_> = pages(&file).collect();
        assert_eq!(pages.len(), 2);
        assert_eq!((pages[1][0], pages[1][1]), (1, 0));
    }
}
