//! tc's units, as tc(8) (PARAMETERS: RATES, TIMES, SIZES) defines them. Units are read without
//! regard to case, numbers may have a fraction, results are rounded down as tc rounds them. What
//! tc reads differently from what one might expect is kept: a rate's `kbit` is 1000 bits, a size's
//! `kbit` is 1024 bits, a rate's `kbps` is kilo*bytes*.

use std::fmt;
use std::str::FromStr;

/// Bits per unit of a rate.
const RATES: &[(&str, f64)] = &[
    ("", 1.0),
    ("bit", 1.0),
    ("kbit", 1e3),
    ("mbit", 1e6),
    ("gbit", 1e9),
    ("tbit", 1e12),
    ("kibit", KIB),
    ("mibit", MIB),
    ("gibit", GIB),
    ("tibit", TIB),
    ("bps", 8.0),
    ("kbps", 8e3),
    ("mbps", 8e6),
    ("gbps", 8e9),
    ("tbps", 8e12),
    ("kibps", 8.0 * KIB),
    ("mibps", 8.0 * MIB),
    ("gibps", 8.0 * GIB),
    ("tibps", 8.0 * TIB),
];

/// Bytes per unit of a size.
const SIZES: &[(&str, f64)] = &[
    ("", 1.0),
    ("b", 1.0),
    ("k", KIB),
    ("kb", KIB),
    ("m", MIB),
    ("mb", MIB),
    ("g", GIB),
    ("gb", GIB),
    ("kbit", KIB / 8.0),
    ("mbit", MIB / 8.0),
    ("gbit", GIB / 8.0),
];

/// Nanoseconds per unit of a time.
const TIMES: &[(&str, f64)] = &[
    ("", 1e3),
    ("ns", 1.0),
    ("nsec", 1.0),
    ("nsecs", 1.0),
    ("us", 1e3),
    ("usec", 1e3),
    ("usecs", 1e3),
    ("ms", 1e6),
    ("msec", 1e6),
    ("msecs", 1e6),
    ("s", 1e9),
    ("sec", 1e9),
    ("secs", 1e9),
];

/// The highest rate, in bytes per second, of qdiscs, classes and rate groups.
pub const MAX_RATE: u64 = 1_000_000_000_000;

const KIB: f64 = 1024.0;
const MIB: f64 = KIB * 1024.0;
const GIB: f64 = MIB * 1024.0;
const TIB: f64 = GIB * 1024.0;

/// Cause for which a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// No number in front.
    #[error("{0:?} is not a number with a unit; write it like {1}")]
    NotANumber(String, &'static str),
    /// A unit that tc does not have for this kind of quantity.
    #[error("{0:?} is not a unit of {1}; write it like {2}")]
    Unit(String, &'static str, &'static str),
    /// tc's percentage of the device's speed.
    #[error(
        "a percentage is of the device's link speed, which is not known here; give bits per \
         second, like 100mbit"
    )]
    Percent,
    /// More than the whole speed, or nothing of it.
    #[error("{0:?} is no share of a speed; use 0.0001% to 100%")]
    Share(String),
    /// The number does not fit.
    #[error("{0:?} is too large")]
    TooLarge(String),
}

/// A rate, read as tc reads it.
///
/// ```
/// use softnet_tc::units::Rate;
///
/// let rate: Rate = "100mbit".parse()?;
/// assert_eq!(rate, Rate::bits_per_second(100_000_000));
/// assert_eq!(rate.bytes(), 12_500_000);
/// # Ok::<(), softnet_tc::units::UnitError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// A rate in bits per second, rounded down to whole bytes.
    pub const fn bits_per_second(bits: u64) -> Rate {
        Rate(bits / 8)
    }

    /// A rate in bytes per second, as the parameters of qdiscs have it.
    pub const fn bytes_per_second(bytes: u64) -> Rate {
        Rate(bytes)
    }

    /// Bytes per second.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Rate {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Rate, UnitError> {
        rate(text).map(Rate)
    }
}

/// Speed at which shares are checked where no link has told its own: bytes per second of 1 Gb/s.
pub const NOMINAL_SPEED: u64 = 125_000_000;

/// A share of a link's speed, as tc writes one: `50%`. In millionths, from 1 to all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u32);

impl Share {
    /// Rate that the share is of a speed, both in bytes per second, rounded down, and at least 1.
    pub fn of(self, speed: u64) -> u64 {
        let rate = u128::from(speed) * u128::from(self.0) / 1_000_000;
        // It is not more than the speed.
        u64::try_from(rate).unwrap_or(speed).max(1)
    }
}

