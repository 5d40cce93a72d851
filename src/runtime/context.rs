//! The shared parts of the operator: the API client, the watched caches, the clock and the event recorder.

use std::sync::Arc;

use futures::future::OptionFuture;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Node, ObjectReference, Pod};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use parking_lot::Mutex;

use super::cache::Cache;
use super::fair_queue::FairQueue;
use super::keys;
use super::metrics::Metrics;
use super::node_watch::{self, NodeWatch};
use super::settings::Settings;
use crate::api::requests::{EVENT_TIMEOUT, within};
use crate::api::server_time::ServerTime;
use crate::api::{DistributedLock, HeldQuorum, RedisQuorum};
use crate::redis_member::{Connect, Machine};
use crate::redlock::Drift;
use crate::time::{Clock, ClockOffset, UnixMillis};

/// Maximum simultaneous requests about locks to the API server.
///
/// The API server does not separate the namespaces in the requests of one account. With more requests, they would only wait for each other
/// there.
const REQUESTS: usize = 8;

/// Maximum bytes of a note. The API server refuses an Event with a longer note.
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

/// The state that all controllers and the renewal of locks share. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// Client of the API server.
    pub client: Client,
    /// The identity of this replica.
    pub replica: Replica,
    /// The clocks of this process.
    pub clock: Arc<dyn Clock>,
    /// Opens connections to members and holders.
    pub network: Arc<dyn Connect>,
    /// The API server's time, from its answers to `client`.
    pub server_time: Arc<ServerTime>,
    /// The queue of requests about locks.
    pub requests: FairQueue,
    /// The nodes that were silent or gone for too long.
    pub node_watch: Arc<NodeWatch>,
    /// The metrics of this replica.
    pub metrics: Arc<Metrics>,
    /// All pods, without the fields that the operator does not read.
    pub pods: Cache<Pod>,
    /// All nodes.
    pub nodes: Cache<Node>,
    /// All namespaces.
    pub namespaces: Cache<Namespace>,
    /// All quorums.
    pub quorums: Cache<RedisQuorum>,
    /// All locks.
    pub locks: Cache<DistributedLock>,
    /// All Jobs in the namespaces of served locks, if the operator starts Jobs.
    pub jobs: Option<Cache<Job>>,
    /// The default quorum in force.
    default_quorum: Arc<Mutex<Option<ObjectRef<RedisQuorum>>>>,
    reporter: Reporter,
    /// Remembers Events for some minutes, and counts repetitions on the first Event.
    repeated: Recorder,
}

