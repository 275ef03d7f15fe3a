//! Options of a qdisc or class of any kind: a size table (`TCA_STAB`), and a rate estimator
//! (`TCA_RATE`), which shows in `TCA_STATS2`.

use softnet_tc::{EstimatorSpec, Rate, SizeSpec, SizeTable};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::nl::{Attr, Errno, Error, Message, Policy, Rule};

const TCA_STAB: u16 = 8;
const STAB_BASE: u16 = 1;
const STAB_DATA: u16 = 2;
const TCA_STATS_RATE_EST: u16 = 2;
const TCA_STATS_RATE_EST64: u16 = 5;

/// `struct tc_sizespec`.
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Base {
    cell_log: u8,
    size_log: u8,
    cell_align: i16,
    overhead: i32,
    linklayer: u32,
    mpu: u32,
    mtu: u32,
    tsize: u32,
}

const STAB: Policy = Policy::new(
    STAB_DATA,
    &[
        (STAB_BASE, Rule::Min(size_of::<Base>())),
        (STAB_DATA, Rule::Binary { max: 0 }),
    ],
);

/// The table of a `TCA_STAB` (`qdisc_get_stab`).
pub fn parse_stab(stab: &Attr<'_>) -> Result<SizeTable, Error> {
    let attrs = stab.nested(&STAB)?;
    let missing = || Error::invalid("Size table base attribute is missing").at(stab);
    let base: Base = attrs.fixed(STAB_BASE)?.ok_or_else(missing)?;
    let spec = SizeSpec {
        cell_log: base.cell_log,
        size_log: base.size_log,
        cell_align: base.cell_align,
        overhead: base.overhead,
        linklayer: base.linklayer,
        mpu: base.mpu,
        mtu: base.mtu,
        tsize: base.tsize,
    };
    let slots: Option<Vec<u16>> = attrs.get(STAB_DATA).map(|data| data.array().collect());
    let table = SizeTable::from_parts(spec, slots.as_deref());
    table.map_err(|error| Error::from(Errno::EINVAL).text(error.to_string()).at(stab))
}

/// Puts `TCA_STAB` without the slots, as the kernel does.
pub fn put_stab(table: &SizeTable, out: &mut Message<'_>) {
    let spec = table.spec();
    out.nest(TCA_STAB, |out| {
        let base = Base {
            cell_log: spec.cell_log,
            size_log: spec.size_log,
            cell_align: spec.cell_align,
            overhead: spec.overhead,
            linklayer: spec.linklayer,
            mpu: spec.mpu,
            mtu: spec.mtu,
            tsize: spec.tsize,
        };
        out.put(STAB_BASE, &base);
    });
}

/// The estimator of a `TCA_RATE` (`struct tc_estimator`, `gen_new_estimator`).
pub fn parse_estimator(rate: &Attr<'_>) -> Result<EstimatorSpec, Error> {
    let refuse = || Error::invalid("Failed to generate new estimator").at(rate);
    let &[interval, ewma_log] = rate.data else {
        return Err(refuse());
    };
    EstimatorSpec::new(interval.cast_signed(), ewma_log).map_err(|error| refuse().help(error))
}

