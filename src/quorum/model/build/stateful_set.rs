//! The StatefulSet of a member, with the pod template.

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetUpdateStrategy};
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, Container, ContainerPort, EnvVar, ExecAction, KeyToPath, PodAffinityTerm, PodAntiAffinity,
    PodSecurityContext, PodSpec, PodTemplateSpec, Probe, SeccompProfile, SecretVolumeSource, SecurityContext,
    TCPSocketAction, Volume, VolumeMount, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::config::{TLS_DIRECTORY, conf_key, memory_settings, mounted_acl_key, readiness_key, resources};
use super::{REDIS_CONTAINER, labels, owned, selector};
use crate::api::{ExtraContainer, MEMBER_LABEL, MemberPod, MemberSecurityContext, QUORUM_LABEL};
use crate::quorum::model::auth::Auth;
use crate::quorum::model::expose::PORT;
use crate::quorum::model::plan::{MemberPlan, Plan, config_name};
use crate::quorum::model::tls::{CERTIFICATE_KEY, PRIVATE_KEY_KEY};
use crate::redis_member::acl::PROBE_USER;

/// The user `redis` of the official images and of Debian's images.
const REDIS_UID: i64 = 999;
/// The volume with the configuration.
pub const CONFIG_VOLUME: &str = "config";
/// The directory of that volume.
const CONFIG_DIRECTORY: &str = "/etc/redis";
/// The name of the ACL file in it.
pub const ACL_FILE: &str = "users.acl";
/// The name of the file with the password of the readiness probe.
const READINESS_FILE: &str = "readiness";
/// The volume that marks a pod with TLS. The volumes of a pod cannot be changed.
pub const TLS_VOLUME: &str = "tls";
/// The StatefulSet of one member, so that members are named, placed and replaced one by one.
pub(super) fn member(plan: &Plan, auth: &Auth, member: &MemberPlan) -> StatefulSet {
    let metadata = owned(plan, member.name.clone(), &[(MEMBER_LABEL, &member.name)]);
    let spec = StatefulSetSpec {
        replicas: Some(1),
        service_name: Some(member.name.clone()),
        selector: selector(MEMBER_LABEL, &member.name),
        // The operator decides when a member can be replaced. The StatefulSet controller does not.
        update_strategy: Some(StatefulSetUpdateStrategy { type_: Some("OnDelete".into()), rolling_update: None }),
        template: template(plan, auth, member),
        ..StatefulSetSpec::default()
    };
    StatefulSet { metadata, spec: Some(spec), status: None }
}

fn template(plan: &Plan, auth: &Auth, member: &MemberPlan) -> PodTemplateSpec {
    let pod = &plan.pod;
    let containers = std::iter::once(redis(plan)).chain(pod.extra_containers.iter().map(extra));
    // Images of Redis run on Linux, and a scheduler does not read images.
    let mut node_selector = pod.node_selector.clone();
    node_selector.entry("kubernetes.io/os".into()).or_insert_with(|| "linux".into());
    // The operator's own labels identify the member, so they have priority.
    let mut pod_labels = pod.labels.clone();
    pod_labels.extend(labels(plan, &[(MEMBER_LABEL, &member.name)]));
    let annotations = Some(pod.annotations.clone()).filter(|annotations| !annotations.is_empty());
    PodTemplateSpec {
        metadata: Some(ObjectMeta { labels: Some(pod_labels), annotations, ..ObjectMeta::default() }),
        spec: Some(PodSpec {
            containers: containers.collect(),
            volumes: Some(volumes(plan, auth, member)),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            // Redis keeps no data, so a longer wait has no use.
            termination_grace_period_seconds: Some(5),
            security_context: Some(pod_security(pod)),
            affinity: Some(pod.affinity.clone().unwrap_or_else(|| spread_over_nodes(plan))),
            node_selector: Some(node_selector),
            tolerations: non_empty(&pod.tolerations),
            topology_spread_constraints: non_empty(&pod.topology_spread_constraints),
            priority_class_name: pod.priority_class_name.clone(),
            runtime_class_name: pod.runtime_class_name.clone(),
            image_pull_secrets: non_empty(&pod.image_pull_secrets),
            ..PodSpec::default()
        }),
    }
}

