//! The properties of an ELF file that decide how it is run: its machine, its dynamic loader, its
//! language.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Properties that matter for preloading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Elf {
    /// Word size, byte order and machine. Libraries of another kind cannot be loaded.
    pub(super) machine: Machine,
    /// The path of its dynamic loader; none if it is statically linked.
    pub(super) loader: Option<String>,
    /// Compiled by Go, whose programs make system calls without the C library.
    pub(super) is_go: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    class: u8,
    order: u8,
    number: u16,
}

pub(super) const MAGIC: &[u8] = b"\x7fELF";
const HEADER: usize = 64;
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
/// More than any program has, in bytes: program headers, a loader's path, notes.
const LONGEST: u64 = 64 << 10;

impl Elf {
    /// Reads a file that starts with [`MAGIC`]. For another word size or byte order than ours only
    /// the machine is read.
    pub(super) fn read(file: &File) -> io::Result<Elf> {
        let header = bytes(file, 0, HEADER as u64)?;
        let number = |at: usize, len: usize| little_endian(&header, at, len);
        let machine = Machine {
            class: number(4, 1)? as u8,
            order: number(5, 1)? as u8,
            number: number(18, 2)? as u16,
        };
        let mut elf = Elf {
            machine,
            loader: None,
            is_go: false,
        };
        if machine.class != CLASS_64 || machine.order != LITTLE_ENDIAN {
            return Ok(elf);
        }
        let (size, count) = (number(54, 2)?, number(56, 2)?);
        let headers = bytes(file, number(32, 8)?, size * count)?;
        for header in headers.chunks_exact((size as usize).max(1)) {
            let kind = little_endian(header, 0, 4)? as u32;
            let content = || {
                let (offset, len) = (little_endian(header, 8, 8)?, little_endian(header, 32, 8)?);
                bytes(file, offset, len)
            };
            match kind {
                PT_INTERP => {
                    let path = String::from_utf8_lossy(&content()?).into_owned();
                    elf.loader = Some(path.trim_end_matches('\0').to_owned());
                }
                PT_NOTE => elf.is_go |= has_note_of_go(&content()?),
                _ => {}
            }
        }
        Ok(elf)
    }
}

/// True if one of the notes has the owner `Go`.
fn has_note_of_go(mut notes: &[u8]) -> bool {
    while let (Ok(name), Ok(content)) = (little_endian(notes, 0, 4), little_endian(notes, 4, 4)) {
        if name == 4 && notes.get(12..16) == Some(b"Go\0\0") {
            return true;
        }
        // Both numbers have 32 bits; their sum does not wrap.
        let len = 12 + name.next_multiple_of(4) + content.next_multiple_of(4);
        notes = notes.get(len as usize..).unwrap_or_default();
    }
    false
}

fn bytes(file: &File, offset: u64, len: u64) -> io::Result<Vec<u8>> {
    if len > LONGEST {
        return Err(malformed());
    }
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// The number of `len` bytes at `at`.
fn little_endian(bytes: &[u8], at: usize, len: usize) -> io::Result<u64> {
    let bytes = bytes.get(at..at + len).ok_or_else(malformed)?;
    Ok(bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its ELF header is malformed")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(content: &[u8]) -> io::Result<Elf> {
        let fd = rustix::fs::memfd_create("elf", rustix::fs::MemfdFlags::CLOEXEC)?;
        let mut file = File::from(fd);
        file.write_all(content)?;
        Elf::read(&file)
    }

    /// A header and one program header, whose content follows.
    fn file(kind: u32, content: &[u8]) -> Vec<u8> {
        let mut file = vec![0; HEADER + 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[18] = 62;
        file[32] = HEADER as u8;
        file[54] = 56;
        file[56] = 1;
        file[HEADER..HEADER + 4].copy_from_slice(&kind.to_le_bytes());
        file[HEADER + 8] = HEADER as u8 + 56;
        file[HEADER + 32] = content.len() as u8;
        file.extend_from_slice(content);
        file
    }

    #[test]
    fn loader_and_language_are_read() {
        let elf = read(&file(PT_INTERP, b"/lib64/ld.so\0")).expect("well-formed");
        assert_eq!(elf.loader.as_deref(), Some("/lib64/ld.so"));
        assert_eq!((elf.machine.number, elf.is_go), (62, false));
        let elf = read(&file(7, b"")).expect("well-formed");
        assert_eq!(elf.loader, None);
        // Another note first, whose name and content are padded.
        let mut notes = b"\x03\0\0\0\x01\0\0\0\x01\0\0\0GN\0\0x\0\0\0".to_vec();
        notes.extend_from_slice(b"\x04\0\0\0\x02\0\0\0\x04\0\0\0Go\0\0id\0\0");
        assert!(read(&file(PT_NOTE, &notes)).expect("well-formed").is_go);
        assert!(!read(&file(PT_NOTE, &notes[..20])).expect("notes").is_go);
    }

    #[test]
    fn lying_headers_are_errors() {
        let good = file(PT_INTERP, b"/lib64/ld.so\0");
        for len in 0..good.len() {
            assert!(read(&good[..len]).is_err(), "cut to {len}");
        }
        // No position makes it panic or take much memory.
        for at in 0..HEADER + 56 {
            let mut bad = good.clone();
            bad[at] = 0xff;
            let _ = read(&bad);
        }
        let mut huge = good;
        huge[HEADER + 32..HEADER + 40].fill(0xff);
        assert!(read(&huge).is_err());
    }

    #[test]
    fn other_machines_are_known_as_such() {
        let mut file = file(PT_INTERP, b"/lib/ld.so\0");
        file[4] = 1;
        let elf = read(&file).expect("32 bits");
        assert_eq!((elf.machine.class, elf.loader), (1, None));
    }
}
