/* The multiboot header (Multiboot Specification 0.6.96, 3.1.1), and the entry of a multiboot kernel (3.2),
   which converts the multiboot information (3.3) to a PVH start info and enters the image. It is linked
   at no address: a loader places it at {ADDRESS}.

   ebx: address of the multiboot information */

.pushsection .rodata.trapline_multiboot_image, "a"
.balign 16
.globl trapline_multiboot_image
trapline_multiboot_image:
        .long   {HEADER_MAGIC}
        .long   {HEADER_FLAGS}
        .long   -({HEADER_MAGIC} + {HEADER_FLAGS})

/* Replaced by the PVH entry of the image. */
.org trapline_multiboot_image + {PVH}
        .long   0

.org trapline_multiboot_image + {ENTRY}
.code32
        cli
        cld
        mov     edi, {INFO}
        mov     ecx, {INFO_WORDS}
        xor     eax, eax
        rep stosd
        mov     edi, {INFO}
        mov     dword ptr [edi], {MAGIC}
        mov     dword ptr [edi + 4], 1
        mov     ecx, [ebx]                      /* flags */
        test    cl, 1 << 2
        jz      .Lmultiboot_map
        mov     eax, [ebx + 16]                 /* cmdline */
        mov     [edi + 24], eax

/* Entries of a memory map: a size of the rest, then address, length and type. */
.Lmultiboot_map:
        lea     edx, [edi + {INFO_WORDS} * 4]
        mov     [edi + 40], edx
        xor     ebp, ebp                        /* number of entries */
        test    cl, 1 << 6
        jz      .Lmultiboot_upper
        mov     esi, [ebx + 48]                 /* mmap_addr */
        mov     ebx, [ebx + 44]                 /* mmap_length */
        add     ebx, esi
.Lmultiboot_entry:
        cmp     esi, ebx
        jae     .Lmultiboot_start
        cmp     ebp, {MAX_ENTRIES}
        je      .Lmultiboot_start
        mov     eax, [esi]
        lea     eax, [esi + eax + 4]
        add     esi, 4
        mov     edi, edx
        mov     ecx, 5
        rep movsd
        mov     dword ptr [edi], 0
        add     edx, 24
        inc     ebp
        mov     esi, eax
        jmp     .Lmultiboot_entry

/* Without a memory map: mem_upper, KiB from 1 MiB on. */
.Lmultiboot_upper:
        mov     eax, [ebx + 8]
        shl     eax, 10
        mov     dword ptr [edx], 0x100000
        mov     dword ptr [edx + 4], 0
        mov     [edx + 8], eax
        mov     dword ptr [edx + 12], 0
        mov     dword ptr [edx + 16], 1
        mov     dword ptr [edx + 20], 0
        inc     ebp

.Lmultiboot_start:
        mov     [{INFO} + 48], ebp
        mov     ebx, {INFO}
        jmp     dword ptr [{ADDRESS} + {PVH}]
.org trapline_multiboot_image + {SIZE}
.code64
.popsection