/// The security context of a quorum replaces the default, even if it sets no user.
fn pod_security(pod: &MemberPod) -> PodSecurityContext {
    let id = Some(REDIS_UID);
    let usual =
        || MemberSecurityContext { run_as_user: id, run_as_group: id, fs_group: id, supplemental_groups: vec![] };
    let ids = pod.security_context.clone().unwrap_or_else(usual);
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: ids.run_as_user,
        run_as_group: ids.run_as_group,
        fs_group: ids.fs_group,
        supplemental_groups: non_empty(&ids.supplemental_groups),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".into(), ..SeccompProfile::default() }),
        ..PodSecurityContext::default()
    }
}

/// The requirements of Pod Security `restricted` on a container, and a read-only root file system.
fn restricted() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        run_as_non_root: Some(true),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".into()]), add: None }),
        ..SecurityContext::default()
    }
}

/// An extra container next to Redis.
///
/// It mounts nothing, because it must not read the members' passwords and keys.
fn extra(container: &ExtraContainer) -> Container {
    let port = |(name, port): (&String, &i32)| tcp_port(name, *port);
    let variable =
        |(name, value): (&String, &String)| EnvVar { name: name.clone(), value: Some(value.clone()), value_from: None };
    let (env, ports): (Vec<_>, Vec<_>) =
        (container.env.iter().map(variable).collect(), container.ports.iter().map(port).collect());
    Container {
        name: container.name.clone(),
        image: Some(container.image.clone()),
        image_pull_policy: Some("IfNotPresent".into()),
        command: non_empty(&container.command),
        args: non_empty(&container.args),
        env: non_empty(&env),
        ports: non_empty(&ports),
        resources: container.resources.clone(),
        security_context: Some(restricted()),
        ..Container::default()
    }
}

fn non_empty<T: Clone>(list: &[T]) -> Option<Vec<T>> {
    (!list.is_empty()).then(|| list.to_vec())
}

fn tcp_port(name: &str, port: i32) -> ContainerPort {
    let (name, protocol) = (Some(name.to_owned()), Some("TCP".into()));
    ContainerPort { name, container_port: port, protocol, ..ContainerPort::default() }
}

fn redis(plan: &Plan) -> Container {
    Container {
        name: REDIS_CONTAINER.into(),
        image: Some(plan.image.clone()),
        image_pull_policy: Some("IfNotPresent".into()),
        command: Some(command(plan)),
        ports: Some(vec![tcp_port("redis", i32::from(PORT))]),
        resources: Some(resources(plan)),
        readiness_probe: Some(readiness(plan)),
        liveness_probe: Some(liveness()),
        security_context: Some(restricted()),
        volume_mounts: Some(mounts(plan)),
        ..Container::default()
    }
}

/// The command of the Redis container. Its arguments have priority over the lines of redis.conf.
fn command(plan: &Plan) -> Vec<String> {
    let settings = memory_settings(plan).into_iter();
    let arguments = settings.flat_map(|(name, value)| [format!("--{name}"), value.to_string()]);
    ["redis-server", "/etc/redis/redis.conf"].map(str::to_owned).into_iter().chain(arguments).collect()
}

/// The mounts of the Redis container. Redis writes no file, so there is no volume for files.
///
/// A volume on the node would prevent the eviction of the pod by `kubectl drain`.
fn mounts(plan: &Plan) -> Vec<VolumeMount> {
    let mount = |name: &str, path: &str| VolumeMount {
        name: name.into(),
        mount_path: path.into(),
        read_only: Some(true),
        ..VolumeMount::default()
    };
    let mut mounts = vec![mount(CONFIG_VOLUME, CONFIG_DIRECTORY)];
    mounts.extend(plan.tls.as_ref().map(|_| mount(TLS_VOLUME, TLS_DIRECTORY)));
    mounts
}

