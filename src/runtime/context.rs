//! The shared parts of the operator: the API client, the watched caches, the clock and the event recorder.

use std::sync::Arc;

use futures::future::OptionFuture;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::cache::Cache;
use super::fair_queue::FairQueue;
use super::keys;
use super::metrics::{Metrics, Objects};
use super::node_watch::{self, NodeWatch};
use super::settings::Settings;
use crate::api::requests::EVENT_TIMEOUT;
use crate::api::server_time::ServerTime;
use crate::api::{DistributedLock, HeldQuorum, RedisQuorum};
use crate::redis_member::{Connect, Machine};
use crate::redlock::Drift;
use crate::time::{Clock, ClockOffset, UnixMillis};

/// Maximum simultaneous requests about locks to the API server.
///
/// The API server does not separate namespaces among the requests of one account, so more of them only wait for each other there.
const REQUESTS: usize = 8;

/// Maximum bytes of a note. The API server refuses an Event with a longer one.
const LONGEST_NOTE: usize = 1_024;

/// One replica of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Namespace that the operator runs in.
    pub namespace: String,
    /// Name of this replica's pod.
    pub pod_name: String,
    /// The settings of the chart.
    pub settings: Arc<Settings>,
}

/// Shared by all controllers and by the renewal of locks; cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// Client of the API server.
    pub client: Client,
    /// Which replica this is.
    pub replica: Replica,
    /// The clocks of this process.
    pub clock: Arc<dyn Clock>,
    /// The way from this process to members and holders.
    pub network: Arc<dyn Connect>,
    /// The API server's time, from the answers to `client`.
    pub server_time: Arc<ServerTime>,
    /// Requests about locks.
    pub requests: FairQueue,
    /// Which nodes are silent or gone for too long.
    pub node_watch: Arc<NodeWatch>,
    /// The metrics of this replica.
    pub metrics: Arc<Metrics>,
    /// All pods, without what the operator does not read.
    pub pods: Cache<Pod>,
    /// All nodes.
    pub nodes: Cache<Node>,
    /// All namespaces.
    pub namespaces: Cache<Namespace>,
    /// All quorums.
    pub quorums: Cache<RedisQuorum>,
    /// All locks.
    pub locks: Cache<DistributedLock>,
    /// All Jobs where locks are looked after, if the operator looks after Jobs.
    pub jobs: Option<Cache<Job>>,
    /// The default quorum in force.
    default_quorum: Arc<Mutex<Option<ObjectRef<RedisQuorum>>>>,
    reporter: Reporter,
    /// Remembers its Events for some minutes, and counts repetitions on the first one.
    repeated: Recorder,
}

impl Context {
    /// A context, and the future that keeps its caches current.
    pub fn new(
        client: Client,
        replica: Replica,
        Machine { clock, network }: Machine,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let server_time = Arc::new(ServerTime::new(clock.clone(), Drift::default().ppm));
        let client = server_time.observe(client);
        let Settings { locks, quorums, .. } = &*replica.settings;
        let around = locks.with(quorums, &replica.namespace);
        let any = watcher::Config::default;
        let served = locks.fields().map_or_else(any, |fields| any().fields(&fields));
        let (pods, follow_pods) = Cache::scoped(&client, &around, &clock, any());
        let (nodes, follow_nodes) = Cache::new(Api::all(client.clone()), &clock, any());
        let (namespaces, follow_namespaces) = Cache::new(Api::all(client.clone()), &clock, any());
        // Those that are left out, too: a lock on one of them is told whose it is.
        let (quorums, follow_quorums) = Cache::scoped(&client, quorums, &clock, any());
        let (locks, follow_locks) = Cache::scoped(&client, locks, &clock, served.clone());
        let jobs = replica.settings.jobs.then(|| Cache::scoped(&client, &replica.settings.locks, &clock, served));
        let (jobs, follow_jobs) = jobs.unzip();
        let default_quorum = Arc::new(Mutex::new(replica.settings.default_quorum.clone()));
        let reporter = Reporter { controller: "redlock-operator".into(), instance: Some(replica.pod_name.clone()) };
        let follow = async move {
            let follow_jobs = OptionFuture::from(follow_jobs);
            tokio::join!(follow_pods, follow_nodes, follow_namespaces, follow_quorums, follow_locks, follow_jobs);
        };
        let repeated = Recorder::new(client.clone(), reporter.clone());
        let context = Self {
            client,
            replica,
            clock,
            network,
            server_time,
            requests: FairQueue::new(REQUESTS),
            node_watch: Arc::default(),
            metrics: Arc::default(),
            pods,
            nodes,
            namespaces,
            quorums,
            locks,
            jobs,
            default_quorum,
            reporter,
            repeated,
        };
        (context, follow)
    }

