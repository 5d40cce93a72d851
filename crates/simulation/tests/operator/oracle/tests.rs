use super::*;

fn belief(who: &str, key: &str, quorum: &str, from: u64, until: u64) -> Belief {
    let quorum = (SHOP.to_owned(), quorum.to_owned());
    Belief::inside(who, key.to_owned(), quorum, At(from), At(until))
}

fn cluster() -> ClusterSide {
    let plan = crate::plan::Plan::draw(0);
    let mut api = crate::api_line::ApiSide::new(0, 0);
    let clock = api.clock(At::default());
    ClusterSide::new(0, &plan, &mut api.server, clock)
}

fn judged(beliefs: Vec<(&str, Belief)>) -> usize {
    let (mut oracle, cluster) = (Oracle::default(), cluster());
    beliefs.into_iter().for_each(|(id, belief)| oracle.believes(id, belief, &cluster));
    oracle.violations.len()
}

#[test]
fn two_overlapping_beliefs_in_one_key_are_a_violation() {
    assert_eq!(judged(vec![("a", belief("a", "k", "q", 0, 10)), ("b", belief("b", "k", "q", 9, 20))]), 1);
    assert_eq!(judged(vec![("a", belief("a", "k", "q", 0, 10)), ("b", belief("b", "k", "q", 10, 20))]), 0);
    assert_eq!(judged(vec![("a", belief("a", "k", "q", 0, 10)), ("b", belief("b", "k", "r", 9, 20))]), 0);
}

#[test]
fn locks_without_a_quorum_contend_on_all_quorums() {
    let floating =
        |who: &str, quorum: &str| Belief { floating: Some("k".to_owned()), ..belief(who, "k", quorum, 0, 10) };
    assert_eq!(judged(vec![("a", floating("a", "q")), ("b", floating("b", "r"))]), 1);
    assert_eq!(judged(vec![("a", floating("a", "q")), ("b", belief("b", "k", "r", 0, 10))]), 0);
}

#[test]
fn a_key_excludes_its_slots_and_slots_do_not_exclude_each_other() {
    assert_eq!(judged(vec![("a", belief("a", "k", "q", 0, 10)), ("b", belief("b", "k#0", "q", 1, 9))]), 1);
    assert_eq!(judged(vec![("a", belief("a", "k#1", "q", 0, 10)), ("b", belief("b", "k#0", "q", 1, 9))]), 0);
}

#[test]
fn an_agent_believes_while_the_members_have_its_value() {
    let agent = Belief { agent_until: Some(At(30)), ..belief("a", "k", "q", 0, 10) };
    assert_eq!(judged(vec![("a", agent.clone()), ("b", belief("b", "k", "q", 20, 40))]), 1);
    let (mut oracle, cluster) = (Oracle::default(), cluster());
    oracle.believes("a", agent, &cluster);
    oracle.ends("a", At(15));
    oracle.believes("b", belief("b", "k", "q", 20, 40), &cluster);
    assert_eq!(oracle.violations, Vec::<String>::new(), "its own report ends its belief");
}

#[test]
fn tokens_rise() {
    let mut oracle = Oracle::default();
    oracle.token("k", "a", 7, At(1));
    oracle.token("k", "a", 7, At(2));
    oracle.token("k", "b", 8, At(3));
    assert!(oracle.violations.is_empty());
    oracle.token("k", "c", 8, At(4));
    assert_eq!(oracle.violations.len(), 1);
}
