//! Service curves: the bytes that are due to a class by a time. Two straight pieces each.
//!
//! Numbers are those of the kernel's scheduler, so that the same packets leave at the same times:
//! time in ticks of 64 ns, slopes in 2^-24 bytes a tick, inverse slopes in 2^-14 ticks a byte, both
//! rounded up. Sums that do not fit end at the greatest number, where the kernel's wrap; that of
//! times is [`NEVER`].

use std::hint::select_unpredictable;
use std::num::NonZero;

use softnet::time::Time;

/// Nanoseconds of a tick.
const TICK: u64 = 64;
/// Ticks of a second.
const SECOND: u64 = 1_000_000_000 / TICK;
const MICROS: u64 = 1_000_000;
const SLOPE_SHIFT: u32 = 24;
const INVERSE_SHIFT: u32 = 14;

/// A time that never comes, in ticks. None is later, and one more fits in a word.
pub(super) const NEVER: u64 = u64::MAX - 1;

/// A time so many ticks after another one.
#[inline]
pub(super) fn later(tick: u64, by: u64) -> u64 {
    tick.saturating_add(by).min(NEVER)
}

/// The tick of a time.
pub(super) fn ticks(time: Time) -> u64 {
    time.nanos() / TICK
}

/// When a tick begins.
pub(super) fn time_of(ticks: u64) -> Time {
    Time(ticks.saturating_mul(TICK))
}

/// A service curve as a request gives it: a rate, and for a while another one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCurve {
    /// Bytes a second of the first piece.
    pub m1: u32,
    /// Microseconds of the first piece.
    pub d: u32,
    /// Bytes a second from then on.
    pub m2: u32,
}

impl ServiceCurve {
    /// A straight line.
    pub fn linear(rate: u32) -> ServiceCurve {
        ServiceCurve {
            m1: 0,
            d: 0,
            m2: rate,
        }
    }

    /// A curve by which `umax` bytes at once take at most `dmax` microseconds, at a rate in bytes a
    /// second (tc-hfsc(7)). `None`: a number is too large, or the rate is 0 where it must not.
    pub fn of_delay(umax: u64, dmax: u32, rate: u32) -> Option<ServiceCurve> {
        let m1 = (u128::from(umax) * u128::from(MICROS)).div_ceil(u128::from(dmax.max(1)));
        if m1 > u128::from(rate) {
            let m1 = u32::try_from(m1).ok()?;
            let d = dmax;
            return Some(ServiceCurve { m1, d, m2: rate });
        }
        let needed = (u128::from(umax) * u128::from(MICROS)).checked_div(rate.into())?;
        let d = u128::from(dmax).saturating_sub(needed);
        let d = u32::try_from(d).ok()?;
        Some(ServiceCurve { m1: 0, d, m2: rate })
    }

    /// True if nothing is ever due.
    pub fn is_nothing(&self) -> bool {
        self.m1 == 0 && self.m2 == 0
    }
}

/// A slope and its inverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Slope {
    /// [`NEVER`] if the slope is 0. Itself it is never 0: an `Option` of a curve takes no more.
    inverse: NonZero<u64>,
    up: u64,
}

fn most(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

impl Slope {
    fn new(rate: u32) -> Slope {
        let rate = u64::from(rate);
        let inverse = match rate {
            0 => NEVER,
            rate => (SECOND << INVERSE_SHIFT).div_ceil(rate),
        };
        Slope {
            inverse: NonZero::new(inverse).unwrap_or(NonZero::<u64>::MIN),
            up: (rate << SLOPE_SHIFT).div_ceil(SECOND),
        }
    }

    /// Bytes in so many ticks.
    fn bytes(self, ticks: u64) -> u64 {
        most((u128::from(ticks) * u128::from(self.up)) >> SLOPE_SHIFT)
    }

    /// Ticks for so many bytes.
    fn ticks(self, bytes: u64) -> u64 {
        match self.inverse.get() {
            NEVER if bytes > 0 => NEVER,
            inverse => most((u128::from(bytes) * u128::from(inverse)) >> INVERSE_SHIFT),
        }
    }
}

/// A curve from 0 on, ready for use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Curve {
    second: Slope,
    first: Slope,
    /// Length of the first piece, and bytes at its end.
    dx: u64,
    dy: u64,
}

