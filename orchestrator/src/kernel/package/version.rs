//! Order of Debian package versions. Pure.

use std::cmp::Ordering;

/// Order of Debian versions (deb-version(7)): epoch, then upstream and revision,
/// each by turns of non-digits (letters first, `~` before everything) and numbers.
pub(super) fn debian_version_cmp(a: &str, b: &str) -> Ordering {
    let split = |v: &str| -> (u64, String, String) {
        let (epoch, rest) = match v.split_once(':') {
            Some((epoch, rest)) => (epoch.parse().unwrap_or(0), rest),
            None => (0, v),
        };
        match rest.rsplit_once('-') {
            Some((upstream, revision)) => (epoch, upstream.to_owned(), revision.to_owned()),
            None => (epoch, rest.to_owned(), String::new()),
        }
    };
    let (a, b) = (split(a), split(b));
    a.0.cmp(&b.0)
        .then_with(|| part_cmp(&a.1, &b.1))
        .then_with(|| part_cmp(&a.2, &b.2))
}

fn part_cmp(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    let weight = |byte: Option<&u8>| -> i32 {
        match byte {
            Some(b'~') => -1,
            None => 0,
            Some(c) if c.is_ascii_digit() => 0,
            Some(c) if c.is_ascii_alphabetic() => i32::from(*c),
            Some(c) => i32::from(*c) + 256,
        }
    };
    while !a.is_empty() || !b.is_empty() {
        let digit = |text: &[u8]| text.first().is_some_and(u8::is_ascii_digit);
        while (!a.is_empty() && !digit(a)) || (!b.is_empty() && !digit(b)) {
            match weight(a.first()).cmp(&weight(b.first())) {
                Ordering::Equal => {}
                other => return other,
            }
            a = a.get(1..).unwrap_or_default();
            b = b.get(1..).unwrap_or_default();
        }
        let number = |text: &[u8]| -> (usize, u128) {
            let len = text.iter().take_while(|c| c.is_ascii_digit()).count();
            let digits = text[..len].iter().fold(0u128, |n, c| {
                n.saturating_mul(10).saturating_add(u128::from(c - b'0'))
            });
            (len, digits)
        };
        let ((len_a, number_a), (len_b, number_b)) = (number(a), number(b));
        match number_a.cmp(&number_b) {
            Ordering::Equal => {}
            other => return other,
        }
        (a, b) = (&a[len_a..], &b[len_b..]);
    }
    Ordering::Equal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_order_as_dpkg_orders_them() {
        // Each list ascends; cases from deb-version(7) and Debian's kernel.
        for list in [
            &["6.12.9-1", "6.12.107-1", "6.12.117-1~deb12u1", "6.12.117-1"][..],
            &["1.0~rc1", "1.0", "1.0+dfsg", "1.0.1", "1:0.1"],
            &["2.3a", "2.3b", "2.3.1"],
        ] {
            for (low, rest) in (1..).map(|k| &list[k..]).take(list.len()).enumerate() {
                for high in rest {
                    assert_eq!(
                        debian_version_cmp(list[low], high),
                        Ordering::Less,
                        "{} {high}",
                        list[low]
                    );
                    assert_eq!(debian_version_cmp(high, list[low]), Ordering::Greater);
                }
            }
        }
        assert_eq!(debian_version_cmp("1.0-0", "1.0-00"), Ordering::Equal);
    }
}
