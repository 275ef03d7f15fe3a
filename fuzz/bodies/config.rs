//! Text from a file, as a configuration and as a tree of qdiscs: read, or refused in a few lines.
//! What is read is written as it is read.

use crate::config;

pub(crate) fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let read = config::checked("x.toml", text, None);
    if let Ok((config, _)) = &read {
        let written = config::write(config);
        let again = config::checked("x.toml", &written, None);
        let again = again.unwrap_or_else(|error| panic!("{error}\n{written}"));
        assert_eq!(config::write(&again.0), written);
    }
    let errors = [read.err(), config::checked_tree("x.toml", text).err()];
    for error in errors.into_iter().flatten() {
        let lines = error.to_string();
        assert!(lines.lines().count() <= 21, "{lines}");
        for line in lines.lines() {
            assert!(line.starts_with("x.toml:"), "{line}");
            assert!(!line.contains(char::is_control), "{line:?}");
        }
    }
}
