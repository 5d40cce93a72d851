use super::*;

#[test]
fn every_member_and_user_has_a_password_of_its_own() {
    let auth = Auth::from_seed(&[7; 32]).unwrap();
    let passwords: std::collections::BTreeSet<_> = [
        ("main-0", "operator"),
        ("main-1", "operator"),
        ("main-0", "locker-e1"),
        ("main-0", "locker-e2"),
        ("main-0o", "perator"),
    ]
    .iter()
    .map(|(member, user)| auth.password(member, user).expose().to_owned())
    .collect();
    assert_eq!(passwords.len(), 5);
    assert!(passwords.iter().all(|password| password.len() == 64));
    let read = Auth::from_data(&auth.data()).unwrap();
    assert_eq!(read.password("main-0", "operator"), auth.password("main-0", "operator"));
    assert_ne!(Auth::random(), Auth::random());
}

#[test]
fn derivation_never_changes() {
    // A change would exclude the operator from every running member.
    let auth = Auth::from_seed(b"0123456789abcdef0123456789abcdef").unwrap();
    assert_eq!(auth.password("main-0", "operator").expose(), EXPECTED);
}

// printf 'password\0main-0\0operator\0' | openssl dgst -sha256 -hmac 0123456789abcdef0123456789abcdef
const EXPECTED: &str = "e36a9510fd64bdbae6d9e2ac53d03047e1cee48b109441109e33ce9bead8552f";

fn two(auth: &Auth) -> (Secret, Vec<Secret>) {
    (auth.password("q-0", "u"), auth.accepted("q-0", "u"))
}

#[test]
fn passwords_are_rotated_and_the_key_of_values_stays() {
    let before = Auth::random();
    let old = before.password("q-0", "u");
    assert_eq!(two(&before), (old.clone(), vec![old.clone()]));
    let adding = before.begin("t");
    let new = adding.other_password("q-0", "u").unwrap();
    assert_ne!(old, new);
    assert_eq!(two(&adding), (old.clone(), vec![old.clone(), new.clone()]));
    let switched = adding.advance();
    assert_eq!(two(&switched), (new.clone(), vec![new.clone(), old.clone()]));
    let removing = switched.advance();
    assert_eq!(two(&removing), (new.clone(), vec![new.clone()]));
    assert_eq!(removing.other_password("q-0", "u"), Some(old), "for a process that started with an older file");
    let after = removing.advance();
    assert_eq!((two(&after), after.rotation(), after.rotated()), ((new.clone(), vec![new]), None, Some("t")));
    assert_eq!((after.generation(), after.advance()), (4, after.clone()));
    for state in [adding, switched, removing, after.clone()] {
        assert_eq!(Auth::from_data(&state.data()), Some(state.clone()));
        assert!(state.supersedes(&before) && !before.supersedes(&state));
        assert_eq!(derive(&state.seed, &["lock values"]), derive(&before.seed, &["lock values"]));
    }
    assert!(!after.supersedes(&Auth::random()));
    assert!(after.begin("u").advance().advance().advance().supersedes(&after));
}

#[test]
fn replaced_secrets_have_an_id_and_supersede_the_lost_ones() {
    let (lost, replacement) = (Auth::random().begin("t"), Auth::replacement(UnixMillis(1_000)));
    assert_eq!(lost.id(), None, "nothing shows in the objects of other quorums");
    assert_eq!(Auth::from_data(&replacement.data()), Some(replacement.clone()));
    assert!(replacement.supersedes(&lost) && !lost.advance().supersedes(&replacement));
    let rotated = replacement.begin("t").advance().advance().advance();
    assert_eq!((rotated.id(), replacement.id().unwrap().len()), (replacement.id(), 2 * ID_BYTES));
    assert!(rotated.supersedes(&replacement) && rotated.supersedes(&lost) && !lost.supersedes(&rotated));
    let again = Auth::replacement(UnixMillis(2_000));
    assert!(again.supersedes(&rotated) && !rotated.supersedes(&again) && again.id() != replacement.id());
    // Without the proof, the content counts as an edit by another party.
    let mut data = replacement.data();
    data.insert(SEED_KEY.to_owned(), ByteString(vec![7; 32]));
    assert_eq!(Auth::from_data(&data), None);
}

#[test]
fn an_edited_state_is_not_accepted() {
    let auth = Auth::random().begin("t");
    let mut data = auth.data();
    data.insert(PASSWORDS_KEY.to_owned(), Auth::random().begin("t").data()[PASSWORDS_KEY].clone());
    assert_eq!(Auth::from_data(&data), None);
    data.remove(PROOF_KEY);
    assert_eq!(Auth::from_data(&data), None);
}

#[test]
fn debug_output_has_no_secret() {
    let auth = Auth::random();
    assert_eq!(format!("{auth:?} {:?}", auth.password("main-0", "operator")), "Auth(..) Secret(..)");
    assert_eq!(Auth::from_seed(&[1; 31]), None);
}
