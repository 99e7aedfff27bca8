//! Verification of Signature Version 4, written from AWS's documentation without AWS's code.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::answer::ServiceError;

/// A received request.
#[derive(Debug)]
pub struct Request<'a> {
    /// Method: `GET`, `POST`, `PUT`.
    pub method: &'a str,
    /// Path as received.
    pub path: &'a str,
    /// Query string after `?`.
    pub query: &'a str,
    /// Headers, with lower-case names.
    pub headers: &'a [(String, String)],
    /// Body.
    pub body: &'a [u8],
}

/// Credential scope of a signature.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scope {
    /// Access key.
    pub key: String,
    /// Region, `eu-central-1` for instance.
    pub region: String,
    /// Service, `ec2` for instance.
    pub service: String,
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC accepts keys of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

impl Request<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn canonical(&self, signed: &str) -> String {
        let mut pairs: Vec<String> = self
            .query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| if pair.contains('=') { pair.to_owned() } else { format!("{pair}=") })
            .collect();
        pairs.sort();
        let mut text = format!("{}\n{}\n{}\n", self.method, self.path, pairs.join("&"));
        for name in signed.split(';') {
            let value = self.header(name).unwrap_or_default();
            let value: Vec<&str> = value.split_whitespace().collect();
            text += &format!("{name}:{}\n", value.join(" "));
        }
        text + &format!("\n{signed}\n{}", hex(Sha256::digest(self.body)))
    }

    /// Returns the credential scope, if the request is signed.
    pub fn scope(&self) -> Option<Scope> {
        let credential = self.field("Credential=")?;
        let mut parts = credential.split('/');
        let (key, _date) = (parts.next()?.to_owned(), parts.next()?);
        let (region, service) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        (parts.next() == Some("aws4_request")).then_some(Scope { key, region, service })
    }

    fn field(&self, name: &str) -> Option<&str> {
        let authorization = self.header("authorization")?.strip_prefix("AWS4-HMAC-SHA256 ")?;
        authorization.split(',').find_map(|field| field.trim().strip_prefix(name))
    }

    /// Computes the signature that the request should have.
    pub fn signature(&self, scope: &Scope, secret: &str, signed: &str) -> String {
        let when = self.header("x-amz-date").unwrap_or_default();
        let day = when.split('T').next().unwrap_or_default();
        let scope_text = format!("{day}/{}/{}/aws4_request", scope.region, scope.service);
        let hash = hex(Sha256::digest(self.canonical(signed)));
        let text = format!("AWS4-HMAC-SHA256\n{when}\n{scope_text}\n{hash}");
        let mut key = hmac(format!("AWS4{secret}").as_bytes(), day);
        for part in [&scope.region, &scope.service, "aws4_request"] {
            key = hmac(&key, part);
        }
        hex(hmac(&key, &text))
    }

    /// Returns the scope of a valid signature, else the error that AWS returns.
    pub fn verify(&self, secret: impl Fn(&str) -> Option<String>) -> Result<Scope, ServiceError> {
        let fail = |code: &str, message: &str| {
            Err(ServiceError { status: 403, code: code.into(), message: message.into() })
        };
        let (Some(scope), Some(signed)) = (self.scope(), self.field("SignedHeaders=")) else {
            return fail("MissingAuthenticationToken", "Request is missing a signature");
        };
        let names: Vec<&str> = signed.split(';').collect();
        if ["host", "x-amz-date"].iter().any(|name| !names.contains(name)) {
            return fail("SignatureDoesNotMatch", "'host' and 'x-amz-date' must be signed");
        }
        let Some(secret) = secret(&scope.key) else {
            return fail("UnrecognizedClientException", "The security token is invalid");
        };
        let expected = self.signature(&scope, &secret, signed);
        if self.field("Signature=") != Some(expected.as_str()) {
            return fail(
                "SignatureDoesNotMatch",
                "The request signature we calculated does not match the signature you provided",
            );
        }
        Ok(scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_test_vector_is_accepted_and_variants_are_rejected() {
        let headers = |signature: &str| {
            let authorization = format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                 SignedHeaders=content-type;host;x-amz-date, Signature={signature}"
            );
            [
                ("content-type", "application/x-www-form-urlencoded"),
                ("host", "example.amazonaws.com"),
                ("x-amz-date", "20150830T123600Z"),
                ("authorization", authorization.as_str()),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        let good = headers("ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a");
        let request =
            |headers, body| Request { method: "POST", path: "/", query: "", headers, body };
        let secret = |_: &str| Some("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned());
        let scope = request(&good, b"Param1=value1").verify(secret).unwrap();
        assert_eq!((scope.service.as_str(), scope.region.as_str()), ("service", "us-east-1"));
        let code = |result: Result<Scope, ServiceError>| result.unwrap_err().code;
        assert_eq!(code(request(&good, b"Param1=value2").verify(secret)), "SignatureDoesNotMatch");
        let wrong = headers("00");
        let result = request(&wrong, b"Param1=value1").verify(secret);
        assert_eq!(code(result), "SignatureDoesNotMatch");
        let result = request(&good[..3], b"Param1=value1").verify(secret);
        assert_eq!(code(result), "MissingAuthenticationToken");
        let result = request(&good, b"Param1=value1").verify(|_| None);
        assert_eq!(code(result), "UnrecognizedClientException");
    }
}
