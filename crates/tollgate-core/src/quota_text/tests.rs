//! Quotas as text, there and back.

use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;

use crate::{
    algorithm_kind::AlgorithmKind,
    quota::{MAX_PERIOD, MAX_UNITS, Quota},
    quota_text::period::UNITS,
    time::{DAY, HOUR, MINUTE, SECOND},
};

fn none_until(seconds: u64, micros: u64) -> Quota {
    let since = Duration::from_secs(seconds) + Duration::from_micros(micros);
    Quota::none().until(UNIX_EPOCH + since)
}

#[test]
fn a_time_is_read_as_it_is_written() {
    // Each day of 400 years, and some time of it.
    for day in 0..146_097 {
        let quota = none_until(day * 86_400 + day % 86_400, day % 3 * 1_001);
        assert_eq!(quota.to_string().parse(), Ok(quota));
    }
}

#[test]
fn a_quota_is_read_in_its_usual_spellings() {
    let sliding = Quota::sliding_window(1_000, MINUTE);
    for (text, quota) in [
        ("100/min", Quota::gcra(100, MINUTE)),
        ("  100 / minute  ", Quota::gcra(100, MINUTE)),
        ("20/s burst 50", Quota::gcra(20, SECOND).burst(50)),
        ("gcra 1_000_000/day", Quota::gcra(1_000_000, DAY)),
        ("sliding_window 1000/1m", sliding),
        ("sliding_log 5/1h30min", Quota::sliding_log(5, 90 * MINUTE)),
        (
            "fixed_window 5/250ms",
            Quota::fixed_window(5, Duration::from_millis(250)),
        ),
        ("7/µs", Quota::gcra(7, Duration::from_micros(1))),
        (
            "sliding_buckets 9/h buckets 12",
            Quota::sliding_buckets(9, HOUR).buckets(12),
        ),
        (
            "leaky_bucket 10/s burst 4",
            Quota::leaky_bucket(4).leak(10, SECOND),
        ),
        (
            "token_bucket 10/s",
            Quota::token_bucket(10).refill(10, SECOND),
        ),
        ("unlimited", Quota::unlimited()),
        ("none", Quota::none()),
        ("0/min", Quota::none()),
        ("sliding_log 0/day", Quota::none()),
        ("none until 2026-12-24T00:00Z", none_until(1_798_070_400, 0)),
        (
            "none until 2028-02-29T23:59:58.5Z",
            none_until(1_835_481_598, 500_000),
        ),
        ("1/3660d", Quota::gcra(1, MAX_PERIOD)),
        (
            " concurrent  1_000 typically 30s ",
            Quota::concurrent(1_000).typically(30 * SECOND),
        ),
    ] {
        assert_eq!(text.parse(), Ok(quota), "{text}");
    }
}

#[test]
fn a_text_that_is_no_quota_has_its_wrong_part_and_what_would_be_right() {
    // The text, the part that is marked, and words of the message.
    for (text, wrong, words) in [
        ("", "", &["empty", "100/min"] as &[&str]),
        (
            "none 5/min",
            "5/min",
            &["not a setting", "until 2026-12-24T00:00Z"],
        ),
        ("none until", "", &["is missing"]),
        (
            "none until 2027-02-29T00:00Z",
            "2027-02-29T00:00Z",
            &["2026-12-24T00:00Z"],
        ),
        (
            "none until 2027-00-00T00:00Z",
            "2027-00-00T00:00Z",
            &["2026-12-24T00:00Z"],
        ),
        ("none until tomorrow", "tomorrow", &["2026-12-24T00:00Z"]),
        (
            "0/min burst 5",
            "0/min",
            &["limit of 0", "or block by", "\"none\""],
        ),
        ("gcra", "", &["missing", "gcra 100/min"]),
        (
            "gcar 100/min",
            "gcar",
            &["not an algorithm", "did you mean \"gcra\"?"],
        ),
        ("leaky 5/s", "leaky", &["not an algorithm", "leaky_bucket"]),
        #[cfg(feature = "calendar")]
        ("Calandar 5/d", "Calandar", &["did you mean \"calendar\"?"]),
        ("100", "100", &["no period", "100/min"]),
        (
            "100 per minute",
            "100 per",
            &["did you mean \"100/minute\"?"],
        ),
        ("1 000/h", "1 000/h", &["did you mean \"1000/h\"?"]),
        ("100/", "", &["period is missing"]),
        ("/min", "", &["number of units is missing"]),
        ("1.5/s", "1.5", &["not a number of units", "whole number"]),
        ("1.5/s", "1.5", &["as \"3/2s\""]),
        ("gcra 0.50/min burst 3", "0.50", &["as \"1/2min\""]),
        (
            "0.0001/1d",
            "0.0001",
            &["not a number of units; write a whole number as"],
        ),
        (
            "100/mni",
            "mni",
            &["not a unit of time", "did you mean \"min\"?"],
        ),
        (
            "100/60",
            "60",
            &["no unit of time", "did you mean \"60s\"?"],
        ),
        ("gcra 100/month", "month", &["its length differs", "30d"]),
        ("100/4000d", "4000d", &["above ten years"]),
        ("5/0s", "5/0s", &["time of 0", "at least 1 µs"]),
        ("5/s burst 0", "5/s burst 0", &["burst of 0", "at least 1"]),
        (
            "5/s brust 9",
            "brust",
            &["not a setting", "did you mean \"burst\"?"],
        ),
        ("5/s burst", "", &["\"burst\" is missing", "20"]),
        ("5/s burst 6 burst 7", "burst 7", &["twice"]),
        (
            "token_bucket 5/s capacity 9",
            "capacity 9",
            &["did you mean \"burst\"?"],
        ),
        (
            "fixed_window 5/s burst 9",
            "burst 9",
            &["does not apply to fixed_window", "gcra"],
        ),
        (
            "gcra 5/s buckets 9",
            "buckets 9",
            &["do not apply to gcra", "sliding_buckets"],
        ),
        ("sliding_log 5/s hard", "hard", &["too much"]),
        (
            "sliding_log 70000/h",
            "70000/h",
            &["70000", "sliding_buckets"],
        ),
        ("unlimited 5/s burst 9 ", "5/s", &["too much"]),
        ("concurrent", "", &["are missing", "concurrent 3"]),
        (
            "concurrent 3/min",
            "/min",
            &["have no period", "\"concurrent 3\""],
        ),
        ("concurrent 0", "0", &["at least 1"]),
        (
            "concurrent 1_000_000_000_000_000",
            "1_000_000_000_000_000",
            &["\"1_000_000_000_000_000\" units are above 999999999999999"],
        ),
        ("100/3660d1us", "3660d1us", &["above ten years"]),
        (
            "concurrent 3 typicaly 5s",
            "typicaly",
            &["not a setting", "did you mean \"typically\"?"],
        ),
        ("concurrent 3 typically", "", &["is missing", "30s"]),
        (
            "concurrent 3 typically 5s more",
            "more",
            &["not a setting", "30s"],
        ),
        ("concurrent 3 for 5 s", "for", &["not a setting"]),
    ] {
        let error = text.parse::<Quota>().expect_err(text);
        assert_eq!(&text[error.span()], wrong, "{text}: {error}");
        assert!(error.to_string().starts_with(&format!("quota {text:?}: ")));
        for word in words {
            assert!(error.message().contains(word), "{error} lacks {word}");
        }
    }
}

