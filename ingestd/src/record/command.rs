//! Records the output of a program: its lines on standard output and standard error, or the JSON on its standard output.
//!
//! Lines get the time at which they are read. The exit is a line too, of its own stream, so that queries show when and how the program ended.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use loom_engine::schema::{
    FieldDef, FieldType, FieldValue, IndexDef, PayloadEncoder, SourceDef, TimeKind,
};
use rustix::process::Signal;

use super::outlet::Outlet;
use super::rows::{Rows, store};
use super::{Capture, Ending};
use crate::child::{Line, PATIENCE, Program, Stream, send_lines};
use crate::input::{Format, LoadOptions, Refusals};
use crate::protocol::Shape;
use crate::quoted;
use crate::sink;
use crate::wall_clock;

/// How long a capture waits for lines before it checks whether it must end.
const TICK: Duration = Duration::from_millis(20);
/// The limit of lines that wait to be stored.
const LINES: usize = 1024;
/// The remedy for a program that does not start.
const REMEDY: &str =
    ", whose output is to be recorded; give the name of a program on PATH, or its path";
const EXIT: u64 = 3;

/// Starts a program whose lines are recorded.
pub fn lines(words: &[OsString], source: String) -> anyhow::Result<Box<dyn Capture>> {
    let mut command = command(words)?;
    command.stderr(Stdio::piped());
    let mut program = Program::start(&mut command, REMEDY)?;
    let (sender, lines) = bounded(LINES);
    send_lines(program.output(), Stream::Output, sender.clone())?;
    send_lines(program.errors(), Stream::Errors, sender)?;
    Ok(Box::new(LineCapture {
        program,
        lines,
        source: definition(source),
    }))
}

/// Starts a program that writes JSON lines, whose keys fill the fields of the same name: those of `fields`, or of the existing source.
pub fn json(
    words: &[OsString],
    source: String,
    fields: Option<SourceDef>,
    dir: &Path,
) -> anyhow::Result<Box<dyn Capture>> {
    let mut options = LoadOptions::new(&source);
    options.declared = match fields {
        Some(fields) => Some(fields),
        None => sink::existing(dir, &source)?,
    };
    let known = options.declared.as_ref().with_context(|| {
        format!(
            "cannot record JSON into source '{source}': it does not exist yet, and JSON does not say the types of its fields; declare them with \
             --fields"
        )
    })?;
    ensure!(
        known.time == TimeKind::Arrival,
        "cannot record JSON into source '{source}': its records carry their own time; record into another source with --source NAME"
    );
    let mut command = command(words)?;
    let name = command.get_program().to_string_lossy().into_owned();
    let mut program = Program::start(&mut command, REMEDY)?;
    let rows = Rows::open(program.output(), &name, Format::Json, options)?;
    Ok(Box::new(JsonCapture { program, rows }))
}

fn command(words: &[OsString]) -> anyhow::Result<Command> {
    let (program, args) = words.split_first().context("no program is given")?;
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    Ok(command)
}

struct LineCapture {
    program: Program,
    lines: Receiver<Line>,
    source: SourceDef,
}

fn definition(name: String) -> SourceDef {
    let labels = [(1, "stdout"), (2, "stderr"), (3, "exit")];
    SourceDef {
        time: TimeKind::Own,
        fields: vec![
            FieldDef {
                labels: labels
                    .map(|(number, name)| (number, name.to_owned()))
                    .into(),
                ..FieldDef::new("stream", FieldType::U8)
            },
            FieldDef::new("line", FieldType::Utf8),
        ],
        indexes: vec![IndexDef::new("stream", Some("stream"))],
        ..SourceDef::new(name)
    }
}

impl Capture for LineCapture {
    fn source(&self) -> &SourceDef {
        &self.source
    }

    fn query(&self, dir: &str) -> String {
        format!(
            "SELECT ts, stream, line FROM loom_tail({dir}, {}, 20)",
            quoted(&self.source.name)
        )
    }