    /// The quorum of locks that name none. It is the one that the settings name, or an earlier one while such locks are held there.
    #[must_use]
    pub fn default_quorum(&self) -> Option<ObjectRef<RedisQuorum>> {
        self.default_quorum.lock().clone()
    }

    /// Puts another default quorum in force.
    pub fn put_default_in_force(&self, quorum: Option<ObjectRef<RedisQuorum>>) {
        *self.default_quorum.lock() = quorum;
    }

    /// Whether this operator serves a quorum. One that does not exist belongs to no other.
    #[must_use]
    pub fn serves(&self, quorum: &HeldQuorum) -> bool {
        let quorum = self.quorums.get(&quorum.reference());
        quorum.is_none_or(|quorum| self.replica.settings.serves(&quorum))
    }

    /// Whether there is no room for a quorum in its namespace.
    #[must_use]
    pub fn has_no_room(&self, quorum: &RedisQuorum) -> bool {
        let namespace = || self.quorums.under(&keys::namespace(&quorum.namespace().unwrap_or_default()));
        let limits = self.replica.settings.limits;
        limits.quorums != usize::MAX && limits.has_no_room(quorum, &namespace())
    }

    /// The machine that this process runs on, for connections.
    pub fn machine(&self) -> Machine {
        Machine { clock: self.clock.clone(), network: self.network.clone() }
    }

    /// The API server's time now.
    ///
    /// It is for everything that is counted from a time that the API server, or a controller, has written.
    #[must_use]
    pub fn api_now(&self) -> UnixMillis {
        self.server_time.now()
    }

    /// The API server's clock against this replica's, once an answer has carried a date.
    #[must_use]
    pub fn api_clock(&self) -> Option<ClockOffset> {
        self.server_time.offset(self.clock.boottime())
    }

    /// Resolves when every cache has been filled once.
    pub async fn synced(&self) -> bool {
        let jobs = async { OptionFuture::from(self.jobs.as_ref().map(Cache::ready)).await.unwrap_or(true) };
        let (pods, nodes, namespaces, quorums, locks, jobs) = tokio::join!(
            self.pods.ready(),
            self.nodes.ready(),
            self.namespaces.ready(),
            self.quorums.ready(),
            self.locks.ready(),
            jobs
        );
        pods && nodes && namespaces && quorums && locks && jobs
    }

    /// Keeps looking at all nodes, on every replica, until dropped.
    pub async fn watch_nodes(self) {
        loop {
            let now = self.clock.boottime();
            let unreadable = self.nodes.unreadable().iter().filter_map(|node| node.metadata.name.clone()).collect();
            self.node_watch.observe(&self.nodes.all(), &unreadable, self.server_time.last_answer(), now);
            tokio::time::sleep(node_watch::PERIOD).await;
        }
    }

    /// All metrics as text. What the caches show is read now.
    pub fn metrics_text(&self, leads: bool) -> String {
        let metrics = &self.metrics;
        metrics.record_objects(&Objects {
            locks: &self.locks.all(),
            quorums: &self.quorums.all(),
            pods: &self.pods.all(),
            default_quorum: self.default_quorum(),
            now: self.api_now(),
            leads,
            per_lock: self.replica.settings.lock_metrics,
        });
        metrics.record_watch("DistributedLock", &self.locks);
        metrics.record_watch("RedisQuorum", &self.quorums);
        metrics.record_watch("Pod", &self.pods);
        metrics.record_watch("Node", &self.nodes);
        metrics.record_watch("Namespace", &self.namespaces);
        metrics.text()
    }

    /// Publishes an Event about `object`.
    ///
    /// A lost Event is only logged, since status and conditions carry the same news.
    pub async fn event<K>(&self, object: &K, (reason, type_): (&str, EventType), mut note: String)
    where
        K: kube::Resource<DynamicType = ()>,
    {
        while note.len() > LONGEST_NOTE {
            note.pop();
        }
        let event = Event { type_, reason: reason.into(), note: Some(note), action: reason.into(), secondary: None };
        // A recorder takes a second event with the same reason for a repetition of the first, whatever its note says. For locks, of which
        // there are many, and which say in a condition what is wrong, that is right. A new recorder remembers nothing.
        let is_lock = K::kind(&()) == DistributedLock::kind(&());
        let recorder = match event.type_ {
            EventType::Warning if is_lock => self.repeated.clone(),
            EventType::Warning | EventType::Normal => Recorder::new(self.client.clone(), self.reporter.clone()),
        };
        match timeout(EVENT_TIMEOUT, recorder.publish(&event, &object.object_ref(&()))).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, reason, "event not published"),
            Err(_elapsed) => tracing::debug!(reason, "event not published in time"),
        }
    }
}
