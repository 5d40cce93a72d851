//! The options of kubectl that select a cluster, a user and a namespace.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context as _;
use axum::http::Uri;
use kube::Config;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use redlock_api::GoDuration;
use redlock_api::watches::limited;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::proxy;

/// Time limit for the connection to the API server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Which cluster, as whom, and where in it.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ClusterArgs {
    /// The kubeconfig file. Default: what KUBECONFIG names, ~/.kube/config, or in a pod its service account.
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig.
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    pub context: Option<String>,
    /// The namespace. Default: that of the context.
    #[arg(short, long, value_name = "NAME", help_heading = "Cluster")]
    pub namespace: Option<String>,
    /// The cluster of the kubeconfig, in place of that of the context.
    #[arg(long = "cluster", value_name = "NAME", help_heading = "Cluster")]
    pub kubeconfig_cluster: Option<String>,
    /// The user of the kubeconfig, in place of that of the context.
    #[arg(long = "user", value_name = "NAME", help_heading = "Cluster")]
    pub kubeconfig_user: Option<String>,
    /// Address of the API server, in place of that of the kubeconfig.
    #[arg(short, long, value_name = "URL", help_heading = "Cluster")]
    pub server: Option<Uri>,
    /// The bearer token, in place of the token, password or plugin of the kubeconfig.
    #[arg(long, value_name = "TOKEN", help_heading = "Cluster")]
    pub token: Option<Token>,
    /// File with the certificate authority of the API server.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure_skip_tls_verify", help_heading = "Cluster")]
    pub certificate_authority: Option<PathBuf>,
    /// File with the client certificate.
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    pub client_certificate: Option<PathBuf>,
    /// File with the key of the client certificate.
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    pub client_key: Option<PathBuf>,
    /// The name that the certificate of the API server must have. Default: its host.
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    pub tls_server_name: Option<String>,
    /// Accept every certificate of the API server. This is insecure.
    #[arg(long, help_heading = "Cluster")]
    pub insecure_skip_tls_verify: bool,
    /// The user to impersonate.
    #[arg(long = "as", value_name = "USER", help_heading = "Cluster")]
    pub as_user: Option<String>,
    /// A group to impersonate. Repeat it for several.
    #[arg(long = "as-group", value_name = "GROUP", requires = "as_user", help_heading = "Cluster")]
    pub as_groups: Vec<String>,
    /// How long one request can take. Default: 10s.
    #[arg(long, value_name = "DURATION", help_heading = "Cluster")]
    pub request_timeout: Option<GoDuration>,
}

