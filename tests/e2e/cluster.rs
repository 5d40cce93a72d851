//! The cluster under test, and access to it.

use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Config, Resource, config::Kubeconfig};
use tokio::{io::AsyncWriteExt as _, process::Command, time::timeout};

use crate::faults::Faults;

/// The timeout of a command without a longer one.
const COMMAND_LIMIT: Duration = Duration::from_secs(180);

/// The cluster under test.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) config: Config,
    pub(crate) faults: Faults,
    /// Namespace of the operator.
    pub(crate) operator_namespace: String,
    /// The image of members: Valkey with redis-server, redis-cli and sh.
    pub(crate) member_image: String,
    /// The same programs of Redis 7.0.
    pub(crate) redis_image: String,
    /// An image with Redis whose wall clock differs by the milliseconds in /dev/shm/clock.
    ///
    /// Local cluster only.
    pub(crate) redis_clock_image: String,
    root: PathBuf,
    kubectl: PathBuf,
    pub(crate) kubeconfig: PathBuf,
}

/// The checkout with the local cluster: that of `cargo test`, or the one that built this program.
pub(crate) fn checkout() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

/// The output of a command with its errors.
pub(crate) fn text_of(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn env(name: &str, default: &str) -> String {
    std::env::var(name).ok().filter(|value| !value.is_empty()).unwrap_or(default.into())
}

impl Cluster {
    /// Finds the cluster of `KUBECONFIG`, or else the local one.
    pub(crate) async fn find() -> anyhow::Result<Self> {
        let root = &checkout();
        let external = env("CLUSTER", "local") == "external";
        let local_kubeconfig = root.join(".local/kubeconfig");
        let kubeconfig = PathBuf::from(env("KUBECONFIG", &local_kubeconfig.to_string_lossy()));
        let faults = if external { Faults::none() } else { Faults::local(root) };
        Self::of(kubeconfig, faults).await
    }

    /// The second one of two local clusters (`dev/clusters.sh`).
    pub(crate) async fn second() -> anyhow::Result<Self> {
        Self::of(checkout().join(".local/second/kubeconfig"), Faults::second(&checkout())).await
    }

    async fn of(kubeconfig: PathBuf, faults: Faults) -> anyhow::Result<Self> {
        let root = &checkout();
        let external = !faults.available();
        ensure!(kubeconfig.exists(), "{} does not exist: run `make up` first", kubeconfig.display());
        let local_kubectl = root.join(".local/bin/kubectl");
        let kubectl = if local_kubectl.exists() { local_kubectl } else { "kubectl".into() };
        let options = kube::config::KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(Kubeconfig::read_from(&kubeconfig)?, &options).await?;
        let member_image =
            if external { redlock_operator::api::DEFAULT_IMAGE } else { "redlock-operator.local/valkey:8.1" };
        let redis_image = if external { "docker.io/library/redis:7.2" } else { "redlock-operator.local/redis:7.0" };
        Ok(Self {
            client: Client::try_from(config.clone())?,
            config,
            faults,
            operator_namespace: env("REDLOCK_NAMESPACE", "redlock-system"),
            member_image: env("MEMBER_IMAGE", member_image),
            redis_image: env("REDIS_IMAGE", redis_image),
            redis_clock_image: "redlock-operator.local/redis-clock:7.0".into(),
            root: root.into(),
            kubectl,
            kubeconfig,
        })
    }

    /// Objects of a kind in the operator's namespace.
    pub(crate) fn operator_api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.operator_namespace)
    }

    /// Runs helm in a namespace, and returns whether it succeeded, and its output.
    pub(crate) async fn try_helm(&self, namespace: &str, arguments: &[&str]) -> anyhow::Result<(bool, String)> {
        let local = self.root.join(".local/bin/helm");
        let program: &Path = if local.exists() { &local } else { Path::new("helm") };
        let output = self.run(program, &[arguments, &["--namespace", namespace]].concat(), "").await?;
        Ok((output.status.success(), text_of(&output)))
    }

    /// Runs helm in a namespace, which must succeed, and returns its output.
    pub(crate) async fn helm(&self, namespace: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let (is_done, text) = self.try_helm(namespace, arguments).await?;
        ensure!(is_done, "helm {arguments:?}: {text}");
        Ok(text)
    }

    /// Installs or upgrades the operator.
    pub(crate) async fn deploy(&self) -> anyhow::Result<()> {
        self.run_deploy(None, &[]).await
    }

    /// Installs or upgrades the operator with these values of the chart.
    pub(crate) async fn deploy_with(&self, values: &[&str]) -> anyhow::Result<()> {
        let values: Vec<&str> = values.iter().flat_map(|value| ["--set", *value]).collect();
        self.run_deploy(None, &values).await
    }

    /// Upgrades the operator to its other image, with other settings and other pods.
    ///
    /// `dev/image.sh operator-next` makes that image.
    pub(crate) async fn deploy_next(&self) -> anyhow::Result<()> {
        let values = ["--set", "limits.locksPerNamespace=9999", "--set-string", "podLabels.upgraded=true"];
        self.run_deploy(Some("redlock-operator.local/redlock-operator:next"), &values).await
    }

    /// Runs commands as a user, with the tools of the checkout, and returns their output.
    ///
    /// All commands must succeed.
    pub(crate) async fn shell(&self, script: &str) -> anyhow::Result<String> {
        let tools = self.root.join(".local/bin");
        let script = format!("export PATH={}:$PATH; set -euo pipefail\n{script}", tools.display());
        let output = self.run(Path::new("bash"), &["-c", &script], "").await?;
        let text = text_of(&output);
        ensure!(output.status.success(), "{text}");
        Ok(text)
    }

    async fn run_deploy(&self, image: Option<&str>, values: &[&str]) -> anyhow::Result<()> {
        let script = self.root.join("dev/deploy.sh");
        let image = image.map(|image| format!("IMAGE={image}"));
        let script = script.to_str().context("not a name")?;
        let arguments: Vec<_> = image.as_deref().into_iter().chain([script]).chain(values.iter().copied()).collect();
        let output = self.run(Path::new("env"), &arguments, "").await?;
        ensure!(output.status.success(), "deploy.sh failed: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Runs kubectl and returns its output, whether or not it succeeded.
    pub(crate) async fn kubectl_output(&self, arguments: &[&str], input: &str) -> anyhow::Result<Output> {
        self.run(&self.kubectl, arguments, input).await
    }

    /// The path of the command `redlock` of this checkout.
    pub(crate) fn redlock_path(&self) -> &'static str {
        env!("CARGO_BIN_EXE_redlock")
    }

    /// Runs that command and returns its output, whether or not it succeeded.
    pub(crate) async fn redlock(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        self.run(Path::new(self.redlock_path()), arguments, "").await
    }

    /// Starts the command with its output in a file.
    ///
    /// It ends when the returned child is dropped.
    pub(crate) fn redlock_into(&self, arguments: &[&str], file: &Path) -> anyhow::Result<tokio::process::Child> {
        let mut command = Command::new(self.redlock_path());
        command.env("KUBECONFIG", &self.kubeconfig).args(arguments).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(std::fs::File::create(file)?).stderr(Stdio::inherit());
        Ok(command.spawn()?)
    }

    async fn run(&self, program: &Path, arguments: &[&str], input: &str) -> anyhow::Result<Output> {
        let mut command = Command::new(program);
        command.env("KUBECONFIG", &self.kubeconfig).args(arguments).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("failed to run {}", program.display()))?;
        let mut stdin = child.stdin.take();
        let run = async {
            if let Some(stdin) = &mut stdin {
                // A program that does not read its input is no failure.
                let _unread = stdin.write_all(input.as_bytes()).await;
            }
            drop(stdin);
            child.wait_with_output().await
        };
        let output = timeout(COMMAND_LIMIT, run).await;
        let late = || format!("{} {}: not done in {COMMAND_LIMIT:?}", program.display(), arguments.join(" "));
        Ok(output.with_context(late)??)
    }

    /// Runs a script as a user whose kubectl is set to this namespace.
    pub(crate) async fn shell_in(&self, namespace: &str, script: &str) -> anyhow::Result<Output> {
        let config = std::env::temp_dir().join(format!("{namespace}.kubeconfig"));
        let config = config.to_str().context("not a name")?;
        std::fs::copy(&self.kubeconfig, config)?;
        let set = ["--kubeconfig", config, "config", "set-context", "--current", "--namespace", namespace];
        self.kubectl(&set).await?;
        let folder = self.kubectl.parent().unwrap_or_else(|| Path::new(""));
        let path = format!("PATH={}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
        let set = format!("KUBECONFIG={config}");
        let output = self.run(Path::new("env"), &[&set, &path, "bash", "-c", script], "").await;
        std::fs::remove_file(config)?;
        output
    }

    /// Applies a manifest.
    pub(crate) async fn apply(&self, manifest: &str) -> anyhow::Result<()> {
        let output = self.kubectl_output(&["apply", "-f", "-"], manifest).await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Runs kubectl, which must succeed, and returns its output.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.kubectl_output(arguments, "").await?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {} failed: {}", arguments.join(" "), error.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
