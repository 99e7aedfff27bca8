//! Deserialization of lists that may be written as a single value.

/// Deserializes a string or a list of strings as a list, because a single address is the usual
/// case.
pub(super) fn one_or_many<'de, D>(from: D) -> Result<Vec<String>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    struct OneOrMany;
    impl<'de> serde::de::Visitor<'de> for OneOrMany {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
            f.write_str("a string or a list of strings")
        }

        fn visit_str<E>(self, one: &str) -> Result<Vec<String>, E> {
            Ok(vec![one.to_owned()])
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(
            self,
            mut many: A,
        ) -> Result<Vec<String>, A::Error> {
            let mut list = Vec::new();
            while let Some(one) = many.next_element()? {
                list.push(one);
            }
            Ok(list)
        }
    }
    from.deserialize_any(OneOrMany)
}
