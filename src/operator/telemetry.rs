//! Logs.

use std::io::{Write, stderr};

use tracing_subscriber::EnvFilter;

use super::args::LogFormat;

/// Log filters for the API client.
///
/// The caller of a request logs its failure with more context. The spans of the controllers would add 100 characters to each record.
const QUIET: &str = "kube_client=off,kube_runtime::controller=warn";

/// Sends logs to standard error, filtered by `filter`.
pub fn init(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter = if filter.contains("kube_client") { filter.to_owned() } else { format!("{filter},{QUIET}") };
    let filter = EnvFilter::try_new(filter)?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text => logs.with_ansi(false).with_writer(|| OneLine(stderr())).try_init(),
        LogFormat::Json => logs.json().try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("failed to start logging: {error}"))
}

/// Writes each record as one line.
///
/// Records contain names of holders, reasons of users and answers of members. With a line break, such a text could imitate a record of the
/// operator.
struct OneLine<W>(W);

impl<W: Write> Write for OneLine<W> {
    /// Escapes control characters. The formatter writes each record in one call.
    fn write(&mut self, record: &[u8]) -> std::io::Result<usize> {
        let (text, end) = record.strip_suffix(b"\n").map_or((record, &b""[..]), |text| (text, b"\n"));
        let mut line = Vec::with_capacity(record.len());
        for byte in text {
            if byte.is_ascii_control() && *byte != b'\t' {
                line.extend(byte.escape_ascii());
            } else {
                line.push(*byte);
            }
        }
        line.extend(end);
        self.0.write_all(&line)?;
        Ok(record.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_log_record_with_line_breaks_is_one_line() {
        let kept = Kept::default();
        let to = kept.clone();
        let logs = tracing_subscriber::fmt().with_ansi(false).with_writer(move || OneLine(to.clone())).finish();
        tracing::subscriber::with_default(logs, || {
            tracing::info!(identity = %"me\n2026-01-01T00:00:00Z  INFO all is well\r", "held");
            tracing::info!("second, ä");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains(r"me\n2026") && text.contains("second, ä"), "{text}");
    }
}