impl FromStr for Share {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Share, UnitError> {
        let millionths = quantity(text, &[("%", 1e4)], "a share of a speed", "50%")?;
        let millionths = millionths.round_ties_even();
        if !(1.0..=1e6).contains(&millionths) {
            return Err(UnitError::Share(text.trim().to_owned()));
        }
        Ok(Share(millionths as u32))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 1e4)
    }
}

/// A number of bytes, read as tc reads sizes: `32k` is 32,768.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// Bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<ByteSize, UnitError> {
        size(text).map(ByteSize)
    }
}

/// A rate in bytes per second: `100mbit`, `1gibit`, `12mbps` (bytes), or a bare number of bits per
/// second.
///
/// # Errors
/// [`UnitError`] for what tc would not read, and for a percentage.
pub fn rate(text: &str) -> Result<u64, UnitError> {
    if text.trim_end().ends_with('%') {
        return Err(UnitError::Percent);
    }
    quantity(text, RATES, "a rate", "100mbit").and_then(|bits| whole(text, bits / 8.0))
}

/// Two readings of a rate in bytes, such as `100Mbps`: as many bits, and the same rate in bits.
pub fn rate_in_bytes(text: &str) -> Option<(String, String)> {
    rate(text).ok()?;
    let text = text.trim();
    let (number, unit) = text.split_at(number_len(text));
    let unit = unit.to_ascii_lowercase();
    let prefix = unit.strip_suffix("bps")?;
    let same = 8.0 * number.parse::<f64>().ok()?;
    Some((format!("{number}{prefix}bit"), format!("{same}{prefix}bit")))
}

/// A size in bytes: `32k` (1024 each), `1mb`, `64kbit`, or a bare number of bytes.
///
/// # Errors
/// [`UnitError`] for what tc would not read.
pub fn size(text: &str) -> Result<u64, UnitError> {
    quantity(text, SIZES, "a size", "32k").and_then(|bytes| whole(text, bytes))
}

/// A length of time in nanoseconds: `50ms`, `1s`, `20us`, or a bare number of microseconds.
///
/// # Errors
/// [`UnitError`] for what tc would not read.
pub fn time(text: &str) -> Result<u64, UnitError> {
    quantity(text, TIMES, "a time", "50ms").and_then(|nanos| whole(text, nanos))
}

/// A probability of 2^32 - 1, rounded as tc rounds it: `25%`, `0.1%`, or a bare number of percent.
///
/// # Errors
/// [`UnitError`] for what tc would not read, and for more than 100 %.
pub fn percent(text: &str) -> Result<u64, UnitError> {
    let percent = quantity(text, &[("", 1.0), ("%", 1.0)], "a probability", "25%")?;
    if percent > 100.0 {
        return Err(UnitError::TooLarge(text.trim().to_owned()));
    }
    whole(
        text,
        (percent / 100.0 * f64::from(u32::MAX)).round_ties_even(),
    )
}

/// The text of a probability of 2^32 - 1, which [`percent`] reads as the same.
pub fn percent_text(probability: u64) -> String {
    format!("{}%", probability as f64 * 100.0 / f64::from(u32::MAX))
}

/// Number times unit.
fn quantity(
    text: &str,
    units: &[(&str, f64)],
    kind: &'static str,
    example: &'static str,
) -> Result<f64, UnitError> {
    let text = text.trim();
    let (number, unit) = text.split_at(number_len(text));
    let not_a_number = || UnitError::NotANumber(text.to_owned(), example);
    let number: f64 = number.parse().map_err(|_| not_a_number())?;
    let (_, scale) = units
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit))
        .ok_or_else(|| UnitError::Unit(unit.to_owned(), kind, example))?;
    Ok(number * scale)
}

/// Length of the number in front: digits, a point, an exponent that is followed by digits. No
/// sign.
fn number_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |from: usize| {
        bytes[from..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count()
    };
    let mut len = digits(0);
    if bytes.get(len) == Some(&b'.') {
        len += 1 + digits(len + 1);
    }
    if len > 0 && matches!(bytes.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
        let exponent = digits((len + 1 + sign).min(bytes.len()));
        if exponent > 0 {
            len += 1 + sign + exponent;
        }
    }
    len
}

