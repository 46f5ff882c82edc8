//! A map: `KEY TIME COMMAND...` becomes the command as a message of that key and event time, in
//! milliseconds.

use tidelock_guest::prelude::*;

/// What it reads.
#[derive(Streams)]
pub enum Inputs {
    /// Lines.
    Lines,
}

/// What it writes.
#[derive(Streams)]
pub enum Outputs {
    /// Commands by key.
    Commands,
}

/// The map.
#[derive(Debug)]
pub struct ReadsCommands;

impl Map for ReadsCommands {
    type Parameters = NoParameters;
    type Inputs = Inputs;
    type Outputs = Outputs;

    fn new(_: NoParameters) -> Result<ReadsCommands> {
        Ok(ReadsCommands)
    }

    fn on_message(
        &self,
        message: &Message<'_, Inputs>,
        effects: &mut Effects<'_, Outputs>,
    ) -> Result<()> {
        let line = message.text()?;
        let mut words = line.splitn(3, ' ');
        let (Some(key), Some(time), Some(command)) = (words.next(), words.next(), words.next())
        else {
            // A record that leads to nothing.
            return Ok(());
        };
        let time: u64 = time.parse().context("the event time")?;
        (effects.emit(Outputs::Commands).key(key))
            .event_time(Timestamp(time))
            .bytes(command);
        Ok(())
    }
}
