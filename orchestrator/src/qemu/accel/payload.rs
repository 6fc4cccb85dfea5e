//! A guest of a few hundred bytes that does what every kernel does before its
//! first message: switches to 64-bit mode, fills fresh memory, flushes address
//! spaces, asks the processor who it is. It prints `L` in 64-bit mode, `W` when
//! it is done, and ends QEMU through `isa-debug-exit`.
//!
//! A host whose nested virtualisation is broken or absurdly slow starts such a
//! guest and never finishes it.

/// Value the payload writes to [`EXIT_PORT`]; QEMU then exits with
/// `2 * value + 1`.
const EXIT_VALUE: u8 = 0x10;
/// Exit code of QEMU when the payload has done its work.
pub const EXIT_CODE: i32 = 2 * EXIT_VALUE as i32 + 1;
/// Port of the `isa-debug-exit` device.
pub const EXIT_PORT: u16 = 0xf4;
/// Memory the payload needs, MiB.
pub const MEMORY_MIB: u32 = 256;

/// Physical address the payload is linked for.
const BASE: u32 = 0x10_0000;

#[cfg(target_arch = "x86_64")]
mod code {
    // Entered as a PVH guest (Xen's `docs/misc/pvh.pandoc`): 32-bit protected
    // mode, flat segments, paging off, interrupts off. Addresses are written as
    // 0x100000 plus an offset because the assembler does not know where the
    // code will lie. Page tables lie at 0x300000: one PML4, one PDPT, one
    // directory of 2 MiB pages.
    std::arch::global_asm!(
        r#"
        .section .rodata.topolab_probe, "a", @progbits
        .globl topolab_probe_start
        .globl topolab_probe_end
        .hidden topolab_probe_start
        .hidden topolab_probe_end
        .balign 16
        .code32
    topolab_probe_start:
        cli
        movl $0x300000, %edi
        xorl %eax, %eax
        movl $3072, %ecx
        cld
        rep stosl
        movl $0x301003, 0x300000
        movl $0x302003, 0x301000
        movl $0x302000, %edi
        movl $0x83, %eax
        movl $128, %ecx
    1:  movl %eax, (%edi)
        addl $0x200000, %eax
        addl $8, %edi
        loop 1b
        movl %cr4, %eax
        orl $0x20, %eax
        movl %eax, %cr4
        movl $0x300000, %eax
        movl %eax, %cr3
        movl $0xc0000080, %ecx
        rdmsr
        orl $0x100, %eax
        wrmsr
        movl %cr0, %eax
        orl $0x80000001, %eax
        movl %eax, %cr0
        lgdt (0x100000 + 5f - topolab_probe_start)
        ljmp $8, $(0x100000 + 2f - topolab_probe_start)
        .code64
    2:  movl $16, %eax
        movl %eax, %ds
        movl %eax, %es
        movl %eax, %ss
        movl $0x3f8, %edx
        movb $'L', %al
        outb %al, %dx
        /* 128 MiB from 16 MiB on */
        movl $0x1000000, %edi
        movl $0x1000000, %ecx
        movl $0x55, %eax
        rep stosq
        movl $1000, %esi
    3:  movq %cr3, %rax
        movq %rax, %cr3
        movl (0x1000000), %eax
        xorl %eax, %eax
        cpuid
        decl %esi
        jnz 3b
        movl $0x3f8, %edx
        movb $'W', %al
        outb %al, %dx
        movl $0xf4, %edx
        movb $0x10, %al
        outb %al, %dx
    4:  hlt
        jmp 4b
        .balign 8
    6:  .quad 0
        .quad 0x00af9a000000ffff
        .quad 0x00cf92000000ffff
    5:  .word 23
        .long 0x100000 + 6b - topolab_probe_start
    topolab_probe_end:
        .previous
        "#,
        options(att_syntax)
    );

    unsafe extern "C" {
        static topolab_probe_start: u8;
        static topolab_probe_end: u8;
    }

    pub fn bytes() -> &'static [u8] {
        let start = &raw const topolab_probe_start;
        let end = &raw const topolab_probe_end;
        // SAFETY: both labels stand in one read-only section, the second after
        // the first, and what lies between is never written.
        unsafe {
            let len =
                usize::try_from(end.offset_from(start)).expect("the end comes after the start");
            std::slice::from_raw_parts(start, len)
        }
    }
}

/// The payload as an ELF file that QEMU's `-kernel` takes as a PVH guest;
/// nothing on hosts of other architectures.
pub fn elf() -> Option<Vec<u8>> {
    #[cfg(target_arch = "x86_64")]
    return Some(wrap(code::bytes()));
    #[cfg(not(target_arch = "x86_64"))]
    return None;
}

/// A 64-bit ELF file with one segment and the note that names the entry point
/// (`XEN_ELFNOTE_PHYS32_ENTRY`, type 18).
#[cfg(target_arch = "x86_64")]
fn wrap(code: &[u8]) -> Vec<u8> {
    const HEADER: u64 = 64;
    const SEGMENT: u64 = 56;
    const NOTE: u64 = 20;
    let note_at = HEADER + 2 * SEGMENT;
    let code_at = note_at + NOTE;
    let length = code.len() as u64;
    let mut out = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let half = |out: &mut Vec<u8>, values: &[u16]| {
        values.iter().for_each(|v| out.extend(v.to_le_bytes()));
    };
    let word = |out: &mut Vec<u8>, values: &[u32]| {
        values.iter().for_each(|v| out.extend(v.to_le_bytes()));
    };
    let long = |out: &mut Vec<u8>, values: &[u64]| {
        values.iter().for_each(|v| out.extend(v.to_le_bytes()));
    };
    half(&mut out, &[2, 62]); // executable, x86-64
    word(&mut out, &[1]);
    long(&mut out, &[u64::from(BASE), HEADER, 0]);
    word(&mut out, &[0]);
    half(&mut out, &[64, 56, 2, 0, 0, 0]);
    word(&mut out, &[1, 7]); // PT_LOAD, readable, writable, executable
    let base = u64::from(BASE);
    long(&mut out, &[code_at, base, base, length, length, 1]);
    word(&mut out, &[4, 4]); // PT_NOTE, readable
    long(&mut out, &[note_at, 0, 0, NOTE, NOTE, 4]);
    word(&mut out, &[4, 4, 18]);
    out.extend(b"Xen\0");
    word(&mut out, &[BASE]);
    out.extend(code);
    out
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use object::{Object, ObjectSection as _, ObjectSegment};

    use super::*;

    #[test]
    fn the_file_is_sound_and_holds_the_code_at_its_address() {
        let file = elf().unwrap();
        let parsed = object::File::parse(&*file).unwrap();
        assert_eq!(parsed.entry(), u64::from(BASE));
        assert_eq!(parsed.sections().map(|s| s.size()).sum::<u64>(), 0);
        let segment = parsed.segments().next().unwrap();
        assert_eq!(segment.address(), u64::from(BASE));
        assert_eq!(segment.data().unwrap(), code::bytes());
        assert_eq!(code::bytes()[0], 0xfa, "cli");
    }
}
