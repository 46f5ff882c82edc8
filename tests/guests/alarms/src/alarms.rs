//! A transform that does with timers what its messages tell it, and says what it does:
//!
//! | command | |
//! |---|---|
//! | `say` | nothing else |
//! | `ring AT` | sets the event-time timer `ring` of the key |
//! | `chime AT` | sets the event-time timer `chime` |
//! | `held AT TIME` | sets `ring` with an event time of its own |
//! | `again AT STEP COUNT` | sets `ring`; each time that it fires it is set again, `STEP` later (or at the same moment: 0), so many times |
//! | `cancel AT` | cancels `ring` |
//! | `after DELAY` | sets the system-time timer `tick` |
//! | `stop` | cancels `tick` |
//!
//! Each message and each timer that fires makes a row `KEY said COMMAND` or `KEY rang STREAM TRIGGER`, with how
//! many items of the key there were so far and what the watermark was.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use tidelock_guest::prelude::*;

/// What it reads.
#[derive(Streams)]
pub enum Inputs {
    /// Commands by key.
    Commands,
}

/// What it writes.
#[derive(Streams)]
pub enum Outputs {
    /// What it does.
    Rows,
}

/// Its timer streams.
#[derive(Timers)]
pub enum Alarms {
    /// By event time; fires behind `chime` at one moment.
    Ring,
    /// By event time.
    Chime,
    /// By the host's clock.
    #[timer(system_time)]
    Tick,
}

/// What it keeps for each key.
#[derive(Debug, State)]
pub struct Keyed {
    /// How many items there were.
    #[state(version = 1, codec = Postcard)]
    items: Value<u64>,
    /// How `ring` goes on.
    #[state(version = 1, codec = Postcard)]
    again: Value<Again>,
}

/// How often a timer is to be set again, and how much later.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
pub struct Again {
    step_ms: u64,
    left: u64,
}

/// The transform.
#[derive(Debug)]
pub struct KeepsAlarms;

impl Transform for KeepsAlarms {
    type Parameters = NoParameters;
    type Inputs = Inputs;
    type Outputs = Outputs;
    type Timers = Alarms;
    type State = Keyed;

    fn new(_: NoParameters) -> Result<KeepsAlarms> {
        Ok(KeepsAlarms)
    }

    fn on_message(
        &self,
        message: &Message<'_, Inputs>,
        state: &mut Keyed,
        effects: &mut Effects<'_, Outputs, Alarms>,
    ) -> Result<()> {
        let command = message.text()?;
        let words: Vec<&str> = command.split(' ').collect();
        let number = |at: usize| -> Result<u64> {
            let word = words.get(at).context("a number is missing")?;
            word.parse().context("a number of a command")
        };
        match words[0] {
            "say" => {}
            "ring" => effects.timer(Alarms::Ring).set_at(Timestamp(number(1)?))?,
            "chime" => effects.timer(Alarms::Chime).set_at(Timestamp(number(1)?))?,
            "held" => (effects.timer(Alarms::Ring))
                .event_time(Timestamp(number(2)?))
                .set_at(Timestamp(number(1)?))?,
            "again" => {
                *state.again.get_or_default()? = Again {
                    step_ms: number(2)?,
                    left: number(3)?,
                };
                effects.timer(Alarms::Ring).set_at(Timestamp(number(1)?))?;
            }
            "cancel" => (effects.timer(Alarms::Ring)).cancel_at(Timestamp(number(1)?))?,
            "after" => {
                let delay = Duration::from_millis(number(1)?);
                effects.timer(Alarms::Tick).set_after(delay)?;
            }
            "stop" => effects.timer(Alarms::Tick).cancel()?,
            other => return Err(Error::new(format!("no such command: {other}"))),
        }
        let row = format!("{} said {command}", message.key_text()?);
        say(&row, message.watermark(), state, effects)
    }

    fn on_timer(
        &self,
        timer: &Timer<'_, Alarms>,
        state: &mut Keyed,
        effects: &mut Effects<'_, Outputs, Alarms>,
    ) -> Result<()> {
        let at = timer.trigger_time();
        let key = timer.key_text()?;
        let row = match timer.stream() {
            Alarms::Ring => format!("{key} rang ring {}", at.0),
            Alarms::Chime => format!("{key} rang chime {}", at.0),
            // When that was is the clock's business.
            Alarms::Tick => format!("{key} rang tick"),
        };
        let again = state.again.get_or_default()?;
        if again.left > 0 && matches!(timer.stream(), Alarms::Ring) {
            again.left -= 1;
            let next = Timestamp(at.0.saturating_add(again.step_ms));
            effects.timer(Alarms::Ring).set_at(next)?;
        }
        say(&row, timer.watermark(), state, effects)
    }
}

fn say(
    row: &str,
    watermark: Option<Timestamp>,
    state: &mut Keyed,
    effects: &mut Effects<'_, Outputs, Alarms>,
) -> Result<()> {
    let items = state.items.get_or_default()?;
    *items += 1;
    let watermark = watermark.unwrap_or(Timestamp(0)).0;
    let row = format!("{row} ({items} items, watermark {watermark})");
    effects.emit(Outputs::Rows).bytes(row);
    Ok(())
}