    fn run(self: Box<Self>, outlet: &Outlet, stop: &AtomicBool) -> anyhow::Result<Ending> {
        let LineCapture {
            mut program,
            lines,
            source,
        } = *self;
        let mut encoder = PayloadEncoder::new(source.time, &source.fields)?;
        let mut store = |at, stream, line: &str| {
            let mut payload = vec![0, 0];
            let values = [FieldValue::U64(stream), FieldValue::Bytes(line.as_bytes())];
            encoder.encode(Some(at), &values, &mut payload)?;
            let bytes =
                u16::try_from(payload.len() - 2).context("a line is shorter than a record")?;
            if let Some(length) = payload.first_chunk_mut() {
                *length = bytes.to_le_bytes();
            }
            outlet.push(Shape::Framed, &payload, 1)
        };
        until_ended(&program, &lines, stop, |line| {
            store(line.at, line.stream as u64, &line.text)
        })?;
        let (status, ending) = exit(&mut program, stop)?;
        store(wall_clock(), EXIT, &status.to_string())?;
        Ok(ending)
    }
}

struct JsonCapture {
    program: Program,
    rows: Rows,
}

impl Capture for JsonCapture {
    fn source(&self) -> &SourceDef {
        self.rows.source()
    }

    fn query(&self, dir: &str) -> String {
        format!("FROM loom_tail({dir}, {}, 20)", quoted(&self.source().name))
    }

    fn run(self: Box<Self>, outlet: &Outlet, stop: &AtomicBool) -> anyhow::Result<Ending> {
        let JsonCapture { mut program, rows } = *self;
        let batches = rows.read()?;
        let mut refusals = Refusals::default();
        until_ended(&program, &batches, stop, |batch| {
            store(&batch?, &mut refusals, outlet)
        })?;
        let (_, ending) = exit(&mut program, stop)?;
        Ok(ending)
    }
}

/// Receives the program's output until it ends. `stop` ends the program, which is killed if it does not end in time.
fn until_ended<T>(
    program: &Program,
    from: &Receiver<T>,
    stop: &AtomicBool,
    mut take: impl FnMut(T) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut asked: Option<Instant> = None;
    loop {
        if asked.is_none() && stop.load(Ordering::Relaxed) {
            asked = Some(Instant::now());
            program.signal(Signal::TERM);
        }
        let late = asked
            .map(|asked| asked.elapsed())
            .filter(|&late| late >= PATIENCE);
        if late.is_some() {
            program.signal(Signal::KILL);
        }
        // Another program may still hold the pipe.
        if late.is_some_and(|late| late >= 2 * PATIENCE) {
            return Ok(());
        }
        match from.recv_timeout(TICK) {
            Ok(taken) => take(taken)?,
            Err(RecvTimeoutError::Timeout) if late.is_some() => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// The exit of a program whose output has ended.
fn exit(program: &mut Program, stop: &AtomicBool) -> anyhow::Result<(ExitStatus, Ending)> {
    let is_asked = stop.load(Ordering::Relaxed);
    let status = if is_asked {
        program.wait_a_little()?
    } else {
        program.wait()?
    };
    let mut ending = Ending::default();
    let said = format!("the program ended with {status}");
    if status.success() {
        ending.notes.push(said);
    } else if !is_asked {
        ending.why = Some(said);
    }
    Ok((status, ending))
}

#[cfg(test)]
mod tests {
    use loom_engine::schema::Layout;

    use super::*;

    #[test]
    fn a_line_is_a_payload_of_the_source() {
        let source = definition("log".to_owned());
        source.validate().unwrap();
        let mut encoder = PayloadEncoder::new(source.time, &source.fields).unwrap();
        let values = [FieldValue::U64(EXIT), FieldValue::Bytes(b"exit status: 0")];
        let mut payload = Vec::new();
        let at = loom_engine::Timestamp(7);
        encoder.encode(Some(at), &values, &mut payload).unwrap();
        let layout = Layout::new(source.time, &source.fields).unwrap();
        layout.validate(&payload).unwrap();
    }
}