/// A bearer token. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl FromStr for Token {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() { Err("the token is empty") } else { Ok(Self(text.to_owned())) }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl ClusterArgs {
    /// The configuration of the kubeconfig or of the pod's service account, with the options and the proxy.
    pub(super) async fn config(&self) -> anyhow::Result<Config> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            cluster: self.kubeconfig_cluster.clone(),
            user: self.kubeconfig_user.clone(),
        };
        let read = self.kubeconfig.as_ref().map_or_else(Kubeconfig::read, Kubeconfig::read_from);
        let of_kubeconfig = read.as_ref().ok().and_then(|read| proxy::of_kubeconfig(read, &options));
        let found = match read {
            Ok(read) => Config::from_custom_kubeconfig(read, &options).await,
            Err(error) => Err(error),
        };
        let (mut config, is_of_pod) = match found {
            Ok(config) => (config, false),
            Err(error) => self.without_kubeconfig(error)?,
        };
        self.set_cluster(&mut config)?;
        self.set_user(&mut config.auth_info);
        if !is_of_pod {
            config.proxy_url = proxy::Environment::read().proxy(of_kubeconfig.as_deref(), &config.cluster_url)?;
        }
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        Ok(limited(config))
    }

    /// Uses the service account of a pod, or else `--server` alone.
    ///
    /// The flag is true for the service account.
    fn without_kubeconfig(&self, error: KubeconfigError) -> anyhow::Result<(Config, bool)> {
        if self.kubeconfig.is_some() || self.context.is_some() || self.kubeconfig_cluster.is_some() {
            return Err(error.into());
        }
        match (Config::incluster(), &self.server) {
            (Ok(config), _) => Ok((config, true)),
            (Err(_), Some(server)) => Ok((Config::new(server.clone()), false)),
            (Err(in_pod), None) => Err(anyhow::anyhow!("{error}, and this is no pod: {in_pod}")),
        }
    }

    /// Applies the options of the cluster.
    ///
    /// A new server does not inherit the TLS name of the old one. A new authority ends an insecure setting.
    fn set_cluster(&self, config: &mut Config) -> anyhow::Result<()> {
        if let Some(server) = &self.server {
            config.cluster_url = server.clone();
            config.tls_server_name = None;
        }
        if let Some(name) = &self.tls_server_name {
            config.tls_server_name = Some(name.clone());
        }
        if let Some(file) = &self.certificate_authority {
            config.root_cert = Some(certificates(file)?);
            config.root_cert_file = None;
            config.accept_invalid_certs = false;
        }
        config.accept_invalid_certs |= self.insecure_skip_tls_verify;
        Ok(())
    }

    fn set_user(&self, user: &mut AuthInfo) {
        if let Some(Token(token)) = &self.token {
            user.token = Some(token.clone().into());
            (user.token_file, user.username, user.password) = (None, None, None);
            (user.exec, user.auth_provider) = (None, None);
        }
        let text = |file: &Path| Some(file.display().to_string());
        if let Some(file) = &self.client_certificate {
            (user.client_certificate, user.client_certificate_data) = (text(file), None);
        }
        if let Some(file) = &self.client_key {
            (user.client_key, user.client_key_data) = (text(file), None);
        }
        if let Some(name) = &self.as_user {
            user.impersonate = Some(name.clone());
            user.impersonate_groups = Some(self.as_groups.clone()).filter(|groups| !groups.is_empty());
        }
    }
}

fn certificates(file: &Path) -> anyhow::Result<Vec<Vec<u8>>> {
    let read = || CertificateDer::pem_file_iter(file)?.collect::<Result<Vec<_>, _>>();
    let found = read().with_context(|| format!("failed to read --certificate-authority {}", file.display()))?;
    anyhow::ensure!(!found.is_empty(), "--certificate-authority {} has no certificate in PEM", file.display());
    Ok(found.into_iter().map(|certificate| certificate.to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_replace_the_settings_of_the_kubeconfig() {
        let mut config = Config::new(Uri::from_static("https://old:6443"));
        config.tls_server_name = Some("old".to_owned());
        config.auth_info.exec = serde_json::from_value(serde_json::json!({"command": "login"})).unwrap();
        config.auth_info.client_key_data = Some("b2xk".to_owned().into());
        let args = ClusterArgs {
            server: Some(Uri::from_static("https://new:6443")),
            token: "t".parse().ok(),
            client_key: Some("/key.pem".into()),
            as_user: Some("alice".to_owned()),
            ..ClusterArgs::default()
        };
        args.set_cluster(&mut config).unwrap();
        args.set_user(&mut config.auth_info);
        assert_eq!((config.cluster_url.host(), config.tls_server_name), (Some("new"), None));
        let user = config.auth_info;
        assert!(user.token.is_some() && user.exec.is_none() && user.client_key_data.is_none());
        assert_eq!((user.client_key.as_deref(), user.impersonate.as_deref()), (Some("/key.pem"), Some("alice")));
        assert_eq!(format!("{:?}", args.token), "Some(Token(..))");
    }

    #[test]
    fn a_file_without_a_certificate_is_refused() {
        let file = std::env::temp_dir().join(format!("redlock-no-certificate-{}", std::process::id()));
        std::fs::write(&file, "no PEM").unwrap();
        let error = certificates(&file).unwrap_err().to_string();
        std::fs::remove_file(&file).unwrap();
        assert!(error.contains("has no certificate in PEM"), "{error}");
        let error = certificates(Path::new("/does/not/exist")).unwrap_err().to_string();
        assert!(error.contains("--certificate-authority"), "{error}");
    }
}