#[test]
fn an_error_about_a_long_text_is_short() {
    let error = "é".repeat(100_000).parse::<Quota>().expect_err("no quota");
    assert!(error.to_string().len() < 600, "{}", error.to_string().len());
    assert!(error.span().len() > 100_000);
    for (length, quoted) in [
        (40, format!("\"{}\" has", "1".repeat(40))),
        (41, format!("\"{}\"… has", "1".repeat(40))),
    ] {
        let error = "1".repeat(length).parse::<Quota>().expect_err("no quota");
        assert!(error.message().starts_with(&quoted), "{error}");
    }
}

fn with_a_rate() -> Vec<AlgorithmKind> {
    use AlgorithmKind::{Concurrent, None, Unlimited};
    let has_rate = |it: &AlgorithmKind| !matches!(it, Concurrent | Unlimited | None);
    let all = AlgorithmKind::ALL.into_iter().map(|(it, _)| it);
    all.filter(has_rate).collect()
}

fn periods() -> impl Strategy<Value = Duration> {
    let lengths = UNITS.map(|(_, micros)| micros);
    prop_oneof![
        (1_u64..100, proptest::sample::select(lengths.to_vec()))
            .prop_map(|(count, length)| Duration::from_micros(count * length)),
        (1_u64..u64::try_from(MAX_PERIOD.as_micros()).expect("ten years"))
            .prop_map(Duration::from_micros),
    ]
}

proptest! {
    #[test]
    fn what_is_printed_parses_back(
        algorithm in proptest::sample::select(with_a_rate()),
        limit in prop_oneof![1_u64..1_000, 1..=MAX_UNITS],
        period in periods(),
        burst in proptest::option::of(prop_oneof![1_u64..1_000, 1..=MAX_UNITS]),
        buckets in proptest::option::of(2_u32..=600),
    ) {
        let plain = Quota::new(algorithm, limit, period);
        let quota = match (buckets, burst) {
            (Some(buckets), _) if algorithm == AlgorithmKind::SlidingBuckets => plain.buckets(buckets),
            (_, Some(burst)) if algorithm.is_bucket() => plain.burst(burst),
            _ => plain,
        };
        if quota.validate().is_ok() {
            prop_assert_eq!(quota.to_string().parse(), Ok(quota), "{}", quota);
        } else {
            prop_assert!(quota.to_string().parse::<Quota>().is_err(), "{}", quota);
        }
    }

    #[test]
    fn any_text_is_a_quota_or_an_error_about_a_part_of_it(text in "\\PC{0,40}|[gcra_bukets0-9/minhd \\t]{0,30}") {
        match text.parse::<Quota>() {
            Ok(quota) => prop_assert_eq!(quota.to_string().parse(), Ok(quota)),
            Err(error) => {
                prop_assert!(text.get(error.span()).is_some(), "{}", error);
                prop_assert!(!error.message().is_empty());
            }
        }
    }
}

#[cfg(feature = "serde")]
#[test]
fn a_quota_is_its_text_in_documents() {
    let quota = Quota::gcra(100, MINUTE).burst(20);
    let text = serde_json::to_string(&quota).expect("text");
    assert_eq!(text, "\"gcra 100/min burst 20\"");
    assert_eq!(
        serde_json::from_str::<Quota>(&text).expect("a quota"),
        quota
    );
    let error = serde_json::from_str::<Quota>("\"100/mni\"").expect_err("no quota");
    assert!(
        error.to_string().contains("did you mean \"min\"?"),
        "{error}"
    );
    let error = serde_json::from_str::<Quota>("100").expect_err("no quota");
    assert!(
        error.to_string().contains("gcra 100/min burst 20"),
        "{error}"
    );
}
