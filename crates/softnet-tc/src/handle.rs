//! `major:minor`, by which tc names qdiscs (`1:`) and their classes (`1:2`). Both numbers are
//! hexadecimal, as in tc.

use std::fmt;
use std::str::FromStr;

/// The name of a qdisc (minor 0) or of a class, and the meaning of a priority above 65535
/// (`TC_H_*`).
#[derive(Clone, Copy, Debug, Default, Eq)]
pub struct Handle(u32);

impl PartialEq for Handle {
    fn eq(&self, other: &Handle) -> bool {
        #[cfg(test)]
        count_comparison();
        self.0 == other.0
    }
}

impl Ord for Handle {
    fn cmp(&self, other: &Handle) -> std::cmp::Ordering {
        #[cfg(test)]
        count_comparison();
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Handle {
    fn partial_cmp(&self, other: &Handle) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
thread_local! {
    static COMPARISONS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
fn count_comparison() {
    COMPARISONS.set(COMPARISONS.get() + 1);
}

/// Comparisons of handles by this thread so far: what searches cost.
#[cfg(test)]
pub(crate) fn comparisons() -> u64 {
    COMPARISONS.get()
}

impl Handle {
    /// Parent of a device's root qdisc (`TC_H_ROOT`).
    pub const ROOT: Handle = Handle(u32::MAX);
    /// No name: one is to be chosen (`TC_H_UNSPEC`).
    pub const NONE: Handle = Handle(0);
    /// The first name chosen for a qdisc that was given none, as in Linux (`8001:`).
    pub(crate) const FIRST_CHOSEN: u16 = 0x8001;

    /// `major:minor`.
    pub const fn new(major: u16, minor: u16) -> Handle {
        Handle((major as u32) << 16 | minor as u32)
    }

    /// From the 32 bits in which the kernel's interface, and a packet's priority, carry it.
    pub const fn from_raw(raw: u32) -> Handle {
        Handle(raw)
    }

    /// The 32 bits; see [`from_raw`](Handle::from_raw).
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// The qdisc's number.
    pub const fn major(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// The class's number; 0 for a qdisc.
    pub const fn minor(self) -> u16 {
        self.0 as u16
    }

    /// The qdisc that this class belongs to.
    pub const fn qdisc(self) -> Handle {
        Handle(self.0 & 0xFFFF_0000)
    }

    /// Class `minor` of the same qdisc.
    pub const fn class(self, minor: u16) -> Handle {
        Handle(self.0 & 0xFFFF_0000 | minor as u32)
    }

    /// True if it names a qdisc, and not a class, the root or nothing.
    pub fn is_qdisc(self) -> bool {
        self.minor() == 0 && self.major() != 0 && self != Handle::ROOT
    }
}

impl fmt::Display for Handle {
    /// As tc prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.major(), self.minor()) {
            (u16::MAX, u16::MAX) => f.write_str("root"),
            (0, 0) => f.write_str("none"),
            (0, minor) => write!(f, ":{minor:x}"),
            (major, 0) => write!(f, "{major:x}:"),
            (major, minor) => write!(f, "{major:x}:{minor:x}"),
        }
    }
}

/// A text that is no handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a qdisc's handle is written \"1:\", a class's \"1:2\", with hexadecimal numbers up to ffff"
)]
pub struct BadHandle;

impl FromStr for Handle {
    type Err = BadHandle;

    fn from_str(text: &str) -> Result<Handle, BadHandle> {
        if text == "root" {
            return Ok(Handle::ROOT);
        }
        let number = |part: &str| match part {
            "" => Ok(0),
            _ if part.starts_with('+') => Err(BadHandle),
            _ => u16::from_str_radix(part, 16).map_err(|_| BadHandle),
        };
        let (major, minor) = text.split_once(':').ok_or(BadHandle)?;
        let handle = Handle::new(number(major)?, number(minor)?);
        // ffff:ffff is the root, and a name starts with a major number.
        if handle == Handle::ROOT || handle.major() == 0 {
            return Err(BadHandle);
        }
        Ok(handle)
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    #[test]
    fn as_tc_writes_them() {
        for (text, major, minor) in [
            ("1:", 1, 0),
            ("1:2", 1, 2),
            ("ffff:", 0xffff, 0),
            ("a:10", 10, 16),
        ] {
            let handle: Handle = text.parse().unwrap();
            assert_eq!((handle.major(), handle.minor()), (major, minor));
            assert_eq!(handle.to_string(), text);
        }
        assert_eq!(Handle::new(0, 10).to_string(), ":a");
        assert_eq!("root".parse(), Ok(Handle::ROOT));
        assert_eq!(Handle::ROOT.to_string(), "root");
        for bad in [
            "",
            ":",
            "1",
            ":2",
            "g:",
            "1:2:3",
            "10000:",
            "ffff:ffff",
            "-1:",
            "+1:",
            "1 :",
        ] {
            assert_eq!(bad.parse::<Handle>(), Err(BadHandle), "{bad:?}");
        }
    }
}
