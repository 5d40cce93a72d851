//! Logs.

use tracing_subscriber::EnvFilter;

use super::args::LogFormat;

/// What the API client logs about each failed request is said better by whoever made the request.
const QUIET: &str = "kube_client=off";

/// Sends logs to standard error, filtered by `filter`.
pub fn init(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter = if filter.contains("kube_client") { filter.to_owned() } else { format!("{filter},{QUIET}") };
    let filter = EnvFilter::try_new(filter)?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text => logs.with_ansi(false).try_init(),
        LogFormat::Json => logs.json().try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("failed to start logging: {error}"))
}