impl From<ServiceCurve> for Curve {
    fn from(curve: ServiceCurve) -> Curve {
        let first = Slope::new(curve.m1);
        let dx = (u64::from(curve.d) * SECOND).div_ceil(MICROS);
        Curve {
            first,
            dx,
            dy: first.bytes(dx),
            second: Slope::new(curve.m2),
        }
    }
}

impl Curve {
    fn is_convex(&self) -> bool {
        self.first.up <= self.second.up
    }
}

/// A curve that begins somewhere. The curve's own `dx` and `dy`, which a packet does not need, are
/// behind the first 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Runtime {
    x: u64,
    y: u64,
    /// Length of the first piece, and bytes at its end: not always the curve's.
    dx: u64,
    dy: u64,
    curve: Curve,
}

impl Runtime {
    pub(super) fn new(curve: Curve, x: u64, y: u64) -> Runtime {
        let Curve { dx, dy, .. } = curve;
        Runtime {
            x,
            y,
            dx,
            dy,
            curve,
        }
    }

    /// The curve, as it was given.
    pub(super) fn curve(&self) -> Curve {
        self.curve
    }

    /// The same as an eligible curve: where the second piece is the steeper one, that alone.
    pub(super) fn eligible(mut self) -> Runtime {
        if self.curve.is_convex() {
            (self.dx, self.dy) = (0, 0);
        }
        self
    }

    /// The tick by which so many bytes are due.
    #[inline]
    pub(super) fn x_of(&self, y: u64) -> u64 {
        let Runtime { dx, dy, .. } = *self;
        let Curve { first, second, .. } = self.curve;
        let Some(above) = y.checked_sub(self.y) else {
            return self.x;
        };
        let ahead = match above.checked_sub(dy) {
            None => first.ticks(above),
            Some(0) if dy == 0 => dx,
            Some(0) => first.ticks(above),
            Some(beyond) => dx.saturating_add(second.ticks(beyond)),
        };
        later(self.x, ahead)
    }

    /// The bytes that are due by a tick.
    #[inline]
    pub(super) fn y_of(&self, x: u64) -> u64 {
        let Runtime { dx, dy, .. } = *self;
        let Curve { first, second, .. } = self.curve;
        let ahead = x.saturating_sub(self.x);
        let bytes = match ahead.checked_sub(dx) {
            None | Some(0) => first.bytes(ahead),
            Some(beyond) => dy.saturating_add(second.bytes(beyond)),
        };
        self.y.saturating_add(bytes)
    }

