//! Two clusters that share five masters (`dev/clusters.sh`), an operator in each, and one lock.

mod failover;

use crate::runner::{Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    local failover::a_leader_in_two_clusters_follows_when_their_network_is_cut,
    local failover::a_leader_in_two_clusters_follows_when_a_cluster_stops,
    local failover::a_leader_elsewhere_follows_when_an_api_server_is_frozen,
    local failover::random_faults_in_two_clusters_never_make_two_leaders,
    local failover::a_cron_job_in_both_clusters_runs_once,
];
