//! Bytes in words.

/// In the unit that fits.
pub(crate) fn bytes_text(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    for (unit, shift) in units {
        if bytes >= 1 << shift {
            return format!("{:.1} {unit}", bytes as f64 / f64::from(1_u32 << shift));
        }
    }
    format!("{bytes} B")
}
