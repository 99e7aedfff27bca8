//! OPEN (RFC 4271 sections 4.2 and 6.2), with optional parameters in the standard and in the
//! extended format (RFC 9072). Checks that depend on settings are in `session/negotiate.rs`.

use std::net::Ipv4Addr;

use super::capability::Capability;
use super::frame::{self, HEADER_SIZE, Kind};
use super::notification::{Fault, Notification};
use super::read::Reader;

/// BGP version.
const VERSION: u8 = 4;
/// The optional parameter that holds capabilities.
const CAPABILITIES: u8 = 2;
/// Marks the extended format with 2-octet lengths (RFC 9072). It stands in the fields for the
/// length of all parameters and for the type of the first parameter.
const LONG: u8 = 255;

/// An OPEN.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Open {
    /// AS number; [`super::AS_TRANS`] if it does not fit in two octets.
    pub asn: u16,
    /// Proposed hold time in seconds.
    pub hold_time: u16,
    /// BGP identifier.
    pub identifier: Ipv4Addr,
    /// All capabilities of all parameters, in order.
    pub capabilities: Vec<Capability>,
}

impl Open {
    /// Encodes the message, in the extended format if the capabilities exceed the standard one.
    pub fn write(&self) -> Vec<u8> {
        let mut body = vec![VERSION];
        body.extend_from_slice(&self.asn.to_be_bytes());
        body.extend_from_slice(&self.hold_time.to_be_bytes());
        body.extend_from_slice(&self.identifier.octets());
        let mut capabilities = Vec::new();
        for capability in &self.capabilities {
            capability.write(&mut capabilities);
        }
        let length = capabilities.len();
        match length {
            0 => body.push(0),
            // A length of 255 marks the extended format, so the maximum is 254.
            1..=252 => body.extend_from_slice(&[length as u8 + 2, CAPABILITIES, length as u8]),
            _ => {
                body.extend_from_slice(&[LONG, LONG]);
                body.extend_from_slice(&(length as u16 + 3).to_be_bytes());
                body.push(CAPABILITIES);
                body.extend_from_slice(&(length as u16).to_be_bytes());
            }
        }
        body.extend_from_slice(&capabilities);
        frame::message(Kind::Open, &body)
    }

    pub(super) fn read(body: &[u8]) -> Result<Open, Fault> {
        let mut reader = Reader(body);
        let short = || Notification::message_length(HEADER_SIZE + body.len());
        if reader.u8().ok_or_else(short)? != VERSION {
            // Unsupported Version Number: the data is the highest supported version.
            return Err(Notification::new(2, 1, vec![0, VERSION]).into());
        }
        let asn = reader.u16().ok_or_else(short)?;
        let hold_time = reader.u16().ok_or_else(short)?;
        let identifier = Ipv4Addr::from(reader.u32().ok_or_else(short)?);
        let mut capabilities = Vec::new();
        read_parameters(reader, &mut capabilities)?;
        Ok(Open { asn, hold_time, identifier, capabilities })
    }
}

fn read_parameters(mut reader: Reader<'_>, to: &mut Vec<Capability>) -> Result<(), Fault> {
    let malformed = || Notification::new(2, 0, Vec::new());
    let length = reader.u8().ok_or_else(malformed)?;
    // RFC 9072 section 2: the type of the first parameter decides, not a length of 255 alone.
    let long = length != 0 && reader.0.first() == Some(&LONG);
    let length = match long {
        true => {
            reader.take(1).ok_or_else(malformed)?;
            reader.u16().ok_or_else(malformed)?.into()
        }
        false => usize::from(length),
    };
    if reader.0.len() != length {
        return Err(malformed().into());
    }
    while !reader.is_empty() {
        let kind = reader.u8().ok_or_else(malformed)?;
        let length = match long {
            true => reader.u16(),
            false => reader.u8().map(u16::from),
        };
        let value = reader.take(length.ok_or_else(malformed)?.into()).ok_or_else(malformed)?;
        if kind != CAPABILITIES {
            // Unsupported Optional Parameter.
            return Err(Notification::new(2, 4, Vec::new()).into());
        }
        Capability::read_all(value, to)?;
    }
    Ok(())
}
