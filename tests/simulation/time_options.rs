//! The options of time, drawn from the seed: small bounds, so that within a few dozen records all of them
//! matter.

use std::time::Duration;

use guest_behaviours::trace::event_times::FUTURE_LIMIT_MS;
use tidelock::types::batch::Timestamp;
use tidelock::types::pipeline::{IdleOptions, UnreadPartitions, WatermarkOptions};

use crate::random::Random;

/// What a transform makes of time.
#[derive(Debug)]
pub(crate) struct TransformTime {
    /// For each input how far behind the watermark a message may be without being late.
    pub(crate) allowed_lateness_ms: Vec<Timestamp>,
    /// For the first states how long they outlast the last item of their key.
    pub(crate) ttls_ms: [Option<Timestamp>; 2],
    /// Whether it sets timers.
    pub(crate) sets_timers: bool,
}

impl TransformTime {
    /// Some options.
    pub(crate) fn random(random: &mut Random, inputs: usize) -> TransformTime {
        let lateness = |random: &mut Random| match random.chance(30) {
            true => random.within(1..=300) as Timestamp,
            false => 0,
        };
        let mut ttl = || {
            let ttl = random.within(20..=800) as Timestamp;
            random.chance(30).then_some(ttl)
        };
        TransformTime {
            ttls_ms: [ttl(), ttl()],
            allowed_lateness_ms: (0..inputs).map(|_| lateness(random)).collect(),
            sets_timers: random.chance(60),
        }
    }
}

/// How the watermarks of a source are made.
pub(crate) fn watermarks(random: &mut Random) -> WatermarkOptions {
    let ms = |random: &mut Random, most| Duration::from_millis(random.within(0..=most) as u64);
    let idle = IdleOptions {
        duration: ms(random, 20),
        max_ratio: [0.4, 0.5, 1.0][random.index(3)],
    };
    let drift_bound = ms(random, 400);
    WatermarkOptions {
        out_of_orderness_bound: ms(random, 150),
        records_per_watermark: random.within(1..=8) as u64,
        future_limit: Duration::from_millis(FUTURE_LIMIT_MS),
        idle_partitions: random.chance(35).then_some(idle),
        unread_partitions: match random.chance(25) {
            true => UnreadPartitions::LeaveOut,
            false => UnreadPartitions::Hold,
        },
        drift_bound: random.chance(30).then_some(drift_bound),
        ..WatermarkOptions::default()
    }
}