/// Whether a namespace exists and remains, by this cache. It does while the cache is not filled.
pub fn existing(namespaces: &Cache<Namespace>) -> impl Fn(&str) -> bool + Send + 'static + use<> {
    let namespaces = namespaces.clone();
    let remains = |namespace: Arc<Namespace>| namespace.metadata.deletion_timestamp.is_none();
    move |name: &str| !namespaces.is_filled() || namespaces.cluster_named(name).is_some_and(remains)
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
        let (nodes, follow_nodes) = Cache::of_existing(vec![(None, Api::all(client.clone()))], &clock, any(), |_| true);
        let (namespaces, follow_namespaces) =
            Cache::of_existing(vec![(None, Api::all(client.clone()))], &clock, any(), |_| true);
        let exists = || existing(&namespaces);
        let (pods, follow_pods) = Cache::of_existing(around.apis(&client), &clock, any(), exists());
        // This includes quorums in left-out namespaces, so that the locks on them are left to their own installation.
        let (quorums, follow_quorums) = Cache::of_existing(quorums.apis(&client), &clock, any(), exists());
        let (locks, follow_locks) = Cache::of_existing(locks.apis(&client), &clock, served.clone(), exists());
        let jobs = || Cache::of_existing(replica.settings.locks.apis(&client), &clock, served, exists());
        let (jobs, follow_jobs) = replica.settings.jobs.then(jobs).unzip();
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

    /// The quorum of locks that name no quorum.
    ///
    /// It is the default of the settings. While such locks are held on an earlier default, it is the earlier one.
    pub fn default_quorum(&self) -> Option<ObjectRef<RedisQuorum>> {
        self.default_quorum.lock().clone()
    }

    /// Puts another default quorum in force.
    pub fn put_default_in_force(&self, quorum: Option<ObjectRef<RedisQuorum>>) {
        *self.default_quorum.lock() = quorum;
    }

    /// Whether this operator serves a quorum. If there is none, its namespace decides.
    pub fn serves(&self, quorum: &HeldQuorum) -> bool {
        let settings = &self.replica.settings;
        let present = self.quorums.get(&quorum.reference());
        present.map_or_else(|| settings.quorums.contains(&quorum.namespace), |quorum| settings.serves(&quorum))
    }

    /// Whether there is no room for a quorum in its namespace.
    pub fn has_no_room(&self, quorum: &RedisQuorum) -> bool {
        let namespace = self.quorums.under(&keys::namespace(&quorum.namespace().unwrap_or_default()));
        self.replica.settings.limits.has_no_room(quorum, &namespace)
    }

    /// The clock and the network of this process, for connections.
    pub fn machine(&self) -> Machine {
        Machine { clock: self.clock.clone(), network: self.network.clone() }
    }

    /// The API server's time now.
    ///
    /// Use it for durations since a time that the API server or a controller wrote.
    pub fn api_now(&self) -> UnixMillis {
        self.server_time.now()
    }

    /// The offset of the API server's clock, after the first answer with a date.
    pub fn api_clock(&self) -> Option<ClockOffset> {
        self.server_time.offset(self.clock.boottime())
    }

    /// Resolves when every cache is filled for the first time.
    pub async fn synced(&self) {
        let jobs = OptionFuture::from(self.jobs.as_ref().map(Cache::ready));
        let (quorums, locks) = (self.quorums.ready(), self.locks.ready());
        tokio::join!(self.pods.ready(), self.nodes.ready(), self.namespaces.ready(), quorums, locks, jobs);
    }

    /// Observes all nodes periodically, on every replica, until dropped.
    pub async fn watch_nodes(self) {
        loop {
            let now = self.clock.boottime();
            let unreadable = self.nodes.unreadable().iter().filter_map(|node| node.metadata.name.clone()).collect();
            self.node_watch.observe(&self.nodes.all(), &unreadable, self.server_time.last_answer(), now);
            tokio::time::sleep(node_watch::PERIOD).await;
        }
    }

    /// All metrics as text. Gauges of the caches are computed now.
    pub fn metrics_text(&self, leads: bool) -> String {
        let (metrics, locks, quorums, now) = (&self.metrics, self.locks.all(), self.quorums.all(), self.api_now());
        metrics.record_leader(leads);
        metrics.record_locks(&locks, self.replica.settings.lock_metrics);
        metrics.record_quorums(&quorums, now);
        metrics.record_waiters(&locks, &quorums, self.default_quorum().as_ref(), now);
        metrics.record_watch("DistributedLock", &self.locks);
        metrics.record_watch("RedisQuorum", &self.quorums);
        metrics.record_watch("Pod", &self.pods);
        metrics.record_watch("Node", &self.nodes);
        metrics.record_watch("Namespace", &self.namespaces);
        if let Some(jobs) = &self.jobs {
            metrics.record_watch("Job", jobs);
        }
        metrics.text()
    }

    /// Publishes an Event about `object`, and about the object `related`, if there is one.
    ///
    /// A lost Event is only logged, because status and conditions have the same information.
    pub async fn event<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        (reason, type_): (&str, EventType),
        mut note: String,
        related: Option<ObjectReference>,
    ) {
        while note.len() > LONGEST_NOTE {
            note.pop();
        }
        // A recorder counts a second Event with the same reason as a repetition of the first, even with another note. That is right for locks,
        // because there are many of them and a condition has the details. It is also right for the same related object. A new recorder
        // remembers nothing.
        let counts = K::kind(&()) == DistributedLock::kind(&()) || related.is_some();
        let event = Event { type_, reason: reason.into(), note: Some(note), action: reason.into(), secondary: related };
        let recorder = match event.type_ {
            EventType::Warning if counts => self.repeated.clone(),
            EventType::Warning | EventType::Normal => Recorder::new(self.client.clone(), self.reporter.clone()),
        };
        if let Err(error) = within(EVENT_TIMEOUT, recorder.publish(&event, &object.object_ref(&()))).await {
            tracing::debug!(error = &error as &dyn std::error::Error, reason, "event not published");
        }
    }
}
