//! What the polite client prints.

use std::process::Command;

use crate::process::program;

#[test]
fn a_polite_client_is_never_denied_and_takes_as_long_as_the_limit_says() {
    let output = Command::new(program("polite_client")).output();
    let output = output.expect("it was built");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let answers = printed.lines().filter(|line| line.contains(" 200 OK, "));
    assert_eq!(answers.count(), 30, "{printed}");
    let end = printed.lines().last().expect("a last line");
    let time = end.strip_prefix("30 requests in ");
    let time = time.and_then(|rest| rest.strip_suffix("s, 0 denied"));
    let seconds: f64 = time.and_then(|time| time.parse().ok()).expect(end);
    // Five at once, and then five a second. Without the limit it would take milliseconds.
    assert!(seconds >= 4.9, "{printed}");
}
