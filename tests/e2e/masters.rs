//! External Redis masters: plain redis-server processes in a network namespace of their own.
//!
//! The namespace is connected to the network of the nodes.
//!
//! The tests start and end the masters one by one, by their PIDs.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use redlock_operator::{
    quorum::model::tls::{authority::Pair, issue},
    redis_member::acl::external_user,
};
use serde_json::{Value, json};

use crate::{
    bench::Bench,
    hostile::{ARGUMENT, Harm},
    quorums::{Quorum, is_ready},
};

/// The time from the creation to Ready, in addition to maxTTL.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The prefix of the name of the user's Secret: quorum `q` has `masters-q`.
const SECRET: &str = "masters-";
const USER: &str = "redlock";

/// The last byte of the first address of a peer.
///
/// Masters have lower ones.
const FIRST_PEER: u8 = 222;

/// Masters, and the network namespace that they are in.
pub(crate) struct Masters {
    bench: Bench,
    name: String,
    host: u8,
    password: String,
    /// The server certificate, if they use TLS.
    certificate: Option<Pair>,
}

impl Masters {
    /// Creates the network namespace, and starts this number of masters.
    pub(crate) async fn start(bench: &Bench, count: usize) -> anyhow::Result<Self> {
        Self::start_with(bench, count, None).await
    }

    /// Starts masters with TLS and without plain TCP.
    ///
    /// This authority signs their certificate for their IP address.
    pub(crate) async fn start_tls(bench: &Bench, count: usize, authority: &Pair) -> anyhow::Result<Self> {
        Self::start_with(bench, count, Some(authority)).await
    }

    async fn start_with(bench: &Bench, count: usize, authority: Option<&Pair>) -> anyhow::Result<Self> {
        let number = rand::random::<u16>();
        // The nodes and the control plane have the lower addresses. The masters have this address and the next one.
        let host = 100 + (number % 60) as u8 * 2;
        let password = format!("{:016x}", rand::random::<u64>());
        let mut masters =
            Self { bench: bench.clone(), name: format!("m{number:04x}"), host, password, certificate: None };
        if let Some(authority) = authority {
            let names = [masters.host(0)];
            masters.certificate = Some(issue::certificate(authority, &names, bench.wall().0 / 1_000)?);
        }
        let Self { name, .. } = &masters;
        let (first, second) = (masters.host(0), masters.host(1));
        let script = format!(
            "set -eu
             ip netns add {name}
             ip link add {name} type veth peer name eth0 address {mac} netns {name}
             ip link set {name} master br0 up
             ip -n {name} link set lo up
             ip -n {name} addr add {first}/24 dev eth0
             ip -n {name} addr add {second}/24 dev eth0
             ip -n {name} link set eth0 up
             ip -n {name} route add default via 10.99.1.1
             mkdir -p {directory}",
            directory = masters.directory(),
            // The nodes cache earlier owners of an address.
            mac = format_args!("02:00:00:00:00:{host:02x}"),
        );
        bench.cluster.faults.beside_the_control_plane(&script).await?;
        for index in 0..count {
            masters.start_one(index).await?;
        }
        Ok(masters)
    }

    fn directory(&self) -> String {
        format!("/tmp/redlock-e2e-{}", self.name)
    }

    fn host(&self, which: u8) -> String {
        format!("10.99.1.{}", self.host + which)
    }

    fn port(index: usize) -> usize {
        7_000 + index
    }

    /// The IP address of all masters.
    pub(crate) fn ip(&self) -> String {
        self.host(0)
    }

    /// `host:port` of a master.
    pub(crate) fn address(&self, index: usize) -> String {
        format!("{}:{}", self.host(0), Self::port(index))
    }

    /// Another address of the same process.
    pub(crate) fn other_address(&self, index: usize) -> String {
        format!("{}:{}", self.host(1), Self::port(index))
    }

