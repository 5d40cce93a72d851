//! Redis' patterns: `*`, `?`, `[abc]`, `[^a-c]`, and `\` before any of them.

pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let Some((&first, rest)) = pattern.split_first() else { return text.is_empty() };
    match first {
        b'*' => (0..=text.len()).any(|skipped| matches(rest, &text[skipped..])),
        b'?' => !text.is_empty() && matches(rest, &text[1..]),
        b'[' if !text.is_empty() => {
            let (among, rest) = class(rest, text[0]);
            among && matches(rest, &text[1..])
        }
        b'\\' if !rest.is_empty() => text.first() == rest.first() && matches(&rest[1..], &text[1..]),
        _ => text.first() == Some(&first) && matches(rest, &text[1..]),
    }
}

/// Returns whether the character is in the class, and the pattern after the class.
fn class(pattern: &[u8], character: u8) -> (bool, &[u8]) {
    let (negated, mut rest) = match pattern.split_first() {
        Some((b'^', rest)) => (true, rest),
        _ => (false, pattern),
    };
    let mut found = false;
    loop {
        rest = match rest {
            [] => break,
            [b']', after @ ..] => {
                rest = after;
                break;
            }
            [b'\\', escaped, after @ ..] => {
                found |= *escaped == character;
                after
            }
            [one, b'-', other, after @ ..] => {
                found |= (*one.min(other)..=*one.max(other)).contains(&character);
                after
            }
            [one, after @ ..] => {
                found |= *one == character;
                after
            }
        };
    }
    (found != negated, rest)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_are_those_of_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("shop/*", "shop/a", true),
            ("shop/*", "shop", false),
            ("#*", "#token", true),
            ("a?c", "abc", true),
            ("a[b-d]c", "acc", true),
            ("a[^b-d]c", "acc", false),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("redisson_lock__channel:{shop/*", "redisson_lock__channel:{shop/a}", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }
}
