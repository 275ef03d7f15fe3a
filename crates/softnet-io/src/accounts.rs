//! Users and groups by name.

use std::fs;

/// The number of a user: a number, or a name in `/etc/passwd`. `None`: no user has that name.
pub fn user_id(name: &str) -> Option<u32> {
    id("/etc/passwd", name)
}

/// The number of a group: a number, or a name in `/etc/group`.
pub(crate) fn group_id(name: &str) -> Option<u32> {
    id("/etc/group", name)
}

/// Both files have the number in the third field.
fn id(file: &str, name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut lines = text.lines().map(|line| line.split(':'));
    let mut fields =
        lines.find_map(|mut fields| (fields.next() == Some(name)).then_some(fields))?;
    fields.nth(1)?.parse().ok()
}