    /// Starts a master with exactly the user of the documentation.
    ///
    /// No other user can log in.
    pub(crate) async fn start_one(&self, index: usize) -> anyhow::Result<()> {
        let user = external_user(USER).replace("PASSWORD", &self.password);
        let user = user.replacen("ACL SETUSER", "user", 1).replacen(" reset ", " ", 1);
        let (directory, port) = (self.directory(), Self::port(index));
        let (listen, files) = match &self.certificate {
            None => (format!("'port {port}'"), String::new()),
            Some(Pair { certificate, key }) => (
                format!(
                    "'port 0' 'tls-port {port}' 'tls-cert-file {directory}/tls.crt' 'tls-key-file {directory}/tls.key' \
                     'tls-auth-clients no'"
                ),
                format!("printf %s '{certificate}' >{directory}/tls.crt; printf %s '{key}' >{directory}/tls.key"),
            ),
        };
        let script = format!(
            "set -eu
             cd {directory}
             {files}
             printf '%s\\n' 'user default off' '{user}' {listen} 'bind *' 'protected-mode no' 'save \"\"' \
               'daemonize yes' 'dir {directory}' 'pidfile {directory}/{index}.pid' 'logfile {directory}/{index}.log' >{index}.conf
             rm -f {index}.pid
             ip netns exec {name} redis-server {index}.conf
             until [[ -s {index}.pid ]]; do sleep 0.02; done",
            name = self.name,
        );
        self.bench.cluster.faults.beside_the_control_plane(&script).await.map(drop)
    }

    /// Ends a master, edits its configuration, and starts it again.
    ///
    /// `edit` is a shell script that can use the file `$conf`.
    pub(crate) async fn configure(&self, index: usize, edit: &str) -> anyhow::Result<()> {
        let script = format!(
            "set -eu
             cd {directory}
             kill -KILL $(cat {index}.pid)
             rm -f {index}.pid
             conf={index}.conf
             {edit}
             ip netns exec {name} redis-server {index}.conf
             until [[ -s {index}.pid ]]; do sleep 0.02; done",
            directory = self.directory(),
            name = self.name,
        );
        self.bench.cluster.faults.beside_the_control_plane(&script).await.map(drop)
    }

    /// Starts a hostile peer in the network namespace of the masters.
    ///
    /// It ends with the masters.
    pub(crate) async fn start_hostile(&self, harm: Harm) -> anyhow::Result<()> {
        let (program, harm) = (std::env::current_exe()?, serde_json::to_string(&harm)?);
        let script = format!(
            "set -eu
             nohup ip netns exec {name} '{program}' {ARGUMENT} '{harm}' >>{directory}/hostile.log 2>&1 &
             echo $! >{directory}/hostile-$!.pid",
            name = self.name,
            program = program.display(),
            directory = self.directory(),
        );
        self.bench.cluster.faults.beside_the_control_plane(&script).await.map(drop)
    }

    /// An unused address in the network namespace, by number.
    pub(crate) fn free_address(&self, index: usize) -> anyhow::Result<SocketAddr> {
        Ok(format!("{}:{}", self.host(0), Self::port(index) + 500).parse()?)
    }

    /// Adds this number of peer addresses to the network namespace.
    ///
    /// They are above those of the masters, so only one test can use them at a time.
    pub(crate) async fn add_peers(&self, count: u8) -> anyhow::Result<Vec<IpAddr>> {
        let peers: Vec<IpAddr> = (0..count).map(|peer| [10, 99, 1, FIRST_PEER + peer].into()).collect();
        let add: Vec<_> =
            peers.iter().map(|peer| format!("ip -n {} addr add {peer}/24 dev eth0\n", self.name)).collect();
        self.bench.cluster.faults.beside_the_control_plane(&format!("set -eu\n{}", add.concat())).await?;
        Ok(peers)
    }

