//! Pipes: bounded buffers of bytes.

/// Capacity in bytes.
const CAPACITY: usize = 256;

/// Pipe of the processes that have it open.
pub struct Pipe {
    bytes: [u8; CAPACITY],
    first: usize,
    used: usize,
    /// Number of processes; 0 for no pipe.
    users: usize,
}

impl Pipe {
    /// Creates a pipe that no process has open.
    pub const fn new() -> Self {
        Self {
            bytes: [0; CAPACITY],
            first: 0,
            used: 0,
            users: 0,
        }
    }

    /// Returns the number of processes that have it open.
    pub fn users(&self) -> usize {
        self.users
    }

    /// Opens it for one more process.
    pub fn open(&mut self) {
        self.users += 1;
    }

    /// Closes it for one process. The last one discards its bytes.
    pub fn close(&mut self) {
        self.users -= 1;
        if self.users == 0 {
            self.used = 0;
        }
    }

    /// Returns the number of bytes in it.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Returns the number of bytes that it can take.
    pub fn room(&self) -> usize {
        CAPACITY - self.used
    }

    /// Adds `byte`. Called only if there is room.
    pub fn push(&mut self, byte: u8) {
        self.bytes[(self.first + self.used) % CAPACITY] = byte;
        self.used += 1;
    }

    /// Removes the oldest byte. Called only if there is one.
    pub fn pop(&mut self) -> u8 {
        let byte = self.bytes[self.first];
        self.first = (self.first + 1) % CAPACITY;
        self.used -= 1;
        byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_order_across_the_end_of_the_buffer() {
        let mut pipe = Pipe::new();
        pipe.open();
        for round in 0..5 {
            assert_eq!(pipe.room(), CAPACITY);
            for byte in 0..CAPACITY - 3 {
                pipe.push(byte as u8 ^ round);
            }
            for byte in 0..CAPACITY - 3 {
                assert_eq!(pipe.pop(), byte as u8 ^ round);
            }
        }
    }

    #[test]
    fn the_last_close_empties_a_pipe() {
        let mut pipe = Pipe::new();
        pipe.open();
        pipe.open();
        pipe.push(1);
        pipe.close();
        assert_eq!((pipe.users(), pipe.used()), (1, 1));
        pipe.close();
        assert_eq!((pipe.users(), pipe.used()), (0, 0));
    }
}
