//! A map that joins the lines of a batch in blocks.

use serde::Deserialize;
use tidelock_guest::prelude::*;
use tidelock_guest::{BatchEffects, BatchMap};

/// How it joins.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// The most lines of a block; without, a batch is one block.
    lines_max: Option<usize>,
    /// A line that it refuses.
    refused: Option<String>,
}

/// Reads lines.
#[derive(Debug, Streams)]
pub enum Inputs {
    /// Text.
    Lines,
}

/// Writes blocks.
#[derive(Debug, Streams)]
pub enum Outputs {
    /// The lines of a block, as a list in JSON.
    Blocks,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct JoinsLines {
    parameters: Parameters,
}

impl BatchMap for JoinsLines {
    type Parameters = Parameters;
    type Inputs = Inputs;
    type Outputs = Outputs;

    fn new(parameters: Parameters) -> Result<JoinsLines> {
        if parameters.lines_max == Some(0) {
            bail!("lines_max is 0");
        }
        Ok(JoinsLines { parameters })
    }

    fn on_batch(
        &self,
        messages: &[Message<'_, Inputs>],
        effects: &mut BatchEffects<'_, Outputs>,
    ) -> Result<()> {
        let lines_max = self.parameters.lines_max.unwrap_or(messages.len());
        let mut first = 0;
        for block in messages.chunks(lines_max) {
            let lines: Vec<&str> = block.iter().map(Message::text).collect::<Result<_>>()?;
            for line in &lines {
                if self.parameters.refused.as_deref() == Some(line) {
                    bail!("line {line:?} is refused");
                }
            }
            let parents = first..first + block.len();
            first = parents.end;
            effects.emit(Outputs::Blocks, parents).json(&lines)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidelock_guest::testing::TestBench;

    #[test]
    fn a_batch_is_cut_into_blocks_of_the_greatest_size() {
        let mut bench = TestBench::<JoinsLines>::new(r#"{"lines_max": 2}"#)
            .expect("it takes its parameters")
            .with_batch_size(3);
        for line in ["a", "b", "c", "d"] {
            bench.send("lines", "", Timestamp(0), line);
        }
        bench.run().expect("no line is refused");
        let blocks = [r#"["a","b"]"#, r#"["c"]"#, r#"["d"]"#];
        assert_eq!(bench.payloads("blocks"), blocks);
    }
}