/// The readiness probe: a member is ready while it is admitted.
///
/// Only a voting member echoes, because the operator opens and closes the probe's user together with the voting users. The probe's
/// user has the same name in every membership epoch. Clients can resolve a member that is not ready.
///
/// The second success gives the operator two seconds to set the keys of held locks again. An eviction of another member waits for that.
fn readiness(plan: &Plan) -> Probe {
    // The probe connects to its own process over loopback and checks no certificate. The operator checks the served certificate.
    let tls = if plan.tls.is_some() { " --tls --insecure" } else { "" };
    let client = format!("REDISCLI_AUTH=$(cat {CONFIG_DIRECTORY}/{READINESS_FILE}) redis-cli{tls} --user {PROBE_USER}");
    let script = format!("[ \"$({client} --no-auth-warning ECHO votes)\" = votes ]");
    Probe {
        exec: Some(ExecAction { command: Some(vec!["sh".into(), "-c".into(), script]) }),
        period_seconds: Some(2),
        timeout_seconds: Some(2),
        failure_threshold: Some(1),
        success_threshold: Some(2),
        ..Probe::default()
    }
}

/// The liveness probe, which only checks that the port is open.
///
/// The kubelet must not kill a member that is fenced, or busy with a script, because the next process is empty and waits.
fn liveness() -> Probe {
    Probe {
        tcp_socket: Some(TCPSocketAction { port: IntOrString::String("redis".into()), host: None }),
        initial_delay_seconds: Some(5),
        period_seconds: Some(10),
        timeout_seconds: Some(5),
        failure_threshold: Some(3),
        ..Probe::default()
    }
}

/// The volumes of a member: its configuration, and its certificate if it uses TLS.
///
/// The configuration is read-only, because the fence needs the closed ACL file at every start. The kubelet writes a new certificate into
/// the running pod.
fn volumes(plan: &Plan, auth: &Auth, member: &MemberPlan) -> Vec<Volume> {
    let configuration = [
        (conf_key(plan.tls.is_some()), "redis.conf"),
        (&mounted_acl_key(auth, member), ACL_FILE),
        (&readiness_key(auth, member), READINESS_FILE),
    ];
    let certificate = [CERTIFICATE_KEY, PRIVATE_KEY_KEY].map(|key| (key, key));
    let mut volumes = vec![secret_volume(CONFIG_VOLUME, config_name(&plan.name), &configuration)];
    volumes.extend(plan.tls.as_ref().map(|tls| secret_volume(TLS_VOLUME, tls.secret.clone(), &certificate)));
    volumes
}

/// A volume with these keys of a Secret, each at its path.
fn secret_volume(name: &str, secret: String, items: &[(&str, &str)]) -> Volume {
    let item = |(key, path): &(&str, &str)| KeyToPath { key: (*key).into(), path: (*path).into(), mode: None };
    let items = Some(items.iter().map(item).collect());
    let source = SecretVolumeSource { secret_name: Some(secret), default_mode: Some(0o440), items, optional: None };
    Volume { name: name.into(), secret: Some(source), ..Volume::default() }
}

/// Prefers different nodes, because two members on one node fail together.
///
/// It is only a preference, so that a quorum also starts on a small cluster.
fn spread_over_nodes(plan: &Plan) -> Affinity {
    let term = |(weight, key): (i32, &str)| {
        let label_selector = Some(selector(QUORUM_LABEL, &plan.name));
        let pod_affinity_term =
            PodAffinityTerm { label_selector, topology_key: key.into(), ..PodAffinityTerm::default() };
        WeightedPodAffinityTerm { weight, pod_affinity_term }
    };
    let terms = [(100, "kubernetes.io/hostname"), (50, "topology.kubernetes.io/zone")].map(term);
    let anti_affinity = PodAntiAffinity {
        preferred_during_scheduling_ignored_during_execution: Some(terms.into()),
        ..PodAntiAffinity::default()
    };
    Affinity { pod_anti_affinity: Some(anti_affinity), ..Affinity::default() }
}
