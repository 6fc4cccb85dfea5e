//! Sizes of memory as people write them.

use std::fmt;

/// Bytes in a MiB.
pub const MIB: u64 = 1 << 20;
/// Bytes in a GiB.
pub const GIB: u64 = 1 << 30;

/// Why a text is no size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// A number and nothing else.
    #[error("`{text}` has no unit")]
    NoUnit {
        /// The text.
        text: String,
    },
    /// Anything else.
    #[error("`{text}` is not a size like `512M` or `2G`")]
    Syntax {
        /// The text.
        text: String,
    },
}

/// Reads `512M`, `1G`, `1.5GiB`, `64K`: powers of 1024, as QEMU and the kernel
/// use them. `0` needs no unit. Answers bytes.
///
/// # Errors
/// The text is no size, or has a fraction of a byte.
pub fn parse(text: &str) -> Result<u64, SizeError> {
    let syntax = || SizeError::Syntax { text: text.into() };
    let trimmed = text.trim();
    let split = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let shift = match unit.trim() {
        "" if number == "0" => return Ok(0),
        "" if number.parse::<u64>().is_ok() => {
            return Err(SizeError::NoUnit { text: text.into() });
        }
        "B" => 0,
        "K" | "k" | "KiB" => 10,
        "M" | "m" | "MiB" => 20,
        "G" | "g" | "GiB" => 30,
        "T" | "t" | "TiB" => 40,
        _ => return Err(syntax()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(syntax);
    }
    let (whole, fraction) = number.split_once('.').ok_or_else(syntax)?;
    let digits = u32::try_from(fraction.len()).map_err(|_| syntax())?;
    let scale = 10u128.checked_pow(digits).ok_or_else(syntax)?;
    let whole: u128 = whole.parse().map_err(|_| syntax())?;
    let fraction: u128 = fraction.parse().map_err(|_| syntax())?;
    let bytes = whole
        .checked_mul(scale)
        .and_then(|n| n.checked_add(fraction))
        .and_then(|n| n.checked_mul(1 << shift))
        .ok_or_else(syntax)?;
    if bytes % scale != 0 {
        return Err(syntax());
    }
    u64::try_from(bytes / scale).map_err(|_| syntax())
}

/// Writes bytes in the largest unit that leaves a whole number.
#[derive(Debug, Clone, Copy)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        if bytes == 0 {
            return f.write_str("0");
        }
        for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
            if bytes.is_multiple_of(1 << shift) {
                return write!(f, "{}{unit}", bytes >> shift);
            }
        }
        write!(f, "{bytes}B")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_sizes() {
        assert_eq!(parse("512M"), Ok(512 * MIB));
        assert_eq!(parse("1G"), Ok(GIB));
        assert_eq!(parse("1.5G"), Ok(GIB + GIB / 2));
        assert_eq!(parse("2 GiB"), Ok(2 * GIB));
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse("64k"), Ok(64 << 10));
    }

    #[test]
    fn says_what_is_wrong() {
        assert_eq!(parse("512").unwrap_err().to_string(), "`512` has no unit");
        for text in ["", "G", "1X", "-1G", "1.2.3G", "99999999999999T", "0.3B"] {
            assert_eq!(
                parse(text).unwrap_err().to_string(),
                format!("`{text}` is not a size like `512M` or `2G`")
            );
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(bytes in any::<u64>()) {
            prop_assert_eq!(parse(&Size(bytes).to_string()), Ok(bytes));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9.]{0,60} ?[A-Za-z]{0,3}") {
            let _ = parse(&text);
        }
    }
}