/// Puts an estimated rate into `TCA_STATS2` (`gnet_stats_copy_rate_est`).
pub fn put_rate(rate: &Rate, out: &mut Message<'_>) {
    let Rate { bytes, packets } = *rate;
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    out.put(TCA_STATS_RATE_EST, &[narrow(bytes), narrow(packets)]);
    if bytes >= u32::MAX.into() {
        out.put(TCA_STATS_RATE_EST64, &[bytes, packets]);
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::nl::headers::TcMsg;
    use crate::nl::{Head, Messages, Request, Validation};
    use crate::testing;

    use proptest::prelude::*;

    /// The attribute of a type in a message.
    fn message<T>(
        kind: u16,
        put: impl FnOnce(&mut Message<'_>),
        f: impl FnOnce(&Attr<'_>) -> T,
    ) -> T {
        let mut messages = Messages::new();
        messages
            .message(Head::default(), &TcMsg::default(), put)
            .unwrap();
        let request = Request::read(messages.as_bytes()).unwrap();
        let attrs = request.attrs::<TcMsg>(&Policy::new(16, &[]), Validation::Liberal);
        f(&attrs.unwrap().get(kind).unwrap())
    }

    fn stab(base: &[u8], slots: Option<&[u16]>) -> Result<SizeTable, Error> {
        let put = |out: &mut Message<'_>| {
            out.nest(TCA_STAB, |out| {
                if !base.is_empty() {
                    out.put_bytes(STAB_BASE, base);
                }
                if let Some(slots) = slots {
                    out.put(STAB_DATA, slots);
                }
            });
        };
        message(TCA_STAB, put, parse_stab)
    }

    /// As the kernel's (`qdisc_get_stab`).
    #[test]
    fn wrong_tables_are_refused() {
        let base = |cell_log, tsize: u32| {
            let base = Base {
                cell_log,
                size_log: 0,
                cell_align: -1,
                overhead: 9,
                linklayer: 2,
                mpu: 64,
                mtu: 2047,
                tsize,
            };
            base.as_bytes().to_vec()
        };
        for (base, slots, text) in [
            (vec![], None, "Size table base attribute is missing"),
            (vec![0; 23], None, "Attribute failed policy validation"),
            (base(2, 2), None, "Size table data attribute is missing"),
            (base(2, 2), Some(&[1][..]), "Invalid size of size table"),
            (
                base(99, 1),
                Some(&[1]),
                "Invalid logarithmic size of size table",
            ),
        ] {
            assert_eq!(stab(&base, slots).unwrap_err().text.unwrap(), text);
        }
        assert!(stab(&base(2, 2), Some(&[1, 2])).is_ok());
    }

    #[test]
    fn estimators_are_read_and_shown() {
        let read = |bytes: &[u8]| message(5, |out| out.put_bytes(5, bytes), parse_estimator);
        assert_eq!(read(&[0xfe, 3]), Ok(EstimatorSpec::new(-2, 3).unwrap()));
        for wrong in [&[][..], &[0], &[4, 3], &[0, 0], &[0, 31], &[0, 3, 0]] {
            let error = read(wrong).unwrap_err();
            assert_eq!(error.errno, Errno::EINVAL);
            assert!(
                error
                    .text
                    .unwrap()
                    .starts_with("Failed to generate new estimator")
            );
        }
        let shown = |kind, bytes| {
            let rate = Rate { bytes, packets: 7 };
            message(
                1,
                |out| out.nest(1, |out| put_rate(&rate, out)),
                |attr| {
                    let found = attr.children().find(|attr| attr.kind() == kind);
                    found.map(|attr| attr.data.to_vec())
                },
            )
        };
        let (small, large) = (1_u64 << 20, 1_u64 << 33);
        assert_eq!(shown(TCA_STATS_RATE_EST64, small), None);
        let narrow = [1_u32 << 20, 7].as_bytes().to_vec();
        assert_eq!(shown(TCA_STATS_RATE_EST, small), Some(narrow));
        let narrow = [u32::MAX, 7].as_bytes().to_vec();
        assert_eq!(shown(TCA_STATS_RATE_EST, large), Some(narrow));
        let wide = [large, 7].as_bytes().to_vec();
        assert_eq!(shown(TCA_STATS_RATE_EST64, large), Some(wide));
    }

    proptest! {
        #[test]
        fn tables_come_back(
            logs in (0..=30_u8, 0..=30_u8),
            cell_align: i16,
            overhead: i32,
            rest: (u32, u32, u32),
            slots: Vec<u16>,
        ) {
            let spec = SizeSpec {
                cell_log: logs.0,
                size_log: logs.1,
                cell_align,
                overhead,
                linklayer: rest.0,
                mpu: rest.1,
                mtu: rest.2,
                tsize: slots.len() as u32,
            };
            let table = SizeTable::from_parts(spec, Some(&slots)).unwrap();
            let base = message(
                TCA_STAB,
                |out| put_stab(&table, out),
                |stab| stab.children().next().unwrap().data.to_vec(),
            );
            prop_assert_eq!(stab(&base, Some(&slots)), Ok(table));
        }

        #[test]
        fn arbitrary_bytes_are_read_or_refused(bytes: Vec<u8>) {
            const REFUSALS: &[Errno] = &[Errno::EINVAL, Errno::ERANGE];
            message(TCA_STAB, |out| out.put_bytes(TCA_STAB, &bytes), |stab| {
                let answers = [parse_stab(stab).err(), parse_estimator(stab).err()];
                for error in answers.iter().flatten() {
                    testing::assert_refusal(error, REFUSALS);
                }
            });
        }
    }
}
