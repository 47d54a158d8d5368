//! The field GF(2^8) with the polynomial 0x11d, in which 2 generates all elements but 0.

/// What is left of `x^8` in this field.
const REDUCTION: u8 = 0x1d;

/// `2 x`.
#[inline(always)]
pub(super) const fn double(x: u8) -> u8 {
    // The sign, spread over the byte, is the mask: no branch, and one vector comparison.
    (x << 1) ^ ((((x as i8) >> 7) as u8) & REDUCTION)
}

/// `a b`.
pub(super) const fn multiply(a: u8, b: u8) -> u8 {
    let (mut product, mut a, mut b) = (0, a, b);
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = double(a);
        b >>= 1;
    }
    product
}

/// `a^exponent`.
pub(super) const fn power(a: u8, exponent: usize) -> u8 {
    let (mut result, mut square, mut left) = (1, a, exponent);
    while left != 0 {
        if left & 1 != 0 {
            result = multiply(result, square);
        }
        square = multiply(square, square);
        left >>= 1;
    }
    result
}

/// `1 / a`; 0 for 0, which has none.
pub(super) const fn inverse(a: u8) -> u8 {
    // The multiplicative group has 255 elements, so a^254 a = 1.
    power(a, 254)
}

/// The coefficient of data column `column` in parity column `parity` (0 is P, 1 is Q, 2 is R).
pub(super) const fn coefficient(parity: usize, column: usize) -> u8 {
    power(1 << parity, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_generates_the_whole_field() {
        let mut seen = [false; 256];
        for exponent in 0..255 {
            assert!(!std::mem::replace(&mut seen[usize::from(power(2, exponent))], true));
        }
        assert!(!seen[0]);
    }

    #[test]
    fn every_element_but_zero_has_an_inverse() {
        assert_eq!(inverse(0), 0);
        for a in 1..=255 {
            assert_eq!(multiply(a, inverse(a)), 1);
            assert_eq!(multiply(a, 2), double(a));
        }
    }

    #[test]
    fn coefficients_are_those_of_raid_6_and_triple_parity() {
        assert_eq!([0, 1, 2].map(|parity| coefficient(parity, 0)), [1, 1, 1]);
        assert_eq!([0, 1, 2].map(|parity| coefficient(parity, 3)), [1, 8, 64]);
        assert_eq!([0, 1, 2].map(|parity| coefficient(parity, 8)), [1, 0x1d, 0x4c]);
    }
}
