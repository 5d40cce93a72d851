//! The proxy between this machine and the API server, as kubectl chooses it.

use std::net::IpAddr;

use anyhow::Context as _;
use axum::http::Uri;
use ipnet::IpNet;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// The environment variables that name proxies, and the addresses that need none.
#[derive(Clone, Debug, Default)]
pub(super) struct Environment {
    https: Option<String>,
    http: Option<String>,
    direct: String,
}

impl Environment {
    pub(super) fn read() -> Self {
        Self::of(|name| std::env::var(name).ok())
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let either = |name: &str| {
            let values = [variable(name), variable(&name.to_lowercase())];
            values.into_iter().flatten().find(|value| !value.is_empty())
        };
        Self {
            https: either("HTTPS_PROXY"),
            http: either("HTTP_PROXY"),
            direct: either("NO_PROXY").unwrap_or_default(),
        }
    }

    /// The proxy for this server.
    ///
    /// The kubeconfig's `proxy-url` has priority over the environment, and NO_PROXY does not apply to it.
    pub(super) fn proxy(&self, of_kubeconfig: Option<&str>, server: &Uri) -> anyhow::Result<Option<Uri>> {
        let of_scheme = if server.scheme_str() == Some("http") { &self.http } else { &self.https };
        let url = match of_kubeconfig.filter(|url| !url.is_empty()) {
            Some(url) => Some(url),
            None if self.is_direct(server) => None,
            None => of_scheme.as_deref(),
        };
        url.map(parsed).transpose()
    }

    /// Whether the connection needs no proxy: NO_PROXY names the server, or it is this machine.
    fn is_direct(&self, server: &Uri) -> bool {
        let host = server.host().unwrap_or_default().trim_matches(['[', ']']).to_lowercase();
        let port = server.port_u16().unwrap_or(if server.scheme_str() == Some("http") { 80 } else { 443 });
        let address = host.parse::<IpAddr>().ok();
        let is_here = host == "localhost" || address.is_some_and(|address| address.is_loopback());
        is_here || self.direct.split(',').any(|entry| matches(&entry.trim().to_lowercase(), &host, port, address))
    }
}

/// Reads the address of a proxy. The errors do not contain its password.
fn parsed(url: &str) -> anyhow::Result<Uri> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let (user, address) = rest.rsplit_once('@').map_or((None, rest), |(user, address)| (Some(user), address));
    let scheme = match scheme {
        // The proxy resolves the name of the API server in both cases.
        "socks5" | "socks5h" => "socks5",
        "http" | "https" => scheme,
        other => anyhow::bail!("proxy {other}://{address} is not supported: use a proxy with http, https or socks5"),
    };
    if scheme == "socks5" && user.is_some() {
        anyhow::bail!("proxy socks5://{address} wants a password: use a SOCKS5 proxy without one, or an HTTP proxy");
    }
    format!("{scheme}://{rest}").parse().with_context(|| format!("{scheme}://{address} is no address of a proxy"))
}

/// Whether an entry of NO_PROXY matches a host.
///
/// The entry is `*`, a network, or an address or a domain, both with or without a port.
fn matches(entry: &str, host: &str, port: u16, address: Option<IpAddr>) -> bool {
    if entry.is_empty() || entry == "*" {
        return entry == "*";
    }
    if let Ok(network) = entry.parse::<IpNet>() {
        return address.is_some_and(|address| network.contains(&address));
    }
    if let Ok(named) = entry.parse::<IpAddr>() {
        return address == Some(named);
    }
    let (name, of_port) = match entry.rsplit_once(':') {
        Some((name, of_port)) if !name.contains(':') || name.ends_with(']') => (name, Some(of_port)),
        _ => (entry, None),
    };
    let name = name.trim_matches(['[', ']']);
    if of_port.is_some_and(|of_port| of_port.parse() != Ok(port)) {
        return false;
    }
    match name.strip_prefix("*.").or_else(|| name.strip_prefix('.')) {
        Some(domain) => host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')),
        None => host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')),
    }
}

