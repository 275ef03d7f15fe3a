//! Expectations in words, and what is told of mistakes.

use super::*;

fn read(text: &str) -> Expectation {
    text.parse().expect(text)
}

#[test]
fn expectations_in_words() {
    let rate = read("root rate 45..50mbit");
    assert_eq!((rate.least, rate.most), ((45e6, true), (50e6, true)));
    let time = read("1:20 sojourn p50<10ms");
    assert_eq!(
        (time.figure, time.most),
        (Figure::Sojourn(Rank::P50), (1e7, false))
    );
    assert_eq!(
        read("1:20 sojourn < 10ms").figure,
        Figure::Sojourn(Rank::P99)
    );
    assert_eq!(read("voip loss <= 1%").most, (0.01, true));
    assert_eq!(read("voip loss = 0").least, (0.0, true));
    assert_eq!(read("bulk fair > 0.95").least, (0.95, false));
    assert_eq!(read("a rtt max 1ms..2s").most, (2e9, true));
    assert_eq!(read("root rate > 0").least, (0.0, false));
}

/// The letter of an exponent is not the unit's.
#[test]
fn ends_of_a_range_share_the_unit_alone() {
    for (text, least, most) in [
        ("root rate 0.8..1e3kbit", 800.0, 1e6),
        ("root rate 1e1..50mbit", 1e7, 5e7),
        ("root loss 0.001..1e-2", 0.001, 0.01),
        ("root loss 1..2%", 0.01, 0.02),
        ("root sojourn 1e-1..2ms", 1e5, 2e6),
        ("root sojourn 900us..2ms", 9e5, 2e6),
    ] {
        let read = read(text);
        assert_eq!((read.least.0, read.most.0), (least, most), "{text}");
    }
}

#[test]
fn bounds_that_nothing_breaks_are_refused() {
    for text in [
        "root rate >= 0",
        "root drops >= 0",
        "root marks >= 0",
        "root loss <= 100%",
        "root loss < 150%",
        "root loss 0..100%",
        "root fair <= 1",
        "root fair 0..1",
        "root sojourn max >= 0ms",
    ] {
        let error = text.parse::<Expectation>().expect_err(text);
        assert!(error.ends_with(" keeps this bound"), "{text}: {error}");
    }
    for text in [
        "root rate > 0",
        "root loss < 100%",
        "root loss = 0",
        "root fair = 1",
        "root drops 0..1",
    ] {
        assert!(text.parse::<Expectation>().is_ok(), "{text}");
    }
}

#[test]
fn subjects_of_the_reverse_direction() {
    for (text, reverse, subject) in [
        ("reverse root rate > 1mbit", true, "root"),
        ("reverse 1:20 sojourn p50<10ms", true, "1:20"),
        ("root rate > 1mbit", false, "root"),
        // A flow of that name.
        ("reverse rate > 1mbit", false, "reverse"),
    ] {
        let read = read(text);
        assert_eq!((read.reverse, read.subject.as_str()), (reverse, subject));
        assert_eq!(read.text, text);
    }
    let error = "reverse root"
        .parse::<Expectation>()
        .expect_err("no figure");
    assert!(error.starts_with("column 13: rate, loss"), "{error}");
}

#[test]
fn mistakes_are_told_with_their_column() {
    for (text, part) in [
        ("", "column 1: a subject"),
        ("root", "column 5: rate, loss"),
        ("root speed > 1mbit", "column 6: \"speed\" is no figure"),
        ("root rate", "column 10: a bound"),
        ("root rate >", "column 12: a value is missing"),
        (
            "root rate > fast",
            "column 13: \"fast\" is no bound of rate",
        ),
        ("root rate ~ 1", "column 11: \"~\" is no bound"),
        (
            "root sojourn p95 < 1ms",
            "column 14: \"p95\" is no bound; use mean, p50",
        ),
        (
            "root loss < 1",
            "column 13: \"1\" is no bound of loss: a share of 1",
        ),
        (
            "root rtt max < 5",
            "column 16: \"5\" is no bound of rtt: \"5\" has no unit",
        ),
        (
            "root rate > 45",
            "column 13: \"45\" is no bound of rate: \"45\" has no unit; write it like 45kbit",
        ),
        (
            "root rate 45..50",
            "column 11: \"50\" is no bound of rate: \"50\" has no unit",
        ),
        (
            "root rate 1e3..2mbit..3mbit",
            "column 11: \"2mbit..3mbit\" is no bound of rate",
        ),
        (
            "root loss < nan%",
            "column 13: \"nan%\" is no bound of loss",
        ),
        ("root fair > inf", "column 13: \"inf\" is no bound of fair"),
        (
            "root rate > 1e99mbit",
            "column 13: \"1e99mbit\" is no bound of rate: \"1e99mbit\" is too large",
        ),
        ("root rate 2mbit..1mbit", "column 11: the range is empty"),
        ("root fair > -1", "column 13: \"-1\" is no bound of fair"),
        (
            "root rate > 1mbit more",
            "column 19: \"more\" is one word too many",
        ),
    ] {
        let error = text.parse::<Expectation>().expect_err(text);
        assert!(error.starts_with(part), "{text}: {error}");
    }
}

#[test]
fn ends_belong_to_ranges_and_not_to_less() {
    let below = read("root drops < 3");
    assert!(below.holds(2.0) && !below.holds(3.0));
    let range = read("root drops 1..3");
    assert!(range.holds(1.0) && range.holds(3.0) && !range.holds(3.1));
}
