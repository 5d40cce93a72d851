//! Records the product's log: warnings by their text, and every panic, even of detached tasks.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::{Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber, span};

use crate::time::At;
use crate::trace::Trace;

#[derive(Clone, Default)]
pub(crate) struct Logged {
    pub(crate) warnings: BTreeMap<String, u64>,
    pub(crate) panics: Vec<String>,
}

static LOGGED: Mutex<Option<Logged>> = Mutex::new(None);
static ALOUD: OnceLock<Level> = OnceLock::new();

/// Starts to record.
///
/// `LOG=debug` and other levels also print the lines.
pub(crate) fn record(_trace: &Trace) {
    *LOGGED.lock().unwrap() = Some(Logged::default());
    if let Some(level) = std::env::var("LOG").ok().and_then(|level| level.parse().ok()) {
        let _ = ALOUD.set(level);
    }
    let _ = tracing::subscriber::set_global_default(Recorder);
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if let Some(logged) = LOGGED.lock().unwrap().as_mut() {
            logged.panics.push(panic.to_string());
        }
        print(panic);
    }));
}

pub(crate) fn taken() -> Logged {
    LOGGED.lock().unwrap().clone().unwrap_or_default()
}

/// Prints the simulated time where the product's log is printed.
static NOW: Mutex<At> = Mutex::new(At(0));

/// Sets the process that runs now, for the log.
pub(crate) fn turn(now: At, name: &str) {
    if ALOUD.get().is_some() {
        *NOW.lock().unwrap() = now;
        name.clone_into(&mut WHO.lock().unwrap());
    }
}

static WHO: Mutex<String> = Mutex::new(String::new());

struct Recorder;

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?} "),
            name => write!(self.0, "{name}={value:?} "),
        };
    }
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        let level = *metadata.level();
        level <= Level::WARN
            || ALOUD.get().is_some_and(|most| level <= *most && metadata.target().starts_with("redlock_operator"))
    }

    fn new_span(&self, _span: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _span: &span::Id, _values: &span::Record<'_>) {}

    fn record_follows_from(&self, _span: &span::Id, _follows: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        if *event.metadata().level() <= Level::WARN {
            let mut message = Message(String::new());
            event.record(&mut message);
            let line = format!("{} {}: {}", event.metadata().level(), event.metadata().target(), message.0);
            if let Some(logged) = LOGGED.lock().unwrap().as_mut() {
                *logged.warnings.entry(line).or_default() += 1;
            }
        }
        if ALOUD.get().is_some_and(|most| event.metadata().level() <= most) {
            let mut text = Text(String::new());
            event.record(&mut text);
            println!("{} {} LOG {} {}", NOW.lock().unwrap(), WHO.lock().unwrap(), event.metadata().level(), text.0);
        }
    }

    fn enter(&self, _span: &span::Id) {}

    fn exit(&self, _span: &span::Id) {}
}
