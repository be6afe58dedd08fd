//! What the guests of the suite must be seen doing, line by line.

/// The trace of the first guest.
pub const ACCESSES: &str = "\
started
write port 0x600 size 1 data 0x41
write port 0x600 size 2 data 0x4241
write port 0x600 size 4 data 0x44434241
read port 0x600 size 1
write port 0x600 size 4 data 0xffffff5a
read port 0x600 size 2
write port 0x600 size 4 data 0xffffa55a
read port 0x600 size 4
write port 0x600 size 4 data 0xdeadbeef
write port 0x600 size 1 data 0x61
write port 0x600 size 1 data 0x62
write port 0x600 size 1 data 0x63
read port 0x600 size 1
read port 0x600 size 1
write port 0x600 size 4 data 0x2211
write mmio 0xfeb00000 size 1 data 0x11
write mmio 0xfeb00002 size 2 data 0x2211
write mmio 0xfeb00004 size 4 data 0x44332211
write mmio 0xfeb00008 size 8 data 0x8877665544332211
read mmio 0xfeb00010 size 1
write port 0x600 size 4 data 0x99
read mmio 0xfeb00012 size 2
write port 0x600 size 4 data 0xa0a1
read mmio 0xfeb00014 size 4
write port 0x600 size 4 data 0xb0b1b2b3
read mmio 0xfeb00018 size 8
write port 0x600 size 4 data 0x89abcdef
write port 0x600 size 4 data 0x1234567
write port 0x600 size 4 data 0x600dcafe
write port 0x604 size 1 data 0xfe
read mmio 0x100000 size 4
write port 0x600 size 4 data 0x11111111
write port 0x605 size 1 data 0x11
write port 0x600 size 4 data 0x22222222
write port 0x606 size 1 data 0x22
read mmio 0x100000 size 4
write port 0x600 size 4 data 0x44444444
";

/// What comes next where memory can be attached read-only.
pub const READ_ONLY: &str = "\
write port 0x607 size 1 data 0x44
write port 0x600 size 4 data 0x55555555
write mmio 0x100000 size 4 data 0x66666666
";

/// How [`ACCESSES`] ends.
pub const ENDING: &str = "\
halted
kicked
write port 0x608 size 1 data 0x0
kicked
write port 0x608 size 4 data 0x77777777
stopped triple-fault
";

/// The trace of the guest that halts without leaving.
pub const HALTED_INSIDE: &str = "\
started
write port 0x603 size 1 data 0x0
kicked
write port 0x602 size 1 data 0x40
write port 0x605 size 1 data 0x0
";

/// The trace of the second guest.
pub const INTERRUPTED: &str = "\
started
write port 0x601 size 1 data 0x0
write port 0x602 size 1 data 0x40
write port 0x603 size 1 data 0x0
kicked
write port 0x602 size 1 data 0x40
write port 0x604 size 1 data 0x0
kicked
write port 0x602 size 1 data 0x40
write port 0x605 size 1 data 0x0
";
