//! Encoding of payloads: little-endian base-128 numbers and length-prefixed strings.
//!
//! [`Writer`] fills a fixed buffer, [`Reader`] decodes it. Neither allocates, and neither panics on
//! any input, because guests are not trusted.

/// Maximum length of the body of a frame: clock and payload.
pub const MAX_BODY: usize = 1024;

/// Failure to read or write a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The bytes end inside a value.
    Short,
    /// A number does not fit its type, or a string is not UTF-8.
    Malformed,
    /// The buffer is too small.
    Full,
}

/// Appends values to a buffer.
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    used: usize,
}

impl<'a> Writer<'a> {
    /// Creates a writer at the start of `buffer`.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, used: 0 }
    }

    /// Returns the number of bytes written.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Appends one byte.
    pub fn byte(&mut self, value: u8) -> Result<(), Error> {
        *self.buffer.get_mut(self.used).ok_or(Error::Full)? = value;
        self.used += 1;
        Ok(())
    }

    /// Appends a number, seven bits a byte, least significant first (LEB128).
    pub fn number(&mut self, mut value: u64) -> Result<(), Error> {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80)?;
            value >>= 7;
        }
        self.byte(value as u8)
    }

    /// Appends a number of up to 256 bits, given least significant word first, in the same format.
    pub fn wide(&mut self, [mut a, mut b, mut c, mut d]: [u64; 4]) -> Result<(), Error> {
        while a >= 0x80 || b | c | d != 0 {
            self.byte(a as u8 | 0x80)?;
            [a, b, c, d] = [a >> 7 | b << 57, b >> 7 | c << 57, c >> 7 | d << 57, d >> 7];
        }
        self.byte(a as u8)
    }

    /// Appends the length of `bytes`, then `bytes`.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.number(bytes.len() as u64)?;
        let end = self.used + bytes.len();
        let room = self.buffer.get_mut(self.used..end).ok_or(Error::Full)?;
        room.copy_from_slice(bytes);
        self.used = end;
        Ok(())
    }
}

/// Reads values from a slice.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Creates a reader of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns true if all bytes are read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads one byte.
    pub fn byte(&mut self) -> Result<u8, Error> {
        let (&first, rest) = self.rest.split_first().ok_or(Error::Short)?;
        self.rest = rest;
        Ok(first)
    }

    /// Reads a number written by [`Writer::number`].
    pub fn number(&mut self) -> Result<u64, Error> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Error::Malformed);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Error::Malformed)
    }

    /// Reads a number written by [`Writer::wide`].
    pub fn wide(&mut self) -> Result<[u64; 4], Error> {
        // The last byte has bits beyond the four words.
        let mut words = [0; 5];
        for shift in (0..256).step_by(7) {
            let byte = self.byte()?;
            let bits = u128::from(byte & 0x7f) << (shift % 64);
            words[shift / 64] |= bits as u64;
            words[shift / 64 + 1] |= (bits >> 64) as u64;
            if byte & 0x80 == 0 {
                let [value @ .., beyond] = words;
                return if beyond == 0 {
                    Ok(value)
                } else {
                    Err(Error::Malformed)
                };
            }
        }
        Err(Error::Malformed)
    }

    /// Reads a number that must fit into 32 bits.
    pub fn number32(&mut self) -> Result<u32, Error> {
        u32::try_from(self.number()?).map_err(|_| Error::Malformed)
    }

    /// Reads bytes written by [`Writer::bytes`].
    pub fn bytes(&mut self) -> Result<&'a [u8], Error> {
        let length = usize::try_from(self.number()?).map_err(|_| Error::Malformed)?;
        if length > self.rest.len() {
            return Err(Error::Short);
        }
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(taken)
    }

    /// Reads a string, which must be UTF-8.
    pub fn text(&mut self) -> Result<&'a str, Error> {
        core::str::from_utf8(self.bytes()?).map_err(|_| Error::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_equal_after_writing_and_reading() {
        for value in [
            0,
            1,
            127,
            128,
            300,
            u64::from(u32::MAX),
            u64::MAX - 1,
            u64::MAX,
        ] {
            let mut buffer = [0; 10];
            let mut writer = Writer::new(&mut buffer);
            writer.number(value).unwrap();
            let used = writer.used();
            let mut reader = Reader::new(&buffer[..used]);
            assert_eq!(reader.number(), Ok(value));
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn numbers_beyond_64_bits_are_rejected() {
        assert_eq!(Reader::new(&[0xff; 11]).number(), Err(Error::Malformed));
        let eleven_bits_too_many = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert_eq!(
            Reader::new(&eleven_bits_too_many).number(),
            Err(Error::Malformed)
        );
        assert_eq!(Reader::new(&[0x80]).number(), Err(Error::Short));
    }

    #[test]
    fn wide_numbers_are_equal_after_reading_and_small_ones_have_the_same_format() {
        for (value, length) in [
            ([0; 4], 1),
            ([300, 0, 0, 0], 2),
            ([u64::MAX, 0, 0, 0], 10),
            ([0, 1 << 36, 0, 0], 15),
            ([u64::MAX, u64::MAX, 0, 0], 19),
            ([0, 0, 1, 0], 19),
            ([0, 0, 1 << 5, 0], 20),
            ([0, 0, 0, 1], 28),
            ([0, 0, 0, 1 << 63], 37),
            ([u64::MAX; 4], 37),
        ] {
            let mut buffer = [0; 37];
            let mut writer = Writer::new(&mut buffer);
            writer.wide(value).unwrap();
            let used = writer.used();
            assert_eq!(used, length, "{value:?}");
            assert_eq!(Reader::new(&buffer[..used]).wide(), Ok(value));
            if let [narrow, 0, 0, 0] = value {
                assert_eq!(Reader::new(&buffer[..used]).number(), Ok(narrow));
            }
        }
    }

    #[test]
    fn numbers_beyond_256_bits_are_rejected() {
        let mut too_wide = [0xff; 37];
        too_wide[36] = 0x0f;
        assert_eq!(Reader::new(&too_wide).wide(), Ok([u64::MAX; 4]));
        for last in [0x10, 0x40, 0x8f, 0xff] {
            too_wide[36] = last;
            assert_eq!(Reader::new(&too_wide).wide(), Err(Error::Malformed));
        }
        assert_eq!(Reader::new(&[0xff; 38]).wide(), Err(Error::Malformed));
        assert_eq!(Reader::new(&[0xff; 36]).wide(), Err(Error::Short));
    }

    #[test]
    fn a_length_beyond_the_end_is_rejected() {
        assert_eq!(Reader::new(&[5, b'a']).bytes(), Err(Error::Short));
        assert_eq!(Reader::new(&[1, 0xff]).text(), Err(Error::Malformed));
        assert_eq!(Writer::new(&mut [0; 3]).bytes(b"abc"), Err(Error::Full));
    }
}
