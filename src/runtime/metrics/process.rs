//! Metrics of this process from `/proc`, under the names of Prometheus' own libraries. Other systems than Linux have none.

use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// `/proc` counts processor time in hundredths of a second, on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// The collector that reads `/proc/self`.
#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut write = |name: &str, help: &str, unit: Option<&Unit>, metric: &dyn EncodeMetric| {
            metric.encode(encoder.encode_descriptor(name, help, unit, metric.metric_type())?)
        };
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        if let Some(seconds) = cpu_seconds(&read("/proc/self/stat")) {
            let help = "Processor time that this process used";
            write("process_cpu", help, Some(&Unit::Seconds), &ConstCounter::new(seconds))?;
        }
        if let Some(bytes) = resident_bytes(&read("/proc/self/status")) {
            let help = "Memory of this process that is resident";
            write("process_resident_memory", help, Some(&Unit::Bytes), &ConstGauge::new(bytes))?;
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            let open = i64::try_from(open.count()).unwrap_or(i64::MAX);
            write("process_open_fds", "Open file descriptors", None, &ConstGauge::new(open))?;
        }
        Ok(())
    }
}

/// User and system time. The name of the program, in parentheses, can have spaces.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS_PER_SECOND)
}

fn resident_bytes(status: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<i64>().ok()?.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_figures_are_read() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 100 1 1";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t   12 kB\n"), Some(12_288));
        assert_eq!((cpu_seconds(""), resident_bytes("")), (None, None));
    }
}
