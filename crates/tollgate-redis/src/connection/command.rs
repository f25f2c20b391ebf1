//! Writing commands.

/// Appends `*count` of a command.
pub(super) fn push_count(out: &mut Vec<u8>, count: usize) {
    push_length(out, b'*', count);
}

/// Appends one argument of a command.
pub(super) fn push_argument(out: &mut Vec<u8>, argument: &[u8]) {
    push_length(out, b'$', argument.len());
    out.extend_from_slice(argument);
    out.extend_from_slice(b"\r\n");
}

/// Appends a number as one argument of a command.
pub(super) fn push_number(out: &mut Vec<u8>, number: usize) {
    let mut digits = [0; 20];
    push_argument(out, decimal(number, &mut digits));
}

fn push_length(out: &mut Vec<u8>, mark: u8, length: usize) {
    let mut digits = [0; 20];
    out.push(mark);
    out.extend_from_slice(decimal(length, &mut digits));
    out.extend_from_slice(b"\r\n");
}

fn decimal(number: usize, digits: &mut [u8; 20]) -> &[u8] {
    let mut rest = number;
    let mut at = digits.len();
    loop {
        at -= 1;
        // A remainder of ten is one digit.
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return &digits[at..];
        }
    }
}
