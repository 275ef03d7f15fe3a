//! Rates and times as people read them.

/// `12.3 Mbit/s`.
pub(super) fn rate(bits: u64) -> String {
    let (scale, unit) = match bits {
        0..1_000 => return format!("{bits} bit/s"),
        1_000..1_000_000 => (1e3, "kbit/s"),
        1_000_000..1_000_000_000 => (1e6, "Mbit/s"),
        _ => (1e9, "Gbit/s"),
    };
    format!("{:.3} {unit}", bits as f64 / scale)
}

/// `1.234 ms`.
pub(super) fn time(nanos: u64) -> String {
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.3} µs", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.3} ms", nanos as f64 / 1e6),
        _ => format!("{:.3} s", nanos as f64 / 1e9),
    }
}