/// The `proxy-url` of the selected cluster.
pub(super) fn of_kubeconfig(kubeconfig: &Kubeconfig, options: &KubeConfigOptions) -> Option<String> {
    let context = options.context.as_ref().or(kubeconfig.current_context.as_ref());
    let of_context = || {
        let named = kubeconfig.contexts.iter().find(|named| Some(&named.name) == context)?;
        Some(&named.context.as_ref()?.cluster)
    };
    let name = options.cluster.as_ref().or_else(of_context)?;
    let named = kubeconfig.clusters.iter().find(|named| named.name == *name)?;
    named.cluster.as_ref()?.proxy_url.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(direct: &str) -> Environment {
        let values = [("HTTPS_PROXY", "http://secure:3128"), ("http_proxy", "plain:3128"), ("no_proxy", direct)];
        let variable = |name: &str| values.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Environment::of(variable)
    }

    fn chosen(direct: &str, server: &str) -> Option<String> {
        let proxy = environment(direct).proxy(None, &server.parse().unwrap()).unwrap();
        proxy.map(|proxy| proxy.to_string())
    }

    #[test]
    fn a_proxy_is_that_of_the_scheme() {
        assert_eq!(chosen("", "https://api.example.com:6443").as_deref(), Some("http://secure:3128/"));
        assert_eq!(chosen("", "http://api.example.com").as_deref(), Some("http://plain:3128/"));
        let server = "https://a:1".parse().unwrap();
        assert_eq!(Environment::default().proxy(None, &server).unwrap(), None);
    }

    #[test]
    fn hosts_in_no_proxy_are_reached_without_a_proxy() {
        for (entry, server) in [
            ("*", "https://api.example.com"),
            ("a, example.com", "https://api.example.com:6443"),
            ("example.com", "https://example.com"),
            (".example.com", "https://api.EXAMPLE.com"),
            ("*.example.com", "https://api.example.com"),
            ("api.example.com:6443", "https://api.example.com:6443"),
            ("10.0.0.0/8", "https://10.1.2.3:6443"),
            ("10.1.2.3", "https://10.1.2.3:6443"),
            ("fd00::/8", "https://[fd00::7]:6443"),
            ("[fd00::7]:6443", "https://[fd00::7]:6443"),
            ("", "https://127.0.0.1:6443"),
            ("", "https://[::1]:6443"),
            ("", "https://localhost:6443"),
        ] {
            assert_eq!(chosen(entry, server), None, "{entry} {server}");
        }
        for (entry, server) in [
            ("", "https://api.example.com"),
            (",", "https://api.example.com"),
            ("example.com", "https://notexample.com"),
            (".example.com", "https://example.com"),
            ("api.example.com:443", "https://api.example.com:6443"),
            ("10.0.0.0/8", "https://11.1.2.3"),
            ("secure", "https://api.example.com"),
        ] {
            assert!(chosen(entry, server).is_some(), "{entry} {server}");
        }
    }

    /// kubectl does the same, because the kubeconfig is more precise than the environment.
    #[test]
    fn the_proxy_of_the_kubeconfig_goes_before_the_environment() {
        let server = "https://api.example.com".parse().unwrap();
        let proxy = environment("*").proxy(Some("http://near:8080"), &server).unwrap();
        assert_eq!(proxy.unwrap(), "http://near:8080/");
        assert!(environment("").proxy(Some(""), &server).unwrap().unwrap().host() == Some("secure"));
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_named_without_its_password() {
        let server = "https://api.example.com".parse().unwrap();
        let used = |url: &str| Environment::default().proxy(Some(url), &server);
        assert_eq!(used("socks5h://near:1080").unwrap().unwrap(), "socks5://near:1080/");
        for (url, advice) in [
            ("socks5://me:secret@near:1080", "without one, or an HTTP proxy"),
            ("ftp://me:secret@near:21", "use a proxy with http, https or socks5"),
            ("http://me:secret@a b", "is no address of a proxy"),
        ] {
            let error = format!("{:#}", used(url).unwrap_err());
            assert!(error.contains(advice) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn the_proxy_url_is_that_of_the_chosen_cluster() {
        let kubeconfig: Kubeconfig = serde_json::from_value(serde_json::json!({
            "current-context": "near",
            "contexts": [
                {"name": "near", "context": {"cluster": "one", "user": "me"}},
                {"name": "far", "context": {"cluster": "two", "user": "me"}},
            ],
            "clusters": [
                {"name": "one", "cluster": {"server": "https://one"}},
                {"name": "two", "cluster": {"server": "https://two", "proxy-url": "http://proxy:1"}},
            ],
        }))
        .unwrap();
        let of = |context: Option<&str>, cluster: Option<&str>| {
            let (context, cluster) = (context.map(str::to_owned), cluster.map(str::to_owned));
            of_kubeconfig(&kubeconfig, &KubeConfigOptions { context, cluster, user: None })
        };
        assert_eq!((of(None, None), of(Some("none"), None)), (None, None));
        let proxy = Some("http://proxy:1".to_owned());
        assert_eq!((of(Some("far"), None), of(None, Some("two"))), (proxy.clone(), proxy));
    }
}
