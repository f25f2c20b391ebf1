//! Windows of calendars, as Python's `zoneinfo` has them: other code, and another copy of the same database.

use serde_json::Value;
use tollgate_core::{
    Quota,
    algorithm::{Algorithm as _, FixedWindow},
};

use crate::program::python;

#[tokio::test]
async fn windows_begin_and_end_as_zoneinfo_has_them() {
    const SECOND: u64 = 1_000_000;
    let told = python("calendar_windows.py", &Value::Null).await;
    let told: Vec<(String, Vec<u64>)> = serde_json::from_value(told).expect("quotas and times");
    // Ten zones: days, weeks from two days, months from three, years.
    assert_eq!(told.len(), 10 * 7);
    for (text, begins) in told {
        let quota: Quota = text.parse().expect("a quota");
        let windows = FixedWindow::new(&quota).expect("a window");
        assert!(begins.len() > 19, "{text}");
        for pair in begins.windows(2) {
            let [begin, end] = [pair[0] * SECOND, pair[1] * SECOND];
            for at in [begin, end - 1] {
                let mut state = Default::default();
                windows.take(&mut state, at, 1);
                let after = windows.assess(&state, at, 9).reset_after;
                assert_eq!(at + after, end, "{text}, from {begin}, at {at}");
            }
        }
    }
}
