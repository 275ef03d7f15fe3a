//! Text from a file, as a configuration and as a tree of qdiscs: read, or refused in one line.

use crate::config;

pub(crate) fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let errors = [
        config::checked("x.toml", text, None).err(),
        config::checked_tree("x.toml", text).err(),
    ];
    for error in errors.into_iter().flatten() {
        let line = error.to_string();
        assert!(line.starts_with("x.toml:"), "{line}");
        assert!(!line.contains(char::is_control), "{line:?}");
    }
}
