//! Hostile streams and files of packets: the fuzzers' corpora.

use crate::corpus;

#[path = "../../../../fuzz/bodies/frames.rs"]
mod frames;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

#[test]
fn streams() {
    corpus::replay(ROOT.as_ref(), "stream_frames", frames::stream);
}

#[test]
fn packet_files() {
    corpus::replay(ROOT.as_ref(), "packet_file", frames::packet_file);
}

/// Corpora that are cut, and changed in one byte.
#[test]
fn damaged_inputs() {
    for (target, body) in [
        ("stream_frames", frames::stream as fn(&[u8])),
        ("packet_file", frames::packet_file),
    ] {
        let folder = std::path::Path::new(ROOT).join("fuzz/corpus").join(target);
        for entry in std::fs::read_dir(folder).expect("the corpus is committed") {
            let path = entry.expect("the folder can be read").path();
            let input = std::fs::read(path).expect("an input can be read");
            let input = &input[..input.len().min(400)];
            for at in 0..input.len() {
                body(&input[..at]);
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut changed = input.to_vec();
                    changed[at] = value;
                    body(&changed);
                }
            }
        }
    }
}
