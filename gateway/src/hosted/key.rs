//! One of the issuer's public keys (RFC 7517, RFC 7518, RFC 8037), and signature checks with it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;

use crate::config::Algorithm;

/// A key as the issuer publishes it; unused members are left out.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Jwk {
    kty: String,
    #[serde(default, rename = "use")]
    purpose: Option<String>,
    #[serde(default)]
    key_ops: Option<Vec<String>>,
    #[serde(default)]
    alg: Option<String>,
    #[serde(default)]
    pub(super) kid: Option<String>,
    #[serde(default)]
    crv: Option<String>,
    #[serde(default)]
    n: Option<String>,
    #[serde(default)]
    e: Option<String>,
    #[serde(default)]
    x: Option<String>,
    #[serde(default)]
    y: Option<String>,
}

impl Jwk {
    /// Whether it may make signatures of this kind: its type and its stated purpose must fit.
    pub(super) fn suits(&self, algorithm: Algorithm) -> bool {
        use Algorithm::*;
        let (kind, curve) = match algorithm {
            Rs256 | Rs384 | Rs512 | Ps256 | Ps384 | Ps512 => ("RSA", None),
            Es256 => ("EC", Some("P-256")),
            Es384 => ("EC", Some("P-384")),
            EdDsa => ("OKP", Some("Ed25519")),
        };
        let named = |name: &String| name.parse::<Algorithm>().is_ok_and(|named| named == algorithm);
        self.kty == kind
            && (curve.is_none() || self.crv.as_deref() == curve)
            && self.purpose.as_ref().is_none_or(|purpose| purpose == "sig")
            && self.key_ops.as_ref().is_none_or(|uses| uses.iter().any(|one| one == "verify"))
            // Ed25519 is also called by its own name now (RFC 9864).
            && self.alg.as_ref().is_none_or(|alg| named(alg) || (algorithm == EdDsa && alg == "Ed25519"))
    }

    /// Whether it made this signature.
    pub(super) fn verifies(&self, algorithm: Algorithm, signed: &[u8], signature: &[u8]) -> bool {
        self.suits(algorithm) && self.check(algorithm, signed, signature).is_some()
    }

    fn check(&self, algorithm: Algorithm, signed: &[u8], signature: &[u8]) -> Option<()> {
        let (x, y) = (|| part(&self.x), || part(&self.y));
        match algorithm {
            Algorithm::Rs256 => self.rsa(&RSA_PKCS1_2048_8192_SHA256, signed, signature),
            Algorithm::Rs384 => self.rsa(&RSA_PKCS1_2048_8192_SHA384, signed, signature),
            Algorithm::Rs512 => self.rsa(&RSA_PKCS1_2048_8192_SHA512, signed, signature),
            Algorithm::Ps256 => self.rsa(&RSA_PSS_2048_8192_SHA256, signed, signature),
            Algorithm::Ps384 => self.rsa(&RSA_PSS_2048_8192_SHA384, signed, signature),
            Algorithm::Ps512 => self.rsa(&RSA_PSS_2048_8192_SHA512, signed, signature),
            Algorithm::Es256 => {
                let point = point(&x()?, &y()?, 32)?;
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature).ok()
            }
            Algorithm::Es384 => {
                let point = point(&x()?, &y()?, 48)?;
                UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point).verify(signed, signature).ok()
            }
            Algorithm::EdDsa => UnparsedPublicKey::new(&ED25519, x()?).verify(signed, signature).ok(),
        }
    }

    fn rsa(&self, kind: &'static RsaParameters, signed: &[u8], signature: &[u8]) -> Option<()> {
        let (n, e) = (part(&self.n)?, part(&self.e)?);
        // ring takes numbers without zeros before them.
        let bare = |bytes: &[u8]| bytes.iter().copied().skip_while(|byte| *byte == 0).collect::<Vec<_>>();
        RsaPublicKeyComponents { n: bare(&n), e: bare(&e) }.verify(kind, signed, signature).ok()
    }
}

