//! Generated events: about 110 bytes of JSON a line, the same for the same numbers, for ever.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

/// Where the sequence of random numbers begins.
const SEED: u64 = 0x7469_6465_6c6f_636b;

const CHANNELS: [&str; 4] = ["web", "app", "shop", "phone"];

/// Writes `records` events of `users` users, chosen with equal odds.
///
/// # Errors
///
/// If the file cannot be written; what there is of it then has another name.
pub(crate) fn generate(path: &Path, records: u64, users: u64) -> Result<()> {
    let begun = path.with_extension("begun");
    let write = || -> std::io::Result<()> {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&begun)?);
        write_events(&mut file, records, users)?;
        file.into_inner()
            .map_err(std::io::IntoInnerError::into_error)?
            .sync_all()?;
        fs::rename(&begun, path)
    };
    write().with_context(|| format!("failed to write {}", path.display()))
}

fn write_events(file: &mut impl Write, records: u64, users: u64) -> std::io::Result<()> {
    let mut random = SplitMix(SEED);
    let mut time_ms = 1_699_999_000_000;
    for _ in 0..records {
        let user = random.below(users);
        let amount = 1 + random.below(999);
        time_ms += random.below(3);
        let item = random.below(50_000);
        let channel = CHANNELS[random.below(4) as usize];
        write!(
            file,
            r#"{{"user":"user-{user:08}","amount":{amount},"time":{time_ms},"item":"item-{item:06}","channel":"{channel}","note":""#
        )?;
        let note = random.next();
        let letters: [u8; 8] = std::array::from_fn(|at| b'a' + (note >> (8 * at)) as u8 % 26);
        file.write_all(&letters)?;
        file.write_all(b"\"}\n")?;
    }
    Ok(())
}

/// Sebastiano Vigna's generator of 64-bit numbers.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below a bound that is small against 2^64.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_each_time_and_as_long_as_measured_elsewhere() {
        let events = || {
            let mut events = Vec::new();
            write_events(&mut events, 1_000, 100_000).unwrap();
            String::from_utf8(events).unwrap()
        };
        let text = events();
        assert_eq!(text, events());
        assert_eq!(text.lines().count(), 1_000);
        let mean_bytes = text.len() / 1_000;
        assert!((108..=120).contains(&mean_bytes), "{mean_bytes}");
        for line in text.lines() {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(event["amount"].as_i64().is_some_and(|amount| amount > 0));
        }
    }
}
