//! The tables that tell of time: how a source's watermarks are made, and what a transform makes of
//! late messages and of states that grow old.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use toml::de::DeValue;

use crate::config::fields::{Fields, Located};
use crate::config::tables::Tables;
use crate::types::batch::ComputationKind;
use crate::types::pipeline::{AllIdle, IdleOptions, StateTtl, UnreadPartitions, WatermarkOptions};

const DAY: Duration = Duration::from_secs(24 * 3_600);
const YEAR: Duration = DAY.saturating_mul(365);
const MILLISECOND: Duration = Duration::from_millis(1);

/// How far messages may be out of order, how much later than the watermark they may come, how far in
/// the future they may be, by event time.
const EVENT_TIMES: RangeInclusive<Duration> = Duration::ZERO..=YEAR.saturating_mul(100);

/// How long after its last item a state may be told to last, by event time.
const TTLS: RangeInclusive<Duration> = MILLISECOND..=YEAR.saturating_mul(100);

/// How long a partition may be without records before anything follows, by the host's clock.
const SILENCES: RangeInclusive<Duration> = MILLISECOND..=YEAR;

/// How far apart the watermarks of partitions may be told to be, by event time.
const DRIFTS: RangeInclusive<Duration> = MILLISECOND..=YEAR.saturating_mul(100);

/// The most records that may be told to go by between two watermarks.
const RECORDS_PER_WATERMARK_MAX: u64 = 1_000_000;

/// What a computation says of time.
#[derive(Default)]
pub(super) struct TimeOptions {
    /// The stream of late messages.
    pub(super) late_output: Option<Located<String>>,
    /// By input.
    pub(super) allowed_lateness: BTreeMap<String, Duration>,
    /// By state.
    pub(super) state_ttls: BTreeMap<String, StateTtl>,
}

impl Tables<'_> {
    /// What a computation makes of time: a transform alone makes anything of it.
    pub(super) fn time_options(
        &self,
        fields: &mut Fields<'_>,
        kind: Option<ComputationKind>,
        inputs: Option<&[Located<String>]>,
    ) -> TimeOptions {
        let late_output = fields.text("late_output");
        let allowed = fields.named_durations("allowed_lateness", "stream", &EVENT_TIMES);
        let states = state_ttls(fields);
        if kind == Some(ComputationKind::Map) {
            for key in ["late_output", "allowed_lateness", "states"] {
                if fields.has(key) {
                    let message = format!("{} is a map and makes nothing of time", fields.what);
                    let remedy = format!("remove {key}, or make it a transform");
                    self.report.error(fields.line_of(key), message, remedy);
                }
            }
            return TimeOptions::default();
        }
        TimeOptions {
            late_output,
            allowed_lateness: self.of_inputs(&fields.what, allowed, inputs),
            state_ttls: states,
        }
    }

    /// How a source's watermarks are made.
    pub(super) fn watermarks(&self, fields: &mut Fields<'_>) -> WatermarkOptions {
        let defaults = WatermarkOptions::default();
        let Some(mut generator) = fields.table("watermark_generator") else {
            return defaults;
        };
        let bound = generator.duration("out_of_orderness_bound", EVENT_TIMES);
        let records = generator.number("records_per_watermark", 1..=RECORDS_PER_WATERMARK_MAX);
        let future = generator.duration("future_limit", EVENT_TIMES);
        let idle = generator.table("idle_partitions").map(idle_partitions);
        let all_idle = self.all_idle(&mut generator);
        let unread = [
            ("hold", UnreadPartitions::Hold),
            ("leave_out", UnreadPartitions::LeaveOut),
        ];
        let unread = generator.choice("unread_partitions", &unread, &[]);
        let drift_bound = generator.duration("drift_bound", DRIFTS);
        generator.finish();
        WatermarkOptions {
            out_of_orderness_bound: bound
                .map_or(defaults.out_of_orderness_bound, |bound| bound.value),
            records_per_watermark: records
                .map_or(defaults.records_per_watermark, |records| records.value),
            future_limit: future.map_or(defaults.future_limit, |limit| limit.value),
            idle_partitions: idle,
            all_idle: all_idle.unwrap_or(defaults.all_idle),
            unread_partitions: unread.map_or(defaults.unread_partitions, |unread| unread.value),
            drift_bound: drift_bound.map(|bound| bound.value),
        }
    }

    /// A word, or a table with the time after which the watermark goes on.
    fn all_idle(&self, generator: &mut Fields<'_>) -> Option<AllIdle> {
        let Located { value, line } = generator.raw("all_idle")?;
        match value {
            DeValue::Table(_) => {
                let mut table = generator.table("all_idle")?;
                let after = table.duration("advance_after", SILENCES);
                let remedy = "write all_idle = { advance_after = \"10m\" }";
                let after = table.require("advance_after", after, remedy);
                table.finish();
                Some(AllIdle::AdvanceAfter(after?.value))
            }
            DeValue::String(word) if word == "hold" => Some(AllIdle::Hold),
            _ => {
                let message = format!("all_idle of {} is neither of its forms", generator.what);
                let remedy = "write all_idle = \"hold\" or all_idle = { advance_after = \"10m\" }";
                self.report.error(line, message, remedy);
                None
            }
        }
    }
}

fn idle_partitions(mut fields: Fields<'_>) -> IdleOptions {
    let defaults = IdleOptions::default();
    let duration = fields.duration("duration", SILENCES);
    let max_ratio = fields.decimal("max_ratio", 0.0..=1.0);
    fields.finish();
    IdleOptions {
        duration: duration.map_or(defaults.duration, |duration| duration.value),
        max_ratio: max_ratio.map_or(defaults.max_ratio, |ratio| ratio.value),
    }
}

/// The states that do not last for ever. Whether the component has them is not known here.
fn state_ttls(fields: &mut Fields<'_>) -> BTreeMap<String, StateTtl> {
    let what = fields.what.clone();
    let mut ttls = BTreeMap::new();
    for (name, mut state) in fields.tables_of_others("states", "state") {
        state.what = format!("{} of {what}", state.what);
        let ttl = state.duration("ttl", TTLS);
        let ttl = state.require("ttl", ttl, "write ttl = \"7d\", or remove the state here");
        state.finish();
        if let Some(ttl) = ttl {
            let line = name.line;
            let ttl = ttl.value;
            ttls.insert(name.value, StateTtl { ttl, line });
        }
    }
    ttls
}
