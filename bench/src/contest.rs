//! The contest: plain program, engine with functions in place of components, and engine in turns, from
//! a clean state each time, and the outputs of each turn compared. What is warm on a machine that has
//! run the pipeline before is warm here too: the input is in the page cache and the components are
//! compiled.

use anyhow::Result;

use crate::ContestArguments;
use crate::agreement;
use crate::cost::Cost;
use crate::figures::{Figures, shown};
use crate::program::{Ground, Program, WARM_UP_RECORDS};

/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;

/// What the programs took, turn by turn.
struct Turns {
    plain: Vec<Cost>,
    native: Vec<Cost>,
    tidelock: Vec<Cost>,
    /// Rows and users of the outputs, which agree.
    agreed: (u64, usize),
}

/// Measures all the workloads asked for.
///
/// # Errors
///
/// If a program fails or the outputs differ.
pub(crate) fn run(arguments: &ContestArguments) -> Result<()> {
    for workload in &arguments.workloads {
        let ground = Ground::prepare(*workload, &arguments.programs, arguments.partitions)?;
        let turns = take_turns(&ground, arguments)?;
        report(&ground, arguments, &turns);
    }
    Ok(())
}

fn take_turns(ground: &Ground<'_>, arguments: &ContestArguments) -> Result<Turns> {
    let input = ground.input(arguments.records)?;
    let warm_up = ground.input(WARM_UP_RECORDS)?;
    ground.run(Program::Native, &warm_up)?;
    ground.run(Program::Tidelock, &warm_up)?;
    ground.run(Program::Plain, &input)?;
    let mut turns = Turns {
        plain: Vec::new(),
        native: Vec::new(),
        tidelock: Vec::new(),
        agreed: (0, 0),
    };
    for run in 1..=arguments.runs {
        let plain = ground.run(Program::Plain, &input)?;
        let native = ground.run(Program::Native, &input)?;
        let tidelock = ground.run(Program::Tidelock, &input)?;
        for program in [Program::Native, Program::Tidelock] {
            let outputs = (ground.output(program), ground.output(Program::Plain));
            turns.agreed = agreement::check(&outputs.0, &outputs.1)?;
        }
        eprintln!(
            "{} run {run} of {}: plain {:.2} s, native {:.2} s, tidelock {:.2} s",
            ground.workload.name(),
            arguments.runs,
            plain.elapsed.as_secs_f64(),
            native.elapsed.as_secs_f64(),
            tidelock.elapsed.as_secs_f64(),
        );
        turns.plain.push(plain);
        turns.native.push(native);
        turns.tidelock.push(tidelock);
    }
    Ok(turns)
}

fn report(ground: &Ground<'_>, arguments: &ContestArguments, turns: &Turns) {
    println!(
        "\n{}: {}; {} records, partitions: {}, runs: {}",
        ground.workload.name(),
        ground.workload.description(),
        arguments.records,
        arguments.partitions,
        arguments.runs,
    );
    println!(
        "{:<10}{:<32}{:<28}{:<20}written, bytes for each record",
        "", "records/s: median (range)", "processors, us a record", "peak memory, MiB"
    );
    let Turns {
        plain,
        native,
        tidelock,
        agreed: (rows, users),
    } = turns;
    for (program, costs) in [
        (Program::Plain, plain),
        (Program::Native, native),
        (Program::Tidelock, tidelock),
    ] {
        let records = arguments.records as f64;
        let rates = costs
            .iter()
            .map(|cost| records / cost.elapsed.as_secs_f64());
        let processors = costs.iter().filter_map(|cost| cost.processors);
        let processors = processors.map(|time| time.as_secs_f64() * 1e6 / records);
        let memory = costs.iter().filter_map(|cost| cost.memory_bytes);
        let memory = memory.map(|bytes| bytes as f64 / MIB);
        let written = costs.iter().filter_map(|cost| cost.written_bytes);
        let written = written.map(|bytes| bytes as f64 / records);
        println!(
            "{:<10}{:<32}{:<28}{:<20}{}",
            program.name(),
            shown(Figures::of(rates), 0),
            shown(Figures::of(processors), 2),
            shown(Figures::of(memory), 0),
            shown(Figures::of(written), 0),
        );
    }
    println!(
        "speed turn by turn: tidelock against plain {}, native against plain {}, tidelock against native {}",
        speed_against(tidelock, plain),
        speed_against(native, plain),
        speed_against(tidelock, native),
    );
    println!(
        "the sandbox's share of tidelock's processor time, turn by turn: {}",
        sandbox_share(native, tidelock)
    );
    println!(
        "The outputs agree: for each of {users} users the same rows in the same order, {rows} in all."
    );
}

/// How fast one program is, the other one being 1.
fn speed_against(program: &[Cost], other: &[Cost]) -> String {
    let pairs = program.iter().zip(other);
    let ratios =
        pairs.map(|(program, other)| other.elapsed.as_secs_f64() / program.elapsed.as_secs_f64());
    shown(Figures::of(ratios), 2)
}

/// What is saved where no component is called, as a share of the whole.
fn sandbox_share(native: &[Cost], tidelock: &[Cost]) -> String {
    let pairs = native.iter().zip(tidelock);
    let shares = pairs.filter_map(|(native, tidelock)| {
        let (native, tidelock) = native.processors.zip(tidelock.processors)?;
        Some(1.0 - native.as_secs_f64() / tidelock.as_secs_f64())
    });
    shown(Figures::of(shares), 2)
}
