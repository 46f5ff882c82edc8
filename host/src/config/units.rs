//! Sizes and durations as pipeline files write them: a whole number and a unit, without a space.

use std::time::Duration;

const SIZE_UNITS: [(&str, u64); 4] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

const DURATION_UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// How to write a size, for messages.
pub(crate) const SIZE_FORM: &str =
    "write a whole number and a unit, B, KiB, MiB or GiB, as in \"64MiB\"";

/// How to write a duration, for messages.
pub(crate) const DURATION_FORM: &str =
    "write a whole number and a unit, ms, s, m, h or d, as in \"250ms\"";

/// The bytes that a size like `64MiB` stands for.
pub(crate) fn size_bytes(text: &str) -> Option<u64> {
    quantity(text, &SIZE_UNITS)
}

/// The time that a duration like `250ms` stands for.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    quantity(text, &DURATION_UNITS).map(Duration::from_millis)
}

/// A size as pipeline files write it, in the largest unit that leaves no rest.
pub(crate) fn show_size(bytes: u64) -> String {
    show(bytes, &SIZE_UNITS)
}

/// A duration as pipeline files write it.
pub(crate) fn show_duration(duration: Duration) -> String {
    show(
        u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        &DURATION_UNITS,
    )
}

fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

fn show(quantity: u64, units: &[(&str, u64)]) -> String {
    let fits = |(_, factor): &&(&str, u64)| quantity > 0 && quantity.is_multiple_of(*factor);
    let (name, factor) = units.iter().rev().find(fits).unwrap_or(&units[0]);
    format!("{}{name}", quantity / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_read_and_shown_in_their_units() {
        for (text, bytes) in [("0B", 0), ("7B", 7), ("64KiB", 65_536), ("3GiB", 3 << 30)] {
            assert_eq!(size_bytes(text), Some(bytes));
            assert_eq!(show_size(bytes), text);
        }
        for (text, ms) in [
            ("250ms", 250),
            ("3s", 3_000),
            ("90m", 5_400_000),
            ("7d", 604_800_000),
        ] {
            assert_eq!(duration(text), Some(Duration::from_millis(ms)));
            assert_eq!(show_duration(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn anything_else_is_no_quantity() {
        for text in [
            "",
            "1",
            "MiB",
            "-1B",
            "+1B",
            "1.5MiB",
            "1 MiB",
            "1mib",
            "1MB",
            "99999999999GiB",
        ] {
            assert_eq!(size_bytes(text), None, "{text}");
        }
        for text in ["", "1", "1min", "1us", "s", "18446744073709551615d"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
