//! A program on the control plane's network, in a directory of its own.

use std::path::PathBuf;

use crate::bench::Bench;

/// The program and the directory. Both end when this value is dropped.
pub(super) struct ControlPlaneProcess {
    bench: Bench,
    pub(super) directory: PathBuf,
}

impl ControlPlaneProcess {
    /// Creates the directory, with the name of the test and of the program.
    pub(super) fn prepare(bench: &Bench, program: &str) -> anyhow::Result<Self> {
        let directory = std::env::temp_dir().join(format!("{}.{program}", bench.namespace));
        std::fs::create_dir_all(&directory)?;
        Ok(Self { bench: bench.clone(), directory })
    }

    /// Starts the command in the directory.
    pub(super) async fn start(&self, command: &str) -> anyhow::Result<()> {
        let directory = self.directory.display();
        let script = format!(
            "set -eu
             cd {directory}
             nohup {command} >log 2>&1 &
             echo $! >pid"
        );
        self.bench.cluster.faults.beside_the_control_plane(&script).await.map(drop)
    }
}

impl Drop for ControlPlaneProcess {
    fn drop(&mut self) {
        let directory = self.directory.display();
        let script = format!("kill -KILL $(cat {directory}/pid); rm -rf {directory}");
        self.bench.cluster.faults.clean_up_beside_the_control_plane(&script);
    }
}
