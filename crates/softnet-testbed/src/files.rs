//! Files, with their paths in errors.

use std::path::Path;

use crate::error::TestbedError;

/// The text of a file.
///
/// # Errors
/// [`TestbedError::Io`] if it cannot be read.
pub fn read(path: impl AsRef<Path>) -> Result<String, TestbedError> {
    let path = path.as_ref();
    std::fs::read_to_string(path)
        .map_err(|e| TestbedError::io(format!("reading {}", path.display()), e))
}

/// Writes a file.
///
/// # Errors
/// [`TestbedError::Io`] if it cannot be written.
pub fn write(path: impl AsRef<Path>, text: &str) -> Result<(), TestbedError> {
    let path = path.as_ref();
    std::fs::write(path, text)
        .map_err(|e| TestbedError::io(format!("writing {}", path.display()), e))
}
