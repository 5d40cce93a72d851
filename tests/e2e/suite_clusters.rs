//! Two clusters that share five masters (`dev/clusters.sh`), an operator in each, and one lock.

mod failover;

use crate::runner::{Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    local failover::one_leads_in_two_clusters_and_the_other_follows_when_the_network_between_them_is_cut,
    local failover::one_leads_in_two_clusters_and_the_other_follows_when_the_cluster_has_stopped,
    local failover::a_leader_whose_api_server_is_frozen_stops_and_one_leads_again,
    local failover::a_cron_job_in_both_clusters_runs_once,
];
