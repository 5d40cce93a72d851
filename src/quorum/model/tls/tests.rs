use super::authority::{AUTHORITY_LIFE, Authority, CERTIFICATE_LIFE, OVERLAP, Pair, advance};
use super::*;
use crate::api::conditions::CommonReason;
use crate::quorum::model::build::certificate_data as data;

const NOW: i64 = 1_800_000_000;
const DAY: i64 = 86_400;

fn names() -> Vec<String> {
    ["q-0.shop.svc", "q-1.shop.svc", "10.1.2.3"].map(str::to_owned).to_vec()
}

fn authority() -> Pair {
    issue::authority("q", NOW).unwrap()
}

#[test]
fn an_issued_certificate_proves_its_names_for_ninety_days() {
    let ca = authority();
    let own = issue::certificate(&ca, &names(), NOW).unwrap();
    let read_at = |at| read(&data(&own, &ca.certificate), &names(), at);
    let certificate = read_at(NOW).unwrap();
    assert_eq!(certificate.span.not_after, NOW + CERTIFICATE_LIFE);
    assert!(read_at(NOW - 1000).is_ok() && read_at(NOW + 89 * DAY).is_ok());
    for outside in [NOW - 2 * 3600, NOW + 91 * DAY] {
        assert!(matches!(read_at(outside), Err(Unfit::Unproved { .. })));
    }
    assert!(!certificate.span.is_old(NOW + 59 * DAY) && certificate.span.is_old(NOW + 60 * DAY));
}

#[test]
fn errors_in_a_secret_are_reported() {
    let ca = authority();
    let own = issue::certificate(&ca, &names(), NOW).unwrap();
    let good = data(&own, &ca.certificate);
    let told = |data: &Data, names: &[String]| read(data, names, NOW).unwrap_err().to_string();
    for key in [CERTIFICATE_KEY, PRIVATE_KEY_KEY, AUTHORITIES_KEY] {
        let mut without = good.clone();
        without.remove(key);
        assert!(told(&without, &names()).starts_with(&format!("it has no {key}")));
        without.insert(key.to_owned(), ByteString(b"what".to_vec()));
        assert!(told(&without, &names()).contains(key));
    }
    let another = issue::certificate(&ca, &names(), NOW).unwrap();
    let mixed = data(&Pair { certificate: own.certificate.clone(), key: another.key }, &ca.certificate);
    assert_eq!(read(&mixed, &names(), NOW), Err(Unfit::OtherKey));
    let mut more = names();
    more.push("q-2.shop.svc".to_owned());
    let message = told(&good, &more);
    assert!(message.contains("the name q-2.shop.svc") && message.contains("q-0.shop.svc, q-1.shop.svc"), "{message}");
    let foreign = data(&own, &authority().certificate);
    assert!(matches!(read(&foreign, &names(), NOW), Err(Unfit::Unproved { .. })));
}

#[test]
fn authorities_are_joined_once_each() {
    let (a, b) = (authority().certificate, authority().certificate);
    let both = union(&a, &b);
    assert_eq!(both.matches(END).count(), 2);
    assert_eq!((union(&both, &a), union(&both, &b), union("", "text")), (both.clone(), both, String::new()));
}

#[test]
fn an_authority_is_trusted_before_it_becomes_current() {
    let at = |now| move || issue::authority("q", now);
    let first = advance(Authority::default(), NOW, at(NOW)).unwrap();
    assert_eq!(advance(first.clone(), NOW, at(0)), Ok(first.clone()));
    assert_eq!(Authority::from_data(&first.data()), first);
    assert_eq!(first.trusted().matches(END).count(), 1);

    let old = NOW + AUTHORITY_LIFE / 3 * 2 + DAY;
    let overlap = advance(first.clone(), old, at(old)).unwrap();
    assert_eq!((&overlap.current, overlap.trusted().matches(END).count()), (&first.current, 2));
    assert_eq!(advance(overlap.clone(), old + OVERLAP - 1, at(0)), Ok(overlap.clone()));

    let second = advance(overlap.clone(), old + OVERLAP, at(0)).unwrap();
    assert_eq!((&second.current, &second.next), (&overlap.next, &None));
    assert_eq!(second.trusted().matches(END).count(), 2, "members can still serve its certificates");
    assert_eq!(Authority::from_data(&second.data()), second);
    assert!(!second.data().contains_key("next.key") && second.data().contains_key("previous.crt"));

    let third = advance(second, NOW + AUTHORITY_LIFE, at(0)).unwrap();
    assert_eq!((third.previous, third.current), (None, overlap.next));
}

#[test]
fn an_authority_that_ran_out_or_is_unreadable_is_replaced() {
    let first = advance(Authority::default(), NOW, || issue::authority("q", NOW)).unwrap();
    let pair = Pair { certificate: "what".into(), key: "what".into() };
    let broken = Authority { current: Some(pair), ..first.clone() };
    // The second one's clock was ahead when it was made.
    for (before, now) in [(&first, NOW + AUTHORITY_LIFE), (&first, NOW - 365 * DAY), (&broken, NOW)] {
        let after = advance(before.clone(), now, || issue::authority("q", now)).unwrap();
        assert_ne!(after.current, before.current);
        assert_eq!((after.next, after.previous), (None, None));
    }
}

#[test]
fn the_report_names_members_without_the_new_certificate() {
    let ca = authority();
    let of = |pair: &Pair| read(&data(pair, &ca.certificate), &names(), NOW).unwrap();
    let new = of(&issue::certificate(&ca, &names(), NOW).unwrap());
    let old = of(&issue::certificate(&ca, &names(), NOW).unwrap());
    let member = |tls, certificate| Served { member: "q-0".into(), tls, certificate, failure: None };
    let told = |served| report(&Ok(new.clone()), &[served]);
    let good = told(member(Some(true), Some(new.fingerprint)));
    assert_eq!(good.means().2, CommonReason::AsExpected);
    assert!(good.to_string().contains("valid until 2027-"), "{good}");
    for served in [
        member(None, None),
        member(Some(false), None),
        member(Some(true), None),
        member(Some(true), Some(old.fingerprint)),
        Served { failure: Some("TLS: expired".into()), ..member(Some(true), Some(new.fingerprint)) },
    ] {
        let waits = told(served);
        assert_eq!(waits.means().2, CommonReason::CertificatePending);
        assert!(waits.to_string().starts_with("q-0 "), "{waits}");
    }
    let bad = report(&Err("the Secret x does not exist".into()), &[]);
    assert_eq!(bad.means().2, CommonReason::CertificateInvalid);
}
