//! A transform that refuses one block, so that an error names it.

use serde::Deserialize;
use tidelock_guest::prelude::*;

/// What it refuses.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// The block, as it comes.
    refused: String,
}

/// Reads blocks.
#[derive(Debug, Streams)]
pub enum Inputs {
    /// Lists of lines in JSON.
    Blocks,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct RefusesABlock {
    parameters: Parameters,
}

impl Transform for RefusesABlock {
    type Parameters = Parameters;
    type Inputs = Inputs;
    type Outputs = NoStreams;
    type Timers = NoTimers;
    type State = NoState;

    fn new(parameters: Parameters) -> Result<RefusesABlock> {
        Ok(RefusesABlock { parameters })
    }

    fn on_message(
        &self,
        message: &Message<'_, Inputs>,
        _: &mut NoState,
        _: &mut Effects<'_, NoStreams>,
    ) -> Result<()> {
        if message.text()? == self.parameters.refused {
            bail!("it is refused");
        }
        Ok(())
    }
}
