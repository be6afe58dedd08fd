use super::*;

#[test]
fn kallsyms_name_kernel_and_modules() {
    let mut symbols = Symbols::default();
    symbols.add_kallsyms(
        AddressSpace::Kernel,
        "kernel",
        "ffffffff81000000 T _text\nffffffff81000000 T _stext\n\
         ffffffff81000100 t do_it\nffffffff81000180 d data\n\
         ffffffffc0000000 t svm_vcpu_run\t[kvm_amd]\n",
    );
    let name = |address| {
        let function = symbols.find(AddressSpace::Kernel, address);
        format!("{} {}", function.component, function.name)
    };
    assert_eq!(name(0xffff_ffff_8100_0001), "kernel _stext");
    assert_eq!(name(0xffff_ffff_8100_0190), "kernel do_it");
    assert_eq!(name(0xffff_ffff_c000_0010), "kvm_amd svm_vcpu_run");
    assert_eq!(name(0x1000), "kernel [unknown]");
    let starts = symbols.starts(AddressSpace::Kernel, |name| name.starts_with("do_"));
    assert_eq!(starts, [(AddressSpace::Kernel, 0xffff_ffff_8100_0100)]);
}

#[test]
fn code_without_a_symbol_has_the_name_of_its_file() {
    let mut symbols = Symbols::default();
    symbols.add_range(AddressSpace::User, 0x1000, 0x2000, "qemu");
    let find = |space, address| symbols.find(space, address);
    assert_eq!(find(AddressSpace::User, 0x1fff).name, "[qemu]");
    assert_eq!(find(AddressSpace::User, 0x2000).component, "program");
    assert_eq!(find(AddressSpace::Guest, 0x1fff).component, "guest");
    assert!(!symbols.has_component("qemu"));
}

#[test]
fn code_without_a_file_has_its_own_name() {
    let mut symbols = Symbols::default();
    symbols.add_function(AddressSpace::User, 0x1000..0x2000, "program", "child");
    let found = symbols.find(AddressSpace::User, 0x1800);
    assert_eq!((&*found.component, &*found.name), ("program", "child"));
    assert!(!found.is_nameless());
    assert!(symbols.find(AddressSpace::Guest, 0x1800).is_nameless());
}

fn test_program() -> Vec<u8> {
    std::fs::read(std::env::current_exe().unwrap()).unwrap()
}

#[test]
fn elf_symbols_are_added_with_their_bias() {
    let bytes = test_program();
    let mut symbols = Symbols::default();
    let space = AddressSpace::User;
    symbols.add_elf(space, "test", &bytes, 0x1000).unwrap();
    let mut entries = symbols.entries.iter();
    let main = entries.find(|(_, entry)| entry.function.name == "main");
    let ((_, start), entry) = main.unwrap();
    assert!(entry.end.is_some_and(|end| end > *start));
    assert_eq!(symbols.find(space, *start).component, "test");
    assert!(symbols.has_component("test"));
    let code = code_ranges("test", &bytes).unwrap();
    assert!(code
        .iter()
        .any(|(from, to)| (from..to).contains(&&(start - 0x1000))));
    assert!(symbols.add_elf(space, "text", b"not ELF", 0).is_err());
}

#[test]
fn function_without_a_symbol_has_its_address() {
    let mut symbols = Symbols::default();
    let space = AddressSpace::User;
    let bytes = test_program();
    symbols.add_elf(space, "test", &bytes, 0x1000).unwrap();
    let mut entries = symbols.entries.iter();
    let main = entries.find(|(_, entry)| entry.function.name == "main");
    let (start, end) = main.map(|(start, entry)| (*start, entry.end)).unwrap();
    assert_eq!(symbols.unwound[&start].end, end);
    symbols.entries.clear();
    let function = symbols.find(space, start.1 + 1);
    let name = format!("[+0x{:x}]", start.1 - 0x1000);
    assert_eq!(function.name, name);
    assert!(function.is_nameless() && symbols.begins(space, start.1));
    assert_eq!(function.stable_name(), "[test]");
    let named = Function {
        name: "operator[+0x".to_owned(),
        ..function
    };
    assert!(!named.is_nameless());
    assert_eq!(named.stable_name(), "operator[+0x");
}

#[test]
fn code_is_identified_by_its_page() {
    let bytes = test_program();
    let mut symbols = Symbols::default();
    symbols.add_file("test", &bytes).unwrap();
    let file = ElfFile::parse("test", &bytes).unwrap();
    let segment = file.code_segments().next().unwrap();
    let from = (segment.p_offset as usize).next_multiple_of(page::SIZE);
    let page = page::pages(&bytes[from..]).next().unwrap();
    let page = Some(page::fingerprint(&page));
    let address = 0x5555_5555_4010;
    let function = symbols.find_insn(AddressSpace::User, address, page);
    assert_eq!(function.component, "test");
    let in_file = segment.p_vaddr - segment.p_offset + from as u64 + 0x10;
    assert_eq!(function, symbols.find(AddressSpace::File(0), in_file));
    let unknown = symbols.find_insn(AddressSpace::User, address, Some(1));
    assert_eq!(unknown.component, "program");
}

/// The linker of Debian 13 places a small segment of one program where another program begins.
#[test]
fn an_address_belongs_to_the_shortest_range_around_it() {
    let mut symbols = Symbols::default();
    let space = AddressSpace::User;
    symbols.add_range(space, 0x1000, 0x9000, "large");
    symbols.add_range(space, 0x1000, 0x1100, "small");
    symbols.add_range(space, 0x4000, 0x5000, "page");
    let component = |address| symbols.find(space, address).component;
    assert_eq!(
        [0x10ff, 0x1100, 0x4000, 0x5000, 0x9000].map(component),
        ["small", "large", "page", "large", "program"]
    );
}

#[test]
fn mappings_of_one_file_are_merged() {
    let text = "00400000-00401000 r--p 00000000 00:02 7 /usr/bin/x\n\
                00401000-00405000 r-xp 00001000 00:02 7 /usr/bin/x\n\
                00405000-00406000 rw-p 00000000 00:00 0\n\
                7ffff7fc9000-7ffff7fcd000 r-xp 00000000 00:00 0 [vdso]\n";
    let found = mappings(text);
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].start, found[0].end), (0x40_0000, 0x40_5000));
    assert_eq!(found[1].path, "[vdso]");
}
