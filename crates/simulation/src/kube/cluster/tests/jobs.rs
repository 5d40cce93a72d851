use super::*;

/// A cluster whose Job controller suspends Jobs, and a Job in it.
fn suspended(seed: u64, spec: &Value) -> (World, Shared) {
    let settings = Settings { suspends_jobs: true, ..Settings::QUICK };
    let mut world = World::with(seed, 2, settings);
    let mut job = json!({"suspend": true, "podReplacementPolicy": "Failed", "template": {"spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [{"name": "work"}]}}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        job[field] = value.clone();
    }
    let made = world.create(Kind::Job, json!({"metadata": {"name": "j"}, "spec": job}));
    world.run(2_000);
    (world, made)
}

fn job(world: &World) -> Shared {
    world.api.get(Kind::Job, "default", "j").unwrap()
}

fn suspend(world: &mut World, suspend: bool) {
    let by = by(world.now, "test");
    world.api.merge(Kind::Job, ("default", "j"), &json!({"spec": {"suspend": suspend}}), Part::Main, by).unwrap();
}

/// The condition Suspended, and the active, succeeded and failed pods.
fn reported(world: &World) -> (Value, Value, Value, Value) {
    let status = &job(world).value["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let suspended = conditions.into_iter().find(|found| found["type"] == "Suspended").cloned().unwrap_or_default();
    (suspended["status"].clone(), status["active"].clone(), status["failed"].clone(), status["succeeded"].clone())
}

#[test]
fn pods_deleted_by_a_suspension_are_not_counted_as_failed() {
    let (mut world, _) = suspended(11, &json!({}));
    assert_eq!(reported(&world), (json!("True"), json!(0), json!(0), json!(0)));
    assert!(job(&world).value["status"]["startTime"].is_null());
    suspend(&mut world, false);
    world.run(10_000);
    assert_eq!(reported(&world), (json!("False"), json!(1), json!(0), json!(0)));
    assert!(job(&world).value["status"]["startTime"].is_string());
    assert_eq!(world.cluster.truth().running().count(), 1);
    suspend(&mut world, true);
    world.run(10_000);
    assert_eq!(reported(&world), (json!("True"), json!(0), json!(0), json!(0)));
    assert_eq!((world.cluster.truth().running().count(), world.api.objects(Kind::Pod).count()), (0, 0));
}

#[test]
fn a_pod_is_replaced_when_it_has_ended_and_not_before() {
    let (mut world, _) = suspended(12, &json!({"backoffLimit": 3}));
    suspend(&mut world, false);
    world.run(10_000);
    let first = world.api.objects(Kind::Pod).next().unwrap().clone();
    let (machine, container) = (world.machine_of(first.uid()), world.container(first.uid()));
    world.inflict(Fault::Cut(machine));
    world.delete(Kind::Pod, first.name(), &background());
    world.run(5_000);
    assert_eq!(world.api.objects(Kind::Pod).count(), 1, "the pod is being deleted, and has not ended");
    assert_eq!(job(&world).value["status"]["terminating"], 1);
    world.inflict(Fault::Exit { container, code: 1 });
    world.inflict(Fault::Heal(machine));
    world.run(15_000);
    let next: Vec<_> = world.api.objects(Kind::Pod).filter(|pod| !pod.is_deleting()).collect();
    assert!(next.len() == 1 && next[0].uid() != first.uid());
}

#[test]
fn a_job_that_was_just_suspended_can_still_get_a_pod() {
    let made = (0..10).filter(|seed| {
        let (mut world, _) = suspended(*seed, &json!({}));
        suspend(&mut world, false);
        world.run(100);
        suspend(&mut world, true);
        let before = world.api.objects(Kind::Pod).count();
        world.run(150);
        let after = world.api.objects(Kind::Pod).count();
        world.run(10_000);
        assert_eq!(reported(&world), (json!("True"), json!(0), json!(0), json!(0)));
        before == 0 && after == 1
    });
    assert_ne!(made.count(), 0);
}

#[test]
fn a_job_template_changes_while_suspended_without_a_start_time() {
    let (mut world, _) = suspended(13, &json!({}));
    let annotate = |world: &mut World, token: &str| {
        let template = json!({"metadata": {"annotations": {"token": token}}});
        let patch = json!({"spec": {"suspend": false, "template": template}});
        let by = by(world.now, "test");
        world.api.merge(Kind::Job, ("default", "j"), &patch, Part::Main, by).map_err(|refusal| refusal.code)
    };
    let forget_start = |world: &mut World| {
        let by = by(world.now, "test");
        let patch = json!({"status": {"startTime": null}});
        world.api.merge(Kind::Job, ("default", "j"), &patch, Part::Status, by).map_err(|refusal| refusal.code)
    };
    annotate(&mut world, "1").unwrap();
    world.run(5_000);
    assert_eq!(world.api.objects(Kind::Pod).next().unwrap().annotation("token"), Some("1"));
    assert_eq!(annotate(&mut world, "2").unwrap_err(), 422, "it is not suspended");
    assert_eq!(forget_start(&mut world).unwrap_err(), 422);
    suspend(&mut world, true);
    assert_eq!(annotate(&mut world, "2").unwrap_err(), 422, "it has a start time");
    forget_start(&mut world).unwrap();
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "other"}]}}}});
    let by = by(world.now, "test");
    assert_eq!(world.api.merge(Kind::Job, ("default", "j"), &image, Part::Main, by).unwrap_err().code, 422);
    annotate(&mut world, "2").unwrap();
}

#[test]
fn a_job_that_has_failed_counts_the_pods_that_it_deletes() {
    let template = json!({"metadata": {"annotations": {"simulation/run-millis": "3000", "simulation/exit-code": "1"}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [{"name": "work"}]}});
    let (mut world, _) =
        suspended(14, &json!({"backoffLimit": 0, "parallelism": 2, "completions": 2, "template": template}));
    suspend(&mut world, false);
    world.run(30_000);
    let status = &job(&world).value["status"];
    assert_eq!((&status["failed"], &status["active"]), (&json!(2), &json!(0)), "{status}");
}