/// Rounds down; refuses what no qdisc could count with.
fn whole(text: &str, value: f64) -> Result<u64, UnitError> {
    // 2^63: exactly representable, so the comparison is exact.
    if !(0.0..9_223_372_036_854_775_808.0).contains(&value) {
        return Err(UnitError::TooLarge(text.trim().to_owned()));
    }
    Ok(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates that iproute2 6.1's `tc -d qdisc show` printed for the same text.
    #[test]
    fn rates_are_what_tc_makes_of_them() {
        for (text, bits) in [
            ("100mbit", 100_000_000_u64),
            ("1kibit", 1024),
            ("8", 8),
            ("1MBps", 8_000_000),
            ("1gibps", 8_589_934_592),
            ("2.5gbit", 2_500_000_000),
            ("1e3kbit", 1_000_000),
            ("1Tbit", 1_000_000_000_000),
            ("1tibit", 1_099_511_627_776),
            ("10kbps", 80_000),
            (" 1mbit ", 1_000_000),
            (".5kbit", 500),
        ] {
            assert_eq!(rate(text), Ok(bits / 8), "{text}");
        }
        assert_eq!(rate("15"), Ok(1), "rounded down to whole bytes");
    }

    #[test]
    fn rates_and_sizes_are_parsed_as_types() {
        assert_eq!("1kbit".parse(), Ok(Rate::bits_per_second(1000)));
        assert_eq!(Rate::bits_per_second(1015), Rate::bytes_per_second(126));
        assert_eq!("32k".parse(), Ok(ByteSize(32 * 1024)));
        assert!("".parse::<Rate>().is_err() && "1bps".parse::<ByteSize>().is_err());
    }

    #[test]
    fn sizes_are_what_tc_makes_of_them() {
        for (text, bytes) in [
            ("32k", 32_768),
            ("1mbit", 131_072),
            ("10kb", 10_240),
            ("64000b", 64_000),
            ("64000", 64_000),
            ("1.5kb", 1536),
            ("2M", 2_097_152),
            ("1gb", 1_073_741_824),
            ("1g", 1_073_741_824),
            ("8kbit", 1024),
            ("1gbit", 134_217_728),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn times_are_what_tc_makes_of_them() {
        for (text, nanos) in [
            ("50ms", 50_000_000),
            ("1msec", 1_000_000),
            ("2000", 2_000_000),
            ("1s", 1_000_000_000),
            ("1sec", 1_000_000_000),
            ("3secs", 3_000_000_000),
            ("7us", 7_000),
            ("7usecs", 7_000),
            ("9ns", 9),
            ("1.5ms", 1_500_000),
        ] {
            assert_eq!(time(text), Ok(nanos), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        assert_eq!(rate("50%"), Err(UnitError::Percent));
        assert!(matches!(rate("1k"), Err(UnitError::Unit(unit, ..)) if unit == "k"));
        assert!(matches!(rate("10ms"), Err(UnitError::Unit(..))));
        assert!(matches!(size("10p"), Err(UnitError::Unit(..))));
        assert!(
            matches!(size("1kibit"), Err(UnitError::Unit(..))),
            "tc has no IEC sizes"
        );
        assert!(matches!(time("50m"), Err(UnitError::Unit(..))));
        for text in ["", "mbit", "-1mbit", "nan", "inf", ".", "e5", "+1", "ü"] {
            assert!(
                matches!(rate(text), Err(UnitError::NotANumber(..))),
                "{text:?}"
            );
        }
        assert!(matches!(rate("1e300"), Err(UnitError::TooLarge(_))));
        assert!(matches!(size("9e9999"), Err(UnitError::TooLarge(_))));
        assert!(
            matches!(rate("1ekbit"), Err(UnitError::Unit(..))),
            "an exponent needs digits"
        );
    }

    #[test]
    fn shares_are_of_a_speed_and_are_written_exactly() {
        let of = |text: &str| text.parse::<Share>().map(|share| share.of(NOMINAL_SPEED));
        for (text, rate) in [
            ("100%", NOMINAL_SPEED),
            ("50%", NOMINAL_SPEED / 2),
            (" 0.0001% ", 125),
            ("33.3333%", 41_666_625),
        ] {
            assert_eq!(of(text), Ok(rate), "{text}");
        }
        for wrong in [
            "0%", "100.1%", "0.00001%", "-1%", "50", "50mbit", "%", "50%%", "1e9%", "1e999%",
            "nan%",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        for millionths in (1..=1_000_000).step_by(7_777).chain([1_000_000]) {
            let share = Share(millionths);
            assert_eq!(share.to_string().parse(), Ok(share));
            assert_eq!(share.of(u64::MAX) <= u64::MAX / 10, millionths <= 100_000);
        }
        assert_eq!(Share(1).of(0), 1);
    }

    #[test]
    fn probabilities_are_what_tc_makes_of_them_and_are_written_exactly() {
        for (text, number) in [
            ("0", 0),
            ("100%", u32::MAX.into()),
            ("1%", 42_949_673),
            ("0.5", 21_474_836),
            ("1e-7%", 4),
        ] {
            assert_eq!(percent(text), Ok(number), "{text}");
        }
        for wrong in ["100.1%", "-1%", "x", "5ms"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
        let spread = (0..=u32::MAX)
            .step_by(77_777_777)
            .chain(0..100)
            .chain([u32::MAX - 1]);
        for number in spread.map(u64::from) {
            assert_eq!(percent(&percent_text(number)), Ok(number));
        }
    }
}
