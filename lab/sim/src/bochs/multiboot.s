/* What stands between the firmware and Xen: it leaves in low memory what a BIOS would
   have left there, and enters Xen as a multiboot loader does, with the address of what
   Xen is told in EBX, where the firmware has put it.

   It is data to the program that carries it: no instruction is ever reached there. */

.pushsection .rodata.trapline_multiboot, "a"
.balign 16
.globl trapline_multiboot
trapline_multiboot:
.code32
        mov     word ptr [{EBDA_SEGMENT}], {EBDA}
        mov     word ptr [{BASE_MEMORY}], {BASE_KIB}
        mov     eax, {LOADED}
        jmp     dword ptr [{HOME} + {ENTRY}]
.org trapline_multiboot + {ENTRY}
        .long   0               /* filled in: where Xen begins */
.org trapline_multiboot + {CODE}
.code64
.popsection
