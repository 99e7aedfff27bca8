//! Responses in the formats of the AWS services, and access to the members of requests.

/// The members of a form-encoded request: names and values.
pub type Members = Vec<(String, String)>;

/// An error response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceError {
    /// HTTP status.
    pub status: u16,
    /// Error code.
    pub code: String,
    /// Error message.
    pub message: String,
}

/// Returns an error response with status 400.
pub fn fail<T>(code: &str, message: impl Into<String>) -> Result<T, ServiceError> {
    Err(ServiceError { status: 400, code: code.into(), message: message.into() })
}

/// Format of a service's responses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Query protocol: ELBv2 and Auto Scaling.
    Query,
    /// EC2's variant of the query protocol.
    Ec2,
    /// JSON: tagging and SSM.
    Json,
    /// Plain text: the metadata service.
    Plain,
}

impl Format {
    /// Returns the format of a service, given by its name in the request's signature.
    pub fn of(service: &str) -> Format {
        match service {
            "elasticloadbalancing" | "autoscaling" => Format::Query,
            "ec2" => Format::Ec2,
            "imds" => Format::Plain,
            _ => Format::Json,
        }
    }

    /// Formats an error response.
    pub fn error(self, error: &ServiceError) -> String {
        let ServiceError { code, message, .. } = error;
        match self {
            Format::Query => format!(
                "<ErrorResponse><Error><Type>Sender</Type>{}{}</Error>\
                 <RequestId>4</RequestId></ErrorResponse>",
                element("Code", code),
                element("Message", message)
            ),
            Format::Ec2 => format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error>{}{}</Error>\
                 </Errors><RequestID>4</RequestID></Response>",
                element("Code", code),
                element("Message", message)
            ),
            Format::Json => {
                serde_json::json!({ "__type": format!("com.amazonaws#{code}"), "message": message })
                    .to_string()
            }
            Format::Plain => message.clone(),
        }
    }

    /// Returns the media type.
    pub fn media(self) -> &'static str {
        match self {
            Format::Query | Format::Ec2 => "text/xml",
            Format::Json => "application/x-amz-json-1.1",
            Format::Plain => "text/plain",
        }
    }
}

/// Escapes text for XML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Formats an XML element that contains text.
pub fn element(name: &str, text: impl ToString) -> String {
    format!("<{name}>{}</{name}>", escaped(&text.to_string()))
}

/// Returns the value of a member.
pub fn get<'a>(members: &'a Members, name: &str) -> Option<&'a str> {
    members.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

/// Returns the value of a required member.
pub fn need<'a>(members: &'a Members, name: &str) -> Result<&'a str, ServiceError> {
    get(members, name).map_or_else(
        || fail("MissingParameter", format!("The request must contain the parameter {name}")),
        Ok,
    )
}

/// Returns the values of the members `{prefix}.1{suffix}`, `{prefix}.2{suffix}` and so on, up to
/// the first number without a member.
pub fn list<'a>(members: &'a Members, prefix: &str, suffix: &str) -> Vec<&'a str> {
    let nth = |n: usize| get(members, &format!("{prefix}.{n}{suffix}"));
    (1..).map_while(nth).collect()
}

/// Returns a page of at most `size` items that starts at `token`, and the token of the next page.
/// A token is `at-` and the index of the page's first item; without one the page is the first.
pub fn page<T>(
    mut all: Vec<T>,
    token: Option<&str>,
    size: Option<usize>,
) -> Result<(Vec<T>, Option<String>), ServiceError> {
    let from = match token.filter(|t| !t.is_empty()).map(|t| t.trim_start_matches("at-").parse()) {
        None => 0,
        Some(Ok(from)) if from <= all.len() => from,
        Some(_) => return fail("InvalidParameterValue", "invalid page token"),
    };
    let to = size.map_or(all.len(), |size| all.len().min(from + size.max(1)));
    let next = (to < all.len()).then(|| format!("at-{to}"));
    all.truncate(to);
    Ok((all.split_off(from), next))
}