fn part(text: &Option<String>) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text.as_ref()?).ok()
}

/// A point of a curve, not compressed (SEC 1, section 2.3.3).
fn point(x: &[u8], y: &[u8], length: usize) -> Option<Vec<u8>> {
    (x.len() == length && y.len() == length).then(|| [&[4], x, y].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Made once with another implementation (Python's cryptography), over these bytes.
    const SIGNED_BYTES: &[u8] = b"header.claims";
    const RSA_JWK: &str = r#"{"kty":"RSA","n":"t9ArSu42xlQA958S5N5wa_8JijqCXH47hg4hw57MTDGjwjS3Z6mPPaqYG-5uANeXOr-t9PcmK9QYOCUoADFjJsIX3VQtOvM-mMA7UvlRtwrxAsUNr4xmoWYl56K0BG5GnKjRGZwvvOUyU2pIYE-I2CjcF_t_Vn7RJcKyXW5kDKxzFiq3sT7tJ2ObWSm2xfDS4Eb-B8qqZMHibbbmdtrTcckh9sj6-dX93WNDeG9_Qa5x-YDhxUJ8wVcSzqDPN2F7WojV6MBPwV5g9DmYTaSv_Y_G52G1fN_AsAQGFgNinIsBx7lbsySvz6SxFgKNnXO2ZCMgJXdfdmx0R-CtGtV6Gw","e":"AQAB"}"#;
    const P256_JWK: &str = r#"{"kty":"EC","crv":"P-256","x":"yCMcwj9v8MZ5W0qZFKIN1yxbBYpsKCQmlMixolcAWb8","y":"JK6LJHK1K9M2Cy1nDSi0TH2TFH98sI0tGcrKJa4ldHQ"}"#;
    const P384_JWK: &str = r#"{"kty":"EC","crv":"P-384","x":"iVkkYywSebmmFGuagqBlywsS_6Eh7lq23g50j8lqzFXPG1gtUpmGm_D6URQ8vqVg","y":"-LVHNswVKOnBhSSSJ8Wt3vhQMYy9vSNWrE2RoC4YpKXWtXETq6d9c3RHWjOtYzZV"}"#;
    const ED25519_JWK: &str = r#"{"kty":"OKP","crv":"Ed25519","x":"iLvNDmYlRkzDwepBv6tdh2r4tmLLrPadICbqFDS7e4A"}"#;
    const SIGNATURES: [(Algorithm, &str, &str); 9] = [
        (
            Algorithm::Rs256,
            RSA_JWK,
            "rA3KLNxpjDuj9qmA8sR0f2ZaA1qbe30AUCbwpa8VxKN7Q8ZcKULX5eMJ2lCpdsDG8E5_J3Sye-JxmXBQpMVtevICqTVpVMrFwzymInCbk6pK01IkHbo57mOyNTw41EbJ6NmfGrzZaGGpSqLE4cGtcHfhUennSKiD1ZgRS_0QO4JZjq_pKMOn0N3wVZQtK88h-WcJfyZUHrBvutWPv8JCgVIzZTogv0norJcqfVBzaLRum3viS8gE9AytZ_dYjnn869q_JE6ncZH29GyDyEXqBOMUsVMKqEMCaOZuLmeMdOPJuuS7N64ezPOGykhxS3NehgFNx4E3oAErfFap-UUG1w",
        ),
        (
            Algorithm::Rs384,
            RSA_JWK,
            "F_c1KGgN62OQ7Nv1235DIEaVnuXOtvhkDmuu4XlJPuMEPnlupvFs2WkgXYKfbonUV3JFwQ52wXObHULPcdBHmdCOLYWd4SLXmywNhKZApeI0UT_TjCM66ODLGZ971EDU_M8hmuiAIicrDDyPZNoDdOI1UupB6H-eeiqB7lodnSDbI66frMLfBAMVHIfjdImWJ2Zzsm4yF93ZM8oukKQpmbBdOn1cy1_vRfcSno6rH15sUkJrtewjxsyMdZUtf5ai3sWQ5AH20ltAS--8wQK9rhsfIYgbshUnrM9qTqINjPy1x2ZE6YXtsLELtYuqFXmB4e59ALtyDbB3DqJ5J3VGKA",
        ),
        (
            Algorithm::Rs512,
            RSA_JWK,
            "pwVbjIxxQnSlS_Nq3BBfzz5W-TuOCn6hM5eZrinFP5PwCIrfguyFvBIAuelg1ShZJL2Z4tKC8L3R57RDVuM8MLwfPADTjv943t7GprrHjqcHpUnzUE81lsg0XWMHewfV9piLzuKHSxLjjDec9z5IjiKRE6lcFL4rjjYbsZrszqnd5mv4Usl6xfbhxJXvA7cvMqWQaghj3pizkui_kIVmLGJO1qfvbHhONeKoWKCRx8P0P3zteGzCewyi7Qf_bt2_5qBaJZWvHIXJPxTYYJfs6zaW8tzpj2iLtj7xuqDdIxfHHtO-0Tf3IjxvoUrpA8kmJWZbpAF9gsR2amhv-8z-7Q",
        ),
        (
            Algorithm::Ps256,
            RSA_JWK,
            "nISmcue7wVYMINWVPw8cRNWJvUMc9xeYJbe3gSfhtqTux6k2CQrIjTwBKRl3jvKpbulDMwT71B4a_qWU1V9XLxX7OCRQx0snfbDmKdwhi_gqfx3ljmSF703Jvkf8qWheV1iXOE4kESVK7LBUxVzqcFgz1awyWGx5jHmg7LDupRsK-WRKb1qNVMOgq1nNSHHq5s2rpkp6m8e8ikWvXJfgTZB6qZc8Z9pDOzqKeOqgtdTjWJtK17dRmd3sIqzXoVJf6DEpYwnCSNa15OU7KjXQTsXEs_tH-VCTOIxzBzsHnHkXOOrE5LCDeFSy7FbN_4G45IGx4zKS0fGGG43vdRBM0g",
        ),
        (
            Algorithm::Ps384,
            RSA_JWK,
            "ILYn-wQi2zVcMOWu788_mKhdmc16UyEt_eTo3JLJTM-oX2DVW3OOsO1ntcZR4sAoFuIMJ3acgmnhboZCVRfUy6fX3z3qVbpXfRiXZUo8RS0TkgrGRI6WbZyeHjU0wZNDhIQjpS43KhSdEccRZe5EOP0SkKRMlziNO0vVJMeoSLzOXGOmpGrTUJMhIzDm3XcK_ZlPHWifG6gRmtYb1RtrEkalqGSEwNRONOeOgiLtQXdzozzWH7AchkwEkvzBPxdrYVKy3HSgOgYCrBTXHf3Kkz63V10Nl1R5jKwRwWt_6DLbQSKwvmrCeLc2JBa4VGgbvqLWiY3196Y_XbRJt6TIGQ",
        ),
        (
            Algorithm::Ps512,
            RSA_JWK,
            "pG03a_QxrhEfitW-ZCYZg5A9KAvVI35QvSdKCOvlzGCbDDfKOTsyqxPMpYbRzZ4i8MWK6Rp2XwshDgIolVeaDG3aa_281LU8YRbk16zJsVIud-74HTHKYALcHlV4H_moxaNAnZcKTWnPz24s3QZXBT_CIuQQf_j9Oce2FBOHFHrRkDxzBPpEYiSoJIYzlAeftnyOBtFsxTdmK3_LrJ3C95ImlJRA-HrttpeWbyQo-w-l3eCwYvTCwM6nvbhCLAv0piNOrVwozywHfDk4omz3KSx6qXpLzZO86cp48BiPian25cY4FCRid4l2nWyBmzLGnYIrdZBSH6RWDQxMiJCqJw",
        ),
        (
            Algorithm::Es256,
            P256_JWK,
            "zDDsm_BYQltIeG-wIYZit1fMq1_feGSKu67D12XPPu0iJLNLNqRKuC9YnvP1VmNFgM5wwlwofbzaYg07UIVlCg",
        ),
        (
            Algorithm::Es384,
            P384_JWK,
            "x89_mW0ucyGzLtzGxFRX7pHqd2TFsDUr20fAoCMaGOAyJ51-NjcaAHiMvOLVZoAquja44WQBr1FnNsvOgxAKssppmJvvvKiv5P-pVFQphg9e2Rvxu9TgxOEqXtGr6NQH",
        ),
        (
            Algorithm::EdDsa,
            ED25519_JWK,
            "Y6Rg2MeOdXeUYxBdQX3lSlarTEamXh4ipYNk9kydUYiMKEaJO9x_sIdgRIkb632hnWvdZf4vks4KJO24HRaBBg",
        ),
    ];

    fn jwk(text: &str) -> Jwk {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_others_sign_is_verified_and_by_no_other_key_or_algorithm() {
        for (algorithm, key, signature) in SIGNATURES {
            let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
            assert!(jwk(key).verifies(algorithm, SIGNED_BYTES, &signature), "{algorithm}");
            for (other, _) in Algorithm::ALL.into_iter().filter(|(other, _)| *other != algorithm) {
                assert!(!jwk(key).verifies(other, SIGNED_BYTES, &signature), "{algorithm} as {other}");
            }
            for other in [RSA_JWK, P256_JWK, P384_JWK, ED25519_JWK].into_iter().filter(|other| *other != key) {
                assert!(!jwk(other).verifies(algorithm, SIGNED_BYTES, &signature), "{algorithm} by {other}");
            }
            assert!(!jwk(key).verifies(algorithm, b"header.claimz", &signature), "{algorithm}");
            let mut flipped = signature.clone();
            flipped[7] ^= 1;
            assert!(!jwk(key).verifies(algorithm, SIGNED_BYTES, &flipped), "{algorithm}");
            assert!(!jwk(key).verifies(algorithm, SIGNED_BYTES, &[]), "{algorithm}");
        }
    }

    #[test]
    fn a_signature_of_zeros_is_none() {
        // CVE-2022-21449.
        assert!(!jwk(P256_JWK).verifies(Algorithm::Es256, SIGNED_BYTES, &[0; 64]));
        assert!(!jwk(P384_JWK).verifies(Algorithm::Es384, SIGNED_BYTES, &[0; 96]));
        assert!(!jwk(ED25519_JWK).verifies(Algorithm::EdDsa, SIGNED_BYTES, &[0; 64]));
    }

    #[test]
    fn a_key_is_good_for_what_it_says_it_is_for() {
        let suits = |more: &str| {
            let text = RSA_JWK.replacen('{', &format!("{{{more},"), 1);
            (jwk(&text).suits(Algorithm::Rs256), jwk(&text).suits(Algorithm::Ps256))
        };
        assert_eq!(suits(r#""use":"sig""#), (true, true));
        assert_eq!(suits(r#""use":"enc""#), (false, false));
        assert_eq!(suits(r#""alg":"RS256""#), (true, false));
        assert_eq!(suits(r#""alg":"RSA-OAEP""#), (false, false));
        assert_eq!(suits(r#""key_ops":["encrypt"]"#), (false, false));
        assert_eq!(suits(r#""key_ops":["verify"]"#), (true, true));
    }

    #[test]
    fn a_key_that_is_none_verifies_nothing() {
        let signature = URL_SAFE_NO_PAD.decode(SIGNATURES[0].2).unwrap();
        for broken in [r#"{"kty":"RSA"}"#, r#"{"kty":"RSA","n":"","e":""}"#, r#"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#] {
            assert!(!jwk(broken).verifies(Algorithm::Rs256, SIGNED_BYTES, &signature), "{broken}");
        }
        for broken in [r#"{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}"#, r#"{"kty":"oct","k":"AAAA"}"#] {
            assert!(!jwk(broken).verifies(Algorithm::Es256, SIGNED_BYTES, &signature), "{broken}");
        }
    }
}
