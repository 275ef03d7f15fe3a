//! Options that have one value in Softnet: shown, and accepted if that is what is asked for.

use crate::nl::{Attrs, Errno, Error, Message};

/// The value of an attribute.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value {
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    Bytes(&'static [u8]),
}

/// An attribute and its value.
pub(super) type Fixed = (u16, Value);

/// Puts all of a table.
pub(super) fn put(message: &mut Message<'_>, table: &[Fixed]) {
    for &(kind, value) in table {
        match value {
            Value::U8(value) => message.put_u8(kind, value),
            Value::U16(value) => message.put_u16(kind, value),
            Value::U32(value) => message.put_u32(kind, value),
            Value::U64(value) => message.put_u64(kind, value),
            Value::Bytes(value) => message.put_bytes(kind, value),
        }
    }
}

/// True if an attribute is in one of these tables.
pub(super) fn has(tables: &[&[Fixed]], kind: u16) -> bool {
    tables.iter().copied().flatten().any(|(of, _)| *of == kind)
}

/// Refuses attributes that ask for another value than that of a table.
pub(super) fn check(attrs: &Attrs<'_>, table: &[Fixed], help: &'static str) -> Result<(), Error> {
    for &(kind, value) in table {
        let Some(attr) = attrs.get(kind) else {
            continue;
        };
        let same = match value {
            Value::U8(value) => attr.u8()? == value,
            Value::U16(value) => attr.u16()? == value,
            Value::U32(value) => attr.u32()? == value,
            Value::U64(value) => attr.u64()? == value,
            Value::Bytes(value) => attr.data == value,
        };
        if !same {
            return Err(Error::new(Errno::EOPNOTSUPP).help(help).at(&attr));
        }
    }
    Ok(())
}
