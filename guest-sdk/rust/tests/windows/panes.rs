//! The computation under test: it gathers the numbers of the messages in windows of any kind.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidelock_guest::prelude::*;
use tidelock_guest::window::{
    Aggregate, Merge, Pane, Placement, Session, Sliding, Timing, Tumbling, Windowing, Windows,
};

/// How many windows a key may have.
pub(crate) const MAX_OPEN_WINDOWS: usize = 200;

/// All in milliseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Options {
    pub(crate) kind: Kind,
    pub(crate) offset: u64,
    pub(crate) allowed_lateness: u64,
    pub(crate) early_every: Option<u64>,
    pub(crate) early_after: Option<u32>,
    pub(crate) discarding: bool,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Kind {
    Tumbling { size: u64 },
    Sliding { size: u64, period: u64 },
    Session { gap: u64 },
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Tumbling { .. } => "tumbling",
            Kind::Sliding { .. } => "sliding",
            Kind::Session { .. } => "session",
        }
    }
}

/// A pane, as it is emitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) timing: Timing,
    pub(crate) number: u32,
    pub(crate) ids: Vec<u32>,
}

#[derive(Streams)]
pub(crate) enum Inputs {
    Numbers,
}

#[derive(Streams)]
pub(crate) enum Outputs {
    Panes,
    TooLate,
}

#[derive(Timers)]
pub(crate) enum Alarms {
    Windows,
}

#[derive(State)]
pub(crate) struct Keyed {
    windows: Windows<BTreeSet<u32>>,
}

struct Numbers;

impl Aggregate for Numbers {
    type Value = u32;
    type Accumulator = BTreeSet<u32>;
    type Outputs = Outputs;
    type Timers = Alarms;

    fn add(&self, numbers: &mut BTreeSet<u32>, number: &u32) -> Result<()> {
        match numbers.insert(*number) {
            true => Ok(()),
            false => bail!("{number} was added twice"),
        }
    }

    fn emit(
        &self,
        pane: &Pane<BTreeSet<u32>>,
        effects: &mut Effects<Outputs, Alarms>,
    ) -> Result<()> {
        effects.emit(Outputs::Panes).json(&Row {
            key: pane.key_text()?.to_owned(),
            start: pane.window().start().as_ms(),
            end: pane.window().end().as_ms(),
            timing: pane.timing(),
            number: pane.number(),
            ids: pane.accumulator().iter().copied().collect(),
        })
    }
}

impl Merge for Numbers {
    fn merge(&self, numbers: &mut BTreeSet<u32>, mut later: BTreeSet<u32>) -> Result<()> {
        numbers.append(&mut later);
        Ok(())
    }
}

/// The computation.
pub(crate) struct Gather {
    windows: Windowing<Numbers>,
}

impl Transform for Gather {
    type Parameters = Options;
    type Inputs = Inputs;
    type Outputs = Outputs;
    type Timers = Alarms;
    type State = Keyed;

    fn new(options: Options) -> Result<Gather> {
        let ms = Duration::from_millis;
        let windows = match options.kind {
            Kind::Tumbling { size } => {
                let kind = Tumbling::new(ms(size))?.offset(ms(options.offset));
                Windowing::new(kind, Alarms::Windows, Numbers)?
            }
            Kind::Sliding { size, period } => {
                let kind = Sliding::new(ms(size), ms(period))?.offset(ms(options.offset));
                Windowing::new(kind, Alarms::Windows, Numbers)?
            }
            Kind::Session { gap } => {
                Windowing::new(Session::new(ms(gap))?, Alarms::Windows, Numbers)?
            }
        };
        let mut windows = windows
            .allowed_lateness(ms(options.allowed_lateness))
            .max_open_windows(MAX_OPEN_WINDOWS);
        if let Some(period) = options.early_every {
            windows = windows.early_every(ms(period))?;
        }
        if let Some(count) = options.early_after {
            windows = windows.early_after(count)?;
        }
        if options.discarding {
            windows = windows.discarding();
        }
        Ok(Gather { windows })
    }

    fn on_message(
        &self,
        message: &Message<Inputs>,
        state: &mut Keyed,
        effects: &mut Effects<Outputs, Alarms>,
    ) -> Result<()> {
        let placement = self
            .windows
            .add(&message.json()?, message, &mut state.windows, effects)?;
        match placement {
            Placement::Placed => {}
            Placement::TooLate => effects.emit(Outputs::TooLate).bytes(message.payload()),
        }
        Ok(())
    }

    fn on_timer(
        &self,
        timer: &Timer<Alarms>,
        state: &mut Keyed,
        effects: &mut Effects<Outputs, Alarms>,
    ) -> Result<()> {
        self.windows.on_timer(timer, &mut state.windows, effects)
    }
}
