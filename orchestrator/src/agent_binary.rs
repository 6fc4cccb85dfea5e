//! The guest agent's program, embedded in this one.

use std::sync::OnceLock;

use sha2::{Digest, Sha256};

/// The agent: a static x86-64 Linux executable, built together with this
/// crate by its build script.
pub fn bytes() -> &'static [u8] {
    include_bytes!(env!("TOPOLAB_AGENT"))
}

/// SHA-256 of [`bytes`], lower-case hex. Names the agent in run records and
/// images.
pub fn sha256() -> &'static str {
    static SUM: OnceLock<String> = OnceLock::new();
    SUM.get_or_init(|| format!("{:x}", Sha256::digest(bytes())))
}

#[cfg(test)]
mod tests {
    use object::elf;
    use object::read::elf::{FileHeader, ProgramHeader};

    /// A guest of nothing but the agent has no loader and no libraries.
    #[test]
    fn the_agent_needs_nothing_of_the_guest() {
        let data = super::bytes();
        let header = elf::FileHeader64::<object::Endianness>::parse(data).unwrap();
        let endian = header.endian().unwrap();
        assert_eq!(header.e_machine(endian), elf::EM_X86_64);
        let segments = header.program_headers(endian, data).unwrap();
        assert!(
            segments
                .iter()
                .all(|segment| segment.p_type(endian) != elf::PT_INTERP),
            "the agent asks for a loader"
        );
    }

    #[test]
    fn its_hash_is_hex() {
        assert_eq!(super::sha256().len(), 64);
    }
}
