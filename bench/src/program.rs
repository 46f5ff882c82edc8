//! The programs that take part, and where each one keeps what it writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;
use tidelock::cli::run::COMPILED_COMPONENTS_NAME;

use crate::cost::{self, Cost};
use crate::events;
use crate::workload::Workload;

/// How many users the input has.
pub(crate) const USERS: u64 = 100_000;

/// Lines of the input of the run before the first, which fills caches and is not measured.
pub(crate) const WARM_UP_RECORDS: u64 = 1_000;

/// Where the engine and what it works with are.
#[derive(Debug, Args)]
pub(crate) struct EngineFiles {
    /// The host.
    #[arg(long)]
    pub(crate) tidelock: PathBuf,
    /// The folder of the built components.
    #[arg(long)]
    pub(crate) components: PathBuf,
    /// Where input, state and output go; the input of a contest is kept.
    #[arg(long)]
    pub(crate) folder: PathBuf,
}

/// Where all programs are.
#[derive(Debug, Args)]
pub(crate) struct Programs {
    #[command(flatten)]
    pub(crate) engine: EngineFiles,
    /// The plain program.
    #[arg(long)]
    pub(crate) plain: PathBuf,
    /// The engine with functions in place of the components.
    #[arg(long)]
    pub(crate) native: PathBuf,
}

/// Who takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// A program for this one task, without engine.
    Plain,
    /// The engine with functions in place of the components.
    Native,
    /// The engine as it is.
    Tidelock,
}

impl Program {
    /// Its name in reports and in the names of its files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Program::Plain => "plain",
            Program::Native => "native",
            Program::Tidelock => "tidelock",
        }
    }
}

/// The folder of one workload.
#[derive(Debug)]
pub(crate) struct Ground<'a> {
    pub(crate) workload: Workload,
    programs: &'a Programs,
    partitions: u32,
    folder: PathBuf,
}

impl Ground<'_> {
    /// Makes the folder.
    ///
    /// # Errors
    ///
    /// If it cannot be made.
    pub(crate) fn prepare(
        workload: Workload,
        programs: &Programs,
        partitions: u32,
    ) -> Result<Ground<'_>> {
        let folder = programs.engine.folder.join(workload.name());
        fs::create_dir_all(&folder)
            .with_context(|| format!("failed to create {}", folder.display()))?;
        Ok(Ground {
            workload,
            programs,
            partitions,
            folder,
        })
    }

    /// The input of so many records, generated if it is not there.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub(crate) fn input(&self, records: u64) -> Result<PathBuf> {
        let path = self
            .programs
            .engine
            .folder
            .join(format!("events-{records}.jsonl"));
        if !path.exists() {
            eprintln!("writing {records} events to {}", path.display());
            events::generate(&path, records, USERS)?;
        }
        Ok(path)
    }

    /// Where a program writes its rows.
    pub(crate) fn output(&self, of: Program) -> PathBuf {
        self.folder.join(format!("{}.jsonl", of.name()))
    }

    /// The data directory of a program that has one.
    pub(crate) fn data(&self, of: Program) -> PathBuf {
        self.folder.join(format!("{}-data", of.name()))
    }

    /// Runs a program from a clean state to its end: without positions, states and output of the run
    /// before. Compiled components stay.
    ///
    /// # Errors
    ///
    /// If it fails.
    pub(crate) fn run(&self, program: Program, input: &Path) -> Result<Cost> {
        let output = self.output(program);
        remove(&output)?;
        if program == Program::Plain {
            let mut command = Command::new(&self.programs.plain);
            let command = command.arg(self.workload.name()).arg(input).arg(&output);
            return cost::run(command);
        }
        let data = self.data(program);
        clear_data(&data)?;
        let components = &self.programs.engine.components;
        let text = (self.workload).pipeline(input, components, &output, self.partitions);
        let pipeline = self.folder.join(format!("{}.toml", program.name()));
        fs::write(&pipeline, text)
            .with_context(|| format!("failed to write {}", pipeline.display()))?;
        let log = self.folder.join(format!("{}.log", program.name()));
        let stderr = fs::File::create(&log)
            .with_context(|| format!("failed to create {}", log.display()))?;
        let mut command = match program {
            Program::Native => {
                let mut command = Command::new(&self.programs.native);
                command.arg(&pipeline).arg(&data);
                command
            }
            _ => {
                let mut command = Command::new(&self.programs.engine.tidelock);
                command.arg("run").arg(&pipeline).arg("--data").arg(&data);
                command
            }
        };
        cost::run(command.stderr(stderr))
            .with_context(|| format!("{} has what it said", log.display()))
    }
}

/// Removes all but the compiled components.
fn clear_data(data: &Path) -> Result<()> {
    if !data.exists() {
        return Ok(());
    }
    let entries = fs::read_dir(data);
    for entry in entries.with_context(|| format!("failed to read {}", data.display()))? {
        let entry = entry.with_context(|| format!("failed to read {}", data.display()))?;
        if entry.file_name() != COMPILED_COMPONENTS_NAME {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a file or a folder, if it is there.
fn remove(path: &Path) -> Result<()> {
    let removed = match path.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("failed to remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_data_directory_only_the_compiled_components_stay() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        clear_data(&data).unwrap();
        for name in [COMPILED_COMPONENTS_NAME, "decisions"] {
            fs::create_dir_all(data.join(name)).unwrap();
            fs::write(data.join(name).join("file"), "x").unwrap();
        }
        fs::write(data.join("lock"), "").unwrap();
        clear_data(&data).unwrap();
        let left: Vec<_> = fs::read_dir(&data)
            .unwrap()
            .map(|it| it.unwrap().path())
            .collect();
        assert_eq!(left, [data.join(COMPILED_COMPONENTS_NAME)]);
    }
}
