/* What stands between the firmware and a hypervisor: it leaves in low memory what a BIOS
   would have left there, enables VMX and locks that, and enters the hypervisor as a
   multiboot loader does, with the address of the multiboot information in EBX, where the
   firmware has put it.

   It is data to the program that carries it: no instruction is ever reached there. */

.pushsection .rodata.trapline_multiboot, "a"
.balign 16
.globl trapline_multiboot
trapline_multiboot:
.code32
        mov     word ptr [{SERIAL_PORT}], {COM1}
        mov     word ptr [{EBDA_SEGMENT}], {EBDA}
        mov     word ptr [{BASE_MEMORY}], {BASE_KIB}
        mov     ecx, {FEATURE_CONTROL}
        mov     eax, {VMX_AND_LOCK}
        xor     edx, edx
        wrmsr
        /* The port of the timer of power management, which is on PCI. */
        cmp     byte ptr [{HOME} + {HAS_PCI}], 0
        je      1f
        mov     edx, 0xcf8
        mov     eax, {PORTS_REGISTER}
        out     dx, eax
        mov     edx, 0xcfc
        mov     eax, {PORTS}
        out     dx, eax
        mov     edx, 0xcf8
        mov     eax, {ENABLE_REGISTER}
        out     dx, eax
        mov     edx, 0xcfc
        mov     al, 1
        out     dx, al
1:      mov     eax, {LOADED}
        jmp     dword ptr [{HOME} + {ENTRY}]
.org trapline_multiboot + {ENTRY}
        .long   0               /* filled in: entry of the hypervisor */
        .byte   0               /* filled in: whether there is PCI */
.org trapline_multiboot + {CODE}
.code64
.popsection