    /// The lower of what it is and the curve begun at a point.
    #[inline]
    pub(super) fn lower(&mut self, x: u64, y: u64) {
        let (here, curve) = (self.y_of(x), self.curve);
        if curve.is_convex() {
            let is_above = here >= y;
            self.x = select_unpredictable(is_above, x, self.x);
            self.y = select_unpredictable(is_above, y, self.y);
            return;
        }
        if here <= y {
            return;
        }
        let end = x.saturating_add(curve.dx);
        if self.y_of(end) >= y.saturating_add(curve.dy) {
            *self = Runtime::new(curve, x, y);
            return;
        }
        // They meet: the new one's first piece goes on until it has made up for the difference.
        let difference = u128::from(here - y) << SLOPE_SHIFT;
        let mut dx = most(difference / u128::from(curve.first.up - curve.second.up));
        let first_ends = self.x.saturating_add(self.dx);
        dx = dx.saturating_add(first_ends.saturating_sub(x));
        (self.x, self.y) = (x, y);
        (self.dx, self.dy) = (dx, curve.first.bytes(dx));
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn curve() -> impl Strategy<Value = ServiceCurve> {
        let rate = || prop_oneof![Just(0), 1..10_000_000_u32, any::<u32>()];
        let d = prop_oneof![Just(0), 1..1_000_000_u32, any::<u32>()];
        (rate(), d, rate()).prop_map(|(m1, d, m2)| ServiceCurve { m1, d, m2 })
    }

    proptest! {
        /// Both directions agree to within what is rounded, and rise.
        #[test]
        fn bytes_and_ticks_of_a_curve_agree(
            spec in curve(),
            (x, y) in (0..1_u64 << 40, 0..1_u64 << 40),
            (a, b) in (0..1_u64 << 32, 0..1_u64 << 32),
        ) {
            let curve = Runtime::new(spec.into(), x, y);
            let (a, b) = (a.min(b), a.max(b));
            prop_assert!(curve.y_of(x + a) <= curve.y_of(x + b));
            prop_assert!(curve.x_of(y + a) <= curve.x_of(y + b));
            prop_assert!(curve.x_of(u64::MAX) <= NEVER);
            let at = curve.x_of(y + b);
            if at < 1 << 60 && spec.m1 > 100 && spec.m2 > 100 {
                // A rounded slope is wrong by less than a byte in a second each.
                let slack = (at - x) / SECOND + 2 + u64::from(spec.m1.max(spec.m2)) / SECOND;
                let due = curve.y_of(at);
                prop_assert!(due + slack >= y + b, "{} {}", due, y + b);
            }
        }

        /// The lower of two curves is below both where they begin, and never above the new one.
        #[test]
        fn the_lower_curve_is_below(
            spec in curve(),
            start in 0..1_u64 << 40,
            done in 0..1_u64 << 30,
            later in 0..1_u64 << 34,
            more in 0..1_u64 << 30,
            at in 0..1_u64 << 34,
        ) {
            let curve = Curve::from(spec);
            let old = Runtime::new(curve, start, done);
            let fresh = Runtime::new(curve, start + later, done + more);
            let mut lower = old;
            lower.lower(start + later, done + more);
            let x = start + later + at;
            let slack = at / SECOND + 4 + u64::from(spec.m1.max(spec.m2)) / SECOND * 2;
            prop_assert!(lower.y_of(x) <= fresh.y_of(x) + slack || lower == old);
            if !curve.is_convex() {
                prop_assert!(lower.y_of(x) <= old.y_of(x) + slack);
            }
        }
    }

    /// As tc 7.3 computes them (`tests/golden/options_classful.txt`).
    #[test]
    fn a_delay_becomes_a_curve() {
        let curve = ServiceCurve::of_delay(1540, 5000, 1250).unwrap();
        assert_eq!((curve.m1, curve.d, curve.m2), (308_000, 5000, 1250));
        let convex = ServiceCurve::of_delay(1500, 100_000, 150_000).unwrap();
        assert_eq!((convex.m1, convex.d, convex.m2), (0, 90_000, 150_000));
        assert_eq!(ServiceCurve::of_delay(u64::MAX, 1, 1), None);
        assert_eq!(ServiceCurve::of_delay(0, 5, 0), None);
    }

    #[test]
    fn ticks_are_64_nanoseconds() {
        assert_eq!((ticks(Time(127)), time_of(2)), (1, Time(128)));
        let line = Runtime::new(ServiceCurve::linear(125_000).into(), 0, 0);
        // 1 Mbit/s: 1500 bytes in 12 ms.
        assert_eq!(line.x_of(1500), 187_500);
        assert_eq!(line.y_of(187_500), 1500);
        assert_eq!(
            Runtime::new(ServiceCurve::linear(0).into(), 5, 5).x_of(6),
            NEVER
        );
    }
}
