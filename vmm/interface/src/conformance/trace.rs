//! Expected traces.

/// Trace of the first guest.
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

/// Continuation with read-only memory.
pub const READ_ONLY: &str = "\
write port 0x607 size 1 data 0x44
write port 0x600 size 4 data 0x55555555
write mmio 0x100000 size 4 data 0x66666666
";

/// End of [`ACCESSES`].
pub const ENDING: &str = "\
halted
kicked
write port 0x608 size 1 data 0x0
kicked
write port 0x608 size 4 data 0x77777777
stopped triple-fault
";

/// Trace of the guest that halts without an exit.
pub const HALTED_INSIDE: &str = "\
started
write port 0x603 size 1 data 0x0
kicked
write port 0x602 size 1 data 0x40
write port 0x605 size 1 data 0x0
";

/// Trace of the guest with one interrupt line.
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

/// Trace of the guest with complex accesses.
pub const MEMORY: &str = "\
started
read mmio 0xfeb00000 size 4
write mmio 0xfeb00000 size 4 data 0x15
read mmio 0xfeb00008 size 1
write mmio 0xfeb00008 size 1 data 0x81
read mmio 0xfeb00010 size 4
write mmio 0xfeb00010 size 4 data 0x600df00d
write port 0x600 size 4 data 0xdeadbeef
read mmio 0xfeb00018 size 2
write port 0x600 size 1 data 0x1
read mmio 0xfeb00020 size 8
write port 0x600 size 4 data 0x89abcdef
write mmio 0xfeb00030 size 4 data 0x22221111
write mmio 0xfeb00034 size 4 data 0x44443333
write mmio 0xfeb00043 size 2 data 0x1111
read mmio 0xfeb00046 size 4
write port 0x600 size 4 data 0x46474849
write mmio 0xfeb00ffc size 4 data 0x44332211
write mmio 0xfeb01000 size 4 data 0x88776655
read mmio 0xfeb00ffc size 4
read mmio 0xfeb01000 size 4
write port 0x600 size 4 data 0xa1a2a3a4
write port 0x600 size 4 data 0xb1b2b3b4
write mmio 0x101000 size 4 data 0x11223344
read mmio 0x101000 size 4
write port 0x600 size 4 data 0x55667788
write port 0x600 size 4 data 0xc1c2c3c4
";

/// Continuation with read-only memory.
pub const MEMORY_READ_ONLY: &str = "\
write mmio 0x102000 size 1 data 0x11
write mmio 0x102002 size 2 data 0x2211
write mmio 0x102004 size 4 data 0x44332211
write mmio 0x102008 size 8 data 0x8877665544332211
write port 0x600 size 4 data 0x99999999
write mmio 0x102000 size 4 data 0x77777778
";

/// End of [`MEMORY`].
pub const MEMORY_ENDING: &str = "\
write port 0x605 size 1 data 0x0
";

/// Trace of the guest with dirty tracking.
pub const DIRTY: &str = "\
started
write port 0x604 size 1 data 0x0
write port 0x605 size 1 data 0x0
write port 0x605 size 1 data 0x0
read port 0x600 size 1
write port 0x606 size 1 data 0x0
write port 0x607 size 1 data 0x0
write port 0x605 size 1 data 0x0
";

/// Trace of the guest with several lines and a pin.
pub const DELIVERY: &str = "\
started
write port 0x600 size 4 data 0x42
write port 0x601 size 1 data 0x42
write port 0x603 size 1 data 0x42
write port 0x602 size 1 data 0x80
write port 0x602 size 1 data 0x40
write port 0x604 size 1 data 0x42
write port 0x602 size 1 data 0x42
write port 0x604 size 1 data 0x42
write port 0x602 size 1 data 0x42
write port 0x604 size 1 data 0x42
write port 0x602 size 1 data 0x42
write port 0x606 size 1 data 0x42
write port 0x602 size 1 data 0x42
write port 0x607 size 1 data 0x42
write port 0x602 size 1 data 0x80
write port 0x605 size 1 data 0x42
";

/// Trace of the vCPU that starts the other.
pub const FIRST_VCPU: &str = "\
started
write port 0x600 size 1 data 0x1
write port 0x600 size 1 data 0x2
write port 0x600 size 1 data 0x3
write port 0x600 size 1 data 0x4
write port 0x600 size 1 data 0x5
";

/// Trace of the other vCPU: real mode, 64-bit mode, the page before the change, an interrupt, the page after
/// each change, and an interrupt that ends a halt.
pub const SECOND_VCPU: &str = "\
started
write port 0x600 size 1 data 0x16
write port 0x600 size 1 data 0x64
write port 0x600 size 4 data 0x11111111
write port 0x602 size 1 data 0x41
write port 0x602 size 1 data 0x42
write port 0x602 size 4 data 0x22222222
write port 0x602 size 1 data 0x42
write port 0x602 size 4 data 0x11111111
write port 0x602 size 1 data 0x42
write port 0x602 size 4 data 0x22222222
write port 0x602 size 1 data 0x41
write port 0x600 size 1 data 0x65
";