    /// Starts a proxy in front of a master, and returns its address.
    ///
    /// After [`Self::forget`] it answers each peer only for a short time.
    pub(crate) async fn start_forgetful(&self, index: usize) -> anyhow::Result<String> {
        let (listen, behind) = (self.free_address(index)?, self.address(index).parse()?);
        let from = PathBuf::from(self.directory()).join("forget");
        self.start_hostile(Harm::Forgetful { listen, behind, from }).await?;
        Ok(listen.to_string())
    }

    /// Limits the proxy to a short time of answers after each connect.
    pub(crate) async fn forget(&self) -> anyhow::Result<()> {
        let script = format!("touch {}/forget", self.directory());
        self.bench.cluster.faults.beside_the_control_plane(&script).await.map(drop)
    }

    /// Sends a signal to the process of a master.
    pub(crate) async fn signal(&self, index: usize, signal: &str) -> anyhow::Result<()> {
        let script = format!("kill -{signal} $(cat {}/{index}.pid)", self.directory());
        self.bench.cluster.faults.beside_the_control_plane(&script).await.map(drop)
    }

    /// Kills a master and starts a new process.
    ///
    /// Returns the time of the kill, in milliseconds of the wall clock.
    pub(crate) async fn restart(&self, index: usize) -> anyhow::Result<i64> {
        let at = self.bench.wall().0;
        self.signal(index, "KILL").await?;
        self.start_one(index).await?;
        Ok(at)
    }

    /// A master as an external member of a quorum `q`, with this member name.
    pub(crate) fn member(&self, name: &str, index: usize) -> Value {
        json!({"name": name, "address": self.address(index), "secretRef": {"name": format!("{SECRET}q")}})
    }

    /// A manifest of a quorum with this number of managed members, and these external ones.
    pub(crate) fn manifest(&self, name: &str, members: usize, addresses: &[String], max_ttl: Duration) -> Value {
        let external = addresses.iter().enumerate().map(|(index, address)| {
            json!({"name": format!("vm-{index}"), "address": address, "secretRef": {"name": format!("{SECRET}{name}")}})
        });
        json!({
            "metadata": {"name": name},
            "spec": {
                "members": members,
                "maxTTL": format!("{}ms", max_ttl.as_millis()),
                "image": self.bench.cluster.member_image,
                "keys": "Verbatim",
                "tls": {"mode": "Disabled"},
                "external": external.collect::<Vec<_>>(),
            },
        })
    }

    /// Creates the Secret with the user, and the quorum, in the namespace of `bench`.
    ///
    /// It does not wait until the quorum is Ready.
    pub(crate) async fn create(&self, bench: &Bench, manifest: Value) -> anyhow::Result<Quorum> {
        let quorum = manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let name = format!("{SECRET}{quorum}");
        let secret = json!({
            "metadata": {"name": name, "labels": {"redlock-operator.io/quorum": quorum}},
            "stringData": {"username": USER, "password": self.password},
        });
        let exists = bench.api::<k8s_openapi::api::core::v1::Secret>().get_opt(&name).await?.is_some();
        if !exists {
            bench.create::<k8s_openapi::api::core::v1::Secret>(secret).await?;
        }
        Quorum::create(bench, manifest).await
    }

    /// Creates the quorum, and waits until it is Ready.
    pub(crate) async fn ready(&self, bench: &Bench, manifest: Value) -> anyhow::Result<Quorum> {
        let quorum = self.create(bench, manifest).await?;
        quorum.recorder.until(START_LIMIT, "Ready", is_ready).await?;
        Ok(quorum)
    }
}

impl Drop for Masters {
    fn drop(&mut self) {
        let (directory, name) = (self.directory(), &self.name);
        self.bench.cluster.faults.clean_up_beside_the_control_plane(&format!(
            "for pid in {directory}/*.pid; do kill -KILL $(cat $pid); done; ip netns del {name}; rm -rf {directory}"
        ));
    }
}
