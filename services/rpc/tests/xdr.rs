//! Values as XDR (RFC 4506), beside bytes that the RFC or libtirpc gives for them.

use mapwire_rpc::xdr::{Decoder, Encoder, FixedOpaque, Opaque, Xdr, XdrError};
use proptest::prelude::*;

fn encoded(value: &impl Xdr) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut Encoder::new(&mut bytes)).unwrap();
    assert_eq!(bytes.len(), value.encoded_bytes());
    bytes
}

fn decoded<T: Xdr>(mut bytes: &[u8]) -> Result<T, XdrError> {
    let mut from = Decoder::new(&mut bytes);
    let value = from.value()?;
    from.finish()?;
    Ok(value)
}

#[test]
fn values_have_the_form_of_the_standard() {
    assert_eq!(encoded(&1_u32), [0, 0, 0, 1]);
    assert_eq!(encoded(&-2_i32), [0xff, 0xff, 0xff, 0xfe]);
    assert_eq!(encoded(&0x0102_0304_0506_0708_u64), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(encoded(&1.0_f32), [0x3f, 0x80, 0, 0]);
    assert_eq!(encoded(&true), [0, 0, 0, 1]);
    assert_eq!(encoded(&()), []);
    assert_eq!(encoded(&"sillyprog".to_owned())[..4], [0, 0, 0, 9]);
    // RFC 4506 §7 has these bytes.
    let file = ("sillyprog".to_owned(), 2_u32, "lisp".to_owned());
    let standard = b"\0\0\0\x09sillyprog\0\0\0\0\0\0\x02\0\0\0\x04lisp";
    assert_eq!(encoded(&file), standard);
    assert_eq!(encoded(&Opaque(b"(quit)".to_vec())), b"\0\0\0\x06(quit)\0\0");
    assert_eq!(encoded(&FixedOpaque(*b"abcde")), b"abcde\0\0\0");
    assert_eq!(encoded(&Some(7_u32)), [0, 0, 0, 1, 0, 0, 0, 7]);
    assert_eq!(encoded(&None::<u32>), [0; 4]);
    assert_eq!(encoded(&[1_u32, 2]), [0, 0, 0, 1, 0, 0, 0, 2]);
    assert_eq!(encoded(&vec![3_u32]), [0, 0, 0, 1, 0, 0, 0, 3]);
}

#[test]
fn bytes_that_are_no_value_are_refused_with_what_is_wrong_about_them() {
    let short = |wanted, left| XdrError::Short { wanted, left };
    assert_eq!(decoded::<u32>(&[0; 3]), Err(short(4, 3)));
    assert_eq!(decoded::<u32>(&[0; 5]), Err(XdrError::Left(1)));
    assert_eq!(decoded::<bool>(&[0, 0, 0, 2]), Err(XdrError::NotBoolean(2)));
    assert_eq!(decoded::<String>(b"\0\0\0\x01\xff\0\0\0"), Err(XdrError::NotText));
    // A length that the record cannot hold takes no memory.
    let endless = [0xff; 8];
    assert_eq!(decoded::<Opaque>(&endless), Err(short(u32::MAX.into(), 4)));
    assert_eq!(decoded::<Vec<u64>>(&endless), Err(short(8 * u64::from(u32::MAX), 4)));
    assert!(decoded::<Vec<()>>(&endless).is_err());
    // The padding is missing.
    assert_eq!(decoded::<Opaque>(b"\0\0\0\x01a"), Err(short(3, 0)));
}

/// A list as `rpcgen` has it: each element says whether another follows.
#[derive(Debug, PartialEq)]
struct Chain(u32, Option<Box<Chain>>);

impl Xdr for Chain {
    const LEAST_BYTES: usize = 8;

    fn encoded_bytes(&self) -> usize {
        4 + self.1.encoded_bytes()
    }

    fn encode(&self, to: &mut Encoder<'_>) -> Result<(), XdrError> {
        to.value(&self.0)?;
        to.value(&self.1)
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self(from.value()?, from.value()?))
    }
}

#[test]
fn a_list_that_would_fill_the_stack_is_refused() {
    let chain = Chain(1, Some(Box::new(Chain(2, None))));
    assert_eq!(decoded(&encoded(&chain)), Ok(chain));
    let endless = [0, 0, 0, 1].repeat(1 << 20);
    assert!(matches!(decoded::<Chain>(&endless), Err(XdrError::TooDeep(_))));
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        words in prop::collection::vec(any::<u32>(), 0..40),
        text in ".{0,20}",
        bytes in prop::collection::vec(any::<u8>(), 0..50),
        hyper in any::<i64>(),
        option in any::<Option<bool>>(),
    ) {
        let value = ((words, text), Opaque(bytes), hyper, option);
        prop_assert_eq!(decoded(&encoded(&value)), Ok(value));
    }

    #[test]
    fn any_bytes_are_a_value_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decoded::<(Vec<String>, Option<Opaque>)>(&bytes);
        let _ = decoded::<Vec<(u32, bool)>>(&bytes);
    }
}

#[test]
fn a_credential_that_is_written_is_read_and_one_that_is_cut_is_not() {
    use mapwire_rpc::AuthSys;
    for machine in ["", "a", "host", "a longer name"] {
        let sys = AuthSys { stamp: 7, machine: machine.into(), uid: 1000, gid: 100, gids: vec![4, 24] };
        let mut body = Vec::new();
        sys.encode(&mut Encoder::new(&mut body)).unwrap();
        assert_eq!(AuthSys::decode(&body), Ok(sys));
        for length in 0..body.len() {
            assert!(AuthSys::decode(&body[..length]).is_err(), "{length}");
        }
    }
    assert!(AuthSys::decode(&[0xff; 64]).is_err());
}
