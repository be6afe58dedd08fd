# Tables of the CPU, as data, so that no code has to build them. Descriptors contain split
# addresses, which relocations cannot express; image.ld computes the parts (*_low, *_middle, *_high).

# --- Segments -------------------------------------------------------------
.section .data.gdt, "aw", @progbits
.balign 16
.global trapline_gdt
trapline_gdt:
    .quad 0
    .quad 0x00af9b000000ffff            # 0x08 code, ring 0
    .quad 0x00cf93000000ffff            # 0x10 data, ring 0
    .quad 0
    .quad 0
    .quad 0x00cff3000000ffff            # 0x28 data, ring 3
    .quad 0x00affb000000ffff            # 0x30 code, ring 3
    .quad 0
    .short trapline_tss_limit           # 0x40 task state
    .short trapline_tss_low
    .byte trapline_tss_middle, 0x89, 0, trapline_tss_high
    .long 0, 0
.global trapline_gdt_end
trapline_gdt_end:

# --- Task state: interrupt stacks; the port bitmap is elsewhere, all zero ----
.section .task_state, "aw", @progbits
.balign 8
.global trapline_tss
trapline_tss:
    .long 0
    .quad trapline_stack_top            # rsp0, unused: every gate has its own stack
    .quad 0, 0, 0
    .quad stack_of_faults_top           # ist1
    .quad stack_of_aborts_top           # ist2
    .quad stack_of_ipi_top              # ist3
    .quad stack_of_timer_top            # ist4
    .quad stack_of_spurious_top         # ist5
    .quad stack_of_event_top            # ist6
    .quad 0, 0
    .short 0
    .short trapline_port_bitmap_offset

.section .bss.port_bitmap, "aw", @nobits
.global trapline_port_bitmap
trapline_port_bitmap:
    .zero 8193

.section .bss.stacks, "aw", @nobits
.balign 16
    .zero 16384
.global stack_of_faults_top
stack_of_faults_top:
# An abort ends the machine, so its stack may grow into that of faults.
    .zero 4096
stack_of_aborts_top:
    .zero 1024
stack_of_ipi_top:
    .zero 1024
stack_of_timer_top:
    .zero 1024
stack_of_spurious_top:
    .zero 1024
stack_of_event_top:

# --- Page tables: identity map of the first 4 GiB --------------------------
.set PRESENT,  0x01
.set TABLE,    0x27                     # present, writable, user, accessed
.set PAGE,     0x67                     # the same and dirty, so that the CPU does not write it
.set LARGE,    0xe7                     # the same, 2 MiB
.set UNCACHED, 0x18
.set FIRST_DEVICE, 0xe0000000

.section .page_tables, "aw", @progbits
.balign 4096
.global trapline_page_table
trapline_page_table:
    .quad trapline_directories + TABLE
    .zero 4096 - 8
trapline_directories:
    .set at, 0
    .rept 4
    .quad trapline_directory + at + TABLE
    .set at, at + 4096
    .endr
    .zero 4096 - 4 * 8
trapline_directory:
    .quad low_pages + TABLE
    .set at, 0x200000
    .rept 2047
    .if at < FIRST_DEVICE
    .quad at + LARGE
    .else
    .quad at + LARGE + UNCACHED
    .endif
    .set at, at + 0x200000
    .endr
# First 2 MiB in small pages, without the page below the boot stack. Page 0 is mapped, because some
# VMMs place part of the start info there.
low_pages:
    .set at, 0
    .rept 512
    .if at == {STACK_GUARD}
    .quad 0
    .else
    .quad at + PAGE
    .endif
    .set at, at + 4096
    .endr
